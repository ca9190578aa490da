"""Sequences as inputs and outputs of cells: one array with a time axis, or a list of steps.

>>> from d2lmini import nd
>>> x = nd.arange(12).reshape((2, 3, 2))                # layout NTC: N=2, T=3, C=2
>>> steps = as_steps(x, 3, "NTC")
>>> len(steps), steps[0].shape
(3, (2, 2))
>>> as_array(steps, 3, "NTC").shape
(2, 3, 2)

All functions use ops on values, so they work for arrays and Symbols.
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.core import Value
from d2lmini.ops.join import split, stack
from d2lmini.ops.sequence import SequenceMask, SequenceReverse


def axis_of(letter: str, layout: str) -> int:
    """The position of 'T' or 'N' in a layout; ValueError unless the layout is 'NTC' or 'TNC'."""
    if sorted(layout) != sorted("TNC") or layout[2] != "C":
        raise ValueError(f"layout {layout!r}: expected 'NTC' or 'TNC'")
    return layout.find(letter)


def check_length(sequence: Any, length: int | None, layout: str) -> None:
    """AssertionError unless `sequence` has `length` steps. Skips Symbols (shape unknown)."""
    if isinstance(sequence, Value):
        shape = getattr(sequence, "shape", None)
        found = None if shape is None else shape[axis_of("T", layout)]
    else:
        found = len(sequence)
    if length is not None and found is not None:
        assert found == length, f"unroll: length={length}, the inputs have {found} steps"


def as_steps(sequence: Any, length: int, layout: str) -> list[Any]:
    """The sequence as a list with one array (N, C...) per step."""
    axis = axis_of("T", layout)
    check_length(sequence, length, layout)
    if not isinstance(sequence, Value):
        return list(sequence)
    parts = split(sequence, num_outputs=length, axis=axis, squeeze_axis=True)
    return list(parts) if length > 1 else [parts]


def as_array(sequence: Any, length: int, layout: str) -> Any:
    """The sequence as one array with the time axis of `layout`."""
    axis = axis_of("T", layout)
    check_length(sequence, length, layout)
    return sequence if isinstance(sequence, Value) else stack(*sequence, axis=axis)


def format_sequence(sequence: Any, length: int, layout: str, merge: bool | None) -> Any:
    """One array if `merge` is True, a list of steps if False, `sequence` itself if None."""
    if merge is None:
        return sequence
    return (as_array if merge else as_steps)(sequence, length, layout)


def mask_sequence(sequence: Any, length: int, layout: str, valid_length: Any) -> Any:
    """One array, with zeros in all steps at or after each sequence's valid length."""
    return SequenceMask(
        as_array(sequence, length, layout),
        valid_length,
        use_sequence_length=True,
        axis=axis_of("T", layout),
    )


def reverse(x: Any, valid_length: Any = None) -> Any:
    """Reverse (T, N, C) in time; with valid_length, reverse the valid steps of each sequence and
    leave the other steps in place."""
    return SequenceReverse(x, valid_length, use_sequence_length=valid_length is not None)


def backwards(steps: list[Any], valid_length: Any = None) -> list[Any]:
    """`reverse` for a list of steps."""
    if valid_length is None:
        return steps[::-1]
    return as_steps(reverse(stack(*steps, axis=0), valid_length), len(steps), "TNC")
