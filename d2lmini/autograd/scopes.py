"""The two switches of autograd, and the scopes that set them. Both are per thread and independent:
`record(train_mode=False)` records in prediction mode, `train_mode()` trains without recording.

>>> from d2lmini import autograd
>>> with autograd.record():
...     autograd.is_recording(), autograd.is_training()
(True, True)
"""

from __future__ import annotations

from typing import Any

from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.ops.core import modes


def is_recording() -> bool:
    """True if operations of this thread are recorded."""
    refuse_in_trace("autograd.is_recording()")
    return modes.recording


def is_training() -> bool:
    """True if layers behave as in training (Dropout drops, BatchNorm uses the batch's
    statistics)."""
    if modes.tracing is not None:
        modes.tracing.depends_on_mode()
    return modes.training


def set_recording(is_recording: bool) -> bool:
    """Turn recording on or off for this thread; returns the former setting."""
    refuse_in_trace("autograd.set_recording()")
    before, modes.recording = modes.recording, bool(is_recording)
    return before


def set_training(train_mode: bool) -> bool:
    """Turn training mode on or off for this thread; returns the former setting."""
    refuse_in_trace("autograd.set_training()")
    before, modes.training = modes.training, bool(train_mode)
    return before


def refuse_in_trace(what: str) -> None:
    """Raise if a net is being traced: `what` cannot be part of a graph, so the net would not
    compile."""
    if modes.tracing is not None:
        modes.tracing.refuse(what)


class scope(Scope):
    """Set the switches within the scope; None leaves a switch as it is. A scope may be entered
    again, also within itself."""

    def __init__(self, recording: bool | None, training: bool | None):
        self.recording = recording
        self.training = training

    def _begin(self, undo: Undo) -> None:
        recording, training = self.recording, self.training
        if modes.tracing is not None:
            modes.tracing.depends_on_mode()
            if recording is not None or training is not modes.training:
                what = "a scope of autograd (record, pause, train_mode, predict_mode)"
                modes.tracing.refuse(what)
        if recording is not None:
            swap(undo, modes, "recording", recording)
        if training is not None:
            swap(undo, modes, "training", training)

    def left(self, kind: Any) -> None:
        if kind is not None and not (modes.recording or modes.training):  # the outermost
            modes.broken[0] += 1


def record(train_mode: bool | None = True) -> Any:
    """A scope in which operations are recorded, in training mode unless `train_mode=False`.
    None leaves the mode as it is."""
    return scope(True, train_mode)


def pause(train_mode: bool | None = False) -> Any:
    """A scope within `record` whose operations are not recorded."""
    return scope(False, train_mode)


def train_mode() -> Any:
    """A scope in which layers behave as in training; recording stays as it is."""
    return scope(None, True)


def predict_mode() -> Any:
    """A scope in which layers behave as in prediction; recording stays as it is."""
    return scope(None, False)
