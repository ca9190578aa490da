"""What is current on a thread: the lane whose task it runs, and the recording that it makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from d2lmini.base.scopes import contextmanager

if TYPE_CHECKING:
    from d2lmini.cuda.recorder import Recorder
    from d2lmini.cuda.stream_worker import StreamWorker


class NotRecorded(Exception):
    """What a program asks of CuPy besides launches (`recorder`)."""


class _ThreadState(threading.local):
    """Per thread: the lane whose device and stream are current, the scope that restores the
    previous ones, and the recording in progress. A worker's scope is dropped with its thread and on
    this thread only: on another thread it would change what is current there."""

    lane: StreamWorker | None = None
    stack: ExitStack | None = None
    recorder: Recorder | None = None


thread_state = _ThreadState()


def outside(call: Callable[[], Any]) -> None:
    """Make a call whose launches have other numbers each time, such as a random key: now, or at
    each repetition of the recording in progress, which asks it for the numbers of its launches."""
    if thread_state.recorder is None:
        call()
    else:
        thread_state.recorder.outside(call)


@contextmanager
def recording_into(recorder: Recorder) -> Iterator[None]:
    """A scope in which calls `outside` go to a recorder."""
    thread_state.recorder = recorder
    try:
        yield
    finally:
        thread_state.recorder = None
