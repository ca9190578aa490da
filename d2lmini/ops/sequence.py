"""Ops on batches of sequences of unequal lengths, stored with padding: mask, last step, reverse.

A batch is (T, N, X...): time first, then the batch (axis=0), or (N, T, X...) (axis=1). A vector
(N,) of any dtype holds the length of each sequence; floats are truncated towards zero.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2], [3, 4], [5, 6]])         # T=3 steps of N=2 sequences
>>> nd.SequenceMask(x, nd.array([1, 2]), use_sequence_length=True, value=-1)
<BLANKLINE>
[[ 1.  2.]
 [-1.  4.]
 [-1. -1.]]
<NDArray 3x2 @cpu(0)>
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_optional, check_shape
from d2lmini.ops.core import Shape, Spec, op, with_axis
from d2lmini.ops.facts import Inputs, Partial
from d2lmini.ops.places import adjoint, integers, scatter


def _check(
    axes: tuple[int, ...], data: Spec, sequence_length: Spec | None = None, *,
    use_sequence_length: bool = False, axis: int = 0, **_: Any,
) -> Spec:  # fmt: skip
    if axis not in axes:
        raise MXNetError(f"axis={axis}, need {' or '.join(map(str, axes))}")
    if len(data.shape) < 2:
        raise MXNetError(f"data is {data.shape}, need two axes or more: time and batch")
    used, batch = use_sequence_length, data.shape[1 - axis]
    check_optional("sequence_length", sequence_length, used, f"use_sequence_length={used}")
    check_shape("sequence_length", sequence_length, (batch,), why="one for each sequence")
    return data


def _one_per_sequence(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data = given["data"]
    batch = data[1 - attrs.get("axis", 0)] if data and len(data) > 1 else 0
    return {"sequence_length": (batch,)}


def _steps(xp: Any, data_shape: Shape, axis: int) -> Any:
    """The step of each element, in a shape that broadcasts with (T, N) or (N, T)."""
    steps = xp.arange(data_shape[axis])
    return steps[:, None] if axis == 0 else steps[None, :]


def _per_sequence(xp: Any, lengths: Any, axis: int) -> Any:
    """Lengths in a shape that broadcasts with (T, N) or (N, T)."""
    lengths = integers(xp, lengths)
    return lengths[None, :] if axis == 0 else lengths[:, None]


# -- mask ------------------------------------------------------------------------------------------


_OF_SEQUENCES: dict[str, Any] = {
    "free_dtypes": ("sequence_length",),
    "presumed_dtypes": {"sequence_length": None},
    "optional": lambda attrs: ("sequence_length",) if attrs["use_sequence_length"] else (),
    "input_rule": _one_per_sequence,
}


@op(infer=partial(_check, (0, 1)), flops=1, **_OF_SEQUENCES)
def SequenceMask(
    xp, data, sequence_length=None, *, use_sequence_length: bool = False, value: float = 0.0,
    axis: int = 0,
):  # fmt: skip
    """data with `value` in every step at or after its sequence's length; shape and dtype kept.

    Without lengths a copy. MXNetError at the call for shapes, axis, or lengths given without
    use_sequence_length (or the reverse).

    >>> steps, lengths = nd.ones((3, 2)), nd.array([1, 2])
    >>> nd.SequenceMask(steps, lengths, use_sequence_length=True).asnumpy().tolist()
    [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    """
    if sequence_length is None:
        return data.copy()
    past = _steps(xp, data.shape, axis) >= _per_sequence(xp, sequence_length, axis)
    past = past.reshape(past.shape + (1,) * (data.ndim - 2))  # (T, N) to (T, N, 1, ...)
    return xp.where(past, np.array(value).astype(data.dtype)[()], data)


@SequenceMask.gradient(saves="sequence_length")
def _(g, sequence_length, *, use_sequence_length, axis):
    if sequence_length is None:
        return g, None
    return SequenceMask(
        g, sequence_length, use_sequence_length=use_sequence_length, value=0.0, axis=axis
    ), None


# -- last ------------------------------------------------------------------------------------------


def _infer_last(*specs: Spec, axis: int = 0, **attrs: Any) -> Spec:
    data = _check((0, 1), *specs, axis=axis, **attrs)
    if data.shape[axis] == 0:
        raise MXNetError(f"data is {data.shape}: the time axis is empty")
    return Spec(with_axis(data.shape, axis), data.dtype)


def _last_step(xp: Any, shape: Shape, lengths: Any, axis: int) -> tuple:
    """Index of each sequence's last step: `data[_last_step(...)]` is (N, X...)."""
    T, N = shape[axis], shape[1 - axis]
    steps = xp.full((N,), T) if lengths is None else xp.clip(integers(xp, lengths), 1, T)
    pair = steps - 1, xp.arange(N)
    return pair if axis == 0 else pair[::-1]


@op(infer=_infer_last, flops=0, **_OF_SEQUENCES)
def SequenceLast(
    xp, data, sequence_length=None, *, use_sequence_length: bool = False, axis: int = 0
):  # fmt: skip
    """The last valid step of each sequence: (T, N, X...) -> (N, X...), dtype kept.

    Without lengths step T-1. A length outside 1 ... T counts as the nearest (MXNet reads memory
    outside the array). Errors as in `SequenceMask`.
    """
    return data[_last_step(xp, data.shape, sequence_length, axis)]


@adjoint(SequenceLast, "_sequence_last_grad", flops=0)
def _sequence_last_grad(
    xp, g, sequence_length=None, *, shape: Shape, use_sequence_length: bool, axis: int
):  # fmt: skip
    """Zeros of `shape`, and g at each last step."""
    return scatter(xp, _last_step(xp, shape, sequence_length, axis), g, shape, None)


# -- reverse ---------------------------------------------------------------------------------------


@op(infer=partial(_check, (0,)), flops=0, **_OF_SEQUENCES)
def SequenceReverse(
    xp, data, sequence_length=None, *, use_sequence_length: bool = False, axis: int = 0
):
    """Each sequence reversed, its padding left in place; shape and dtype kept.

    (T, N, X...) only (axis=0). Without lengths all T steps. A length above T counts as T (MXNet
    reads memory outside the array). Errors as in `SequenceMask`.
    """
    if sequence_length is None:
        return data[::-1].copy()
    T, N = data.shape[:2]
    steps = _steps(xp, data.shape, 0)
    lengths = xp.minimum(_per_sequence(xp, sequence_length, 0), T)
    source = xp.where(steps < lengths, lengths - 1 - steps, steps)
    return data[source, xp.arange(N)]


@SequenceReverse.gradient(saves="sequence_length")
def _(g, sequence_length, *, use_sequence_length):
    return SequenceReverse(g, sequence_length, use_sequence_length=use_sequence_length), None
