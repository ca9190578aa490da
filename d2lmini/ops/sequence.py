"""Ops on batches of sequences of unequal lengths, stored with padding: mask, last step,
reverse; and CTC, the loss of a sequence whose alignment is unknown.

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

Connectionist temporal classification (CTC):

>>> scores = nd.zeros((3, 1, 2))                # 3 steps, 1 sequence, classes: blank and one letter
>>> loss = nd.CTCLoss(scores, nd.array([[1]]))
>>> loss.exp().round()                          # 6 of the 8 paths spell that letter once: 8 / 6
<BLANKLINE>
[1.]
<NDArray 1 @cpu(0)>

A path names one class for each time step. Merging repetitions and then dropping blanks turns a path
into a label: "a-ab-" spells "aab". The loss is -log of the probability that a path, drawn step by
step from softmax(data), spells the given label. The paths of a label go through the states

    -  l1  -  l2  -  ...  lL  -                      (S = 2 L + 1, - is the blank)

and at each step stay, advance by one, or by two where that skips a blank between different letters.
`_reach` sums the beginnings of paths that come into state s at step t; from the other end it sums
their continuations. Both are sums over two or three neighbours. Since probabilities of long
sequences are tiny, all sums use logarithms, in float64. Both together give the share of the paths
that are in a state, and with it the gradient, which forward computes too, as MXNet does. Source:
A. Graves et al., "Connectionist Temporal Classification" (2006).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.activation import clip
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Shape, Spec, op, with_axis
from d2lmini.ops.create import copy, where
from d2lmini.ops.facts import Inputs, Partial
from d2lmini.ops.index import one_hot, pick, scatter_add
from d2lmini.ops.order import cumsum
from d2lmini.ops.reduce import reshape_to, spread
from d2lmini.ops.shape import transpose
from d2lmini.ops.softmax import log_softmax
from d2lmini.ops.subscript import reverse, slice_axis


def _one_per_sequence(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data = given["data"]
    batch = data[1 - attrs.get("axis", 0)] if data and len(data) > 1 else 0
    return {"sequence_length": (batch,)}


_of_sequences = partial(
    composed, flops=1, input_rule=_one_per_sequence, free_dtypes=("sequence_length",),
    presumed_dtypes={"sequence_length": None}, constants=("sequence_length",),
    optional=lambda attrs: ("sequence_length",) if attrs["use_sequence_length"] else (),
)  # fmt: skip


def _check(data: Any, lengths: Any, used: bool, axis: int, axes: tuple[int, ...] = (0, 1)) -> None:
    if axis not in axes:
        raise MXNetError(f"axis={axis}, need {' or '.join(map(str, axes))}")
    if data.ndim < 2:
        raise MXNetError(f"data is {data.shape}, need two axes or more: time and batch")
    check_optional("sequence_length", lengths, used, f"use_sequence_length={used}")
    check_shape("sequence_length", lengths, (data.shape[1 - axis],), why="one for each sequence")


def _past(data: Any, lengths: Any, axis: int) -> Any:
    """1 for each step of `data` at or after its sequence's length, else 0: (T, N) or (N, T)."""
    past = cumsum(
        one_hot(clip(lengths, a_min=0, a_max=data.shape[axis]), depth=data.shape[axis]), axis=1
    )
    return past if axis else transpose(past)


def _like(small: Any, shape: Shape) -> Any:
    """What is one for each step or sequence, in `shape`."""
    return spread(small, kept=small.shape + (1,) * (len(shape) - small.ndim), shape=shape)


@_of_sequences()
def SequenceMask(
    data, sequence_length=None, *, use_sequence_length: bool = False, value: float = 0.0,
    axis: int = 0,
):  # fmt: skip
    """data with `value` in every step at or after its sequence's length; shape and dtype kept.

    Without lengths a copy. MXNetError at the call for shapes, axis, or lengths given without
    use_sequence_length (or the reverse).

    >>> steps, lengths = nd.ones((3, 2)), nd.array([1, 2])
    >>> nd.SequenceMask(steps, lengths, use_sequence_length=True).asnumpy().tolist()
    [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    """
    _check(data, sequence_length, use_sequence_length, axis)
    if sequence_length is None:
        return copy(data)
    past = _like(_past(data, sequence_length, axis), data.shape)
    return where(past, data.zeros_like() + value, data)


@_of_sequences()
def SequenceLast(data, sequence_length=None, *, use_sequence_length: bool = False, axis: int = 0):
    """The last valid step of each sequence: (T, N, X...) -> (N, X...), dtype kept.

    Without lengths step T-1. A length outside 1 ... T counts as the nearest (MXNet reads memory
    outside the array). Errors as in `SequenceMask`.
    """
    _check(data, sequence_length, use_sequence_length, axis)
    T = data.shape[axis]
    if T == 0:
        raise MXNetError(f"data is {data.shape}: the time axis is empty")
    shape = with_axis(data.shape, axis)
    if sequence_length is None:
        return reshape_to(slice_axis(data, axis=axis, begin=T - 1, end=T), shape)
    return pick(data, _like(clip(sequence_length, a_min=1, a_max=T) - 1, shape), axis=axis)


@_of_sequences()
def SequenceReverse(
    data, sequence_length=None, *, use_sequence_length: bool = False, axis: int = 0
):
    """Each sequence reversed, its padding left in place; shape and dtype kept.

    (T, N, X...) only (axis=0). Without lengths all T steps. A length above T counts as T (MXNet
    reads memory outside the array). Errors as in `SequenceMask`.
    """
    _check(data, sequence_length, use_sequence_length, axis, (0,))
    if sequence_length is None:
        return reverse(data, axis=(0,))
    past = _past(data, sequence_length, 0)
    steps = cumsum(past.ones_like(), axis=0) - 1
    # The steps of a sequence's own are as many as the sum of 1 - past.
    ends = (1 - past).sum(axis=0, keepdims=True) - 1
    source = where(past, steps, ends - steps)
    return pick(data, _like(source, data.shape), axis=0, keepdims=True)


# -- CTC -------------------------------------------------------------------------------------------


def _infer(
    data: Spec, label: Spec, data_lengths: Spec | None = None, label_lengths: Spec | None = None, *,
    use_data_lengths: bool, use_label_lengths: bool, blank_label: str,
) -> list[Spec]:  # fmt: skip
    check_choice("blank_label", blank_label, ("first", "last"))
    check_float(data)
    if len(data.shape) != 3 or len(label.shape) != 2:
        raise MXNetError(
            f"data must be (T, N, C) and label (N, L), got {data.shape} and {label.shape}"
        )
    T, N, C = data.shape
    why = f"data is (T, N, C) = {data.shape}"
    check_shape("label", label, (N, label.shape[1]), why=why)
    if C < 1 or not label.shape[1] <= T > 0:
        raise MXNetError(
            f"data (T, N, C) = {data.shape} needs a step and a class at least, and as many steps "
            f"as label (N, L) = {label.shape} has room for letters"
        )
    used = use_data_lengths, use_label_lengths
    lengths = _sort_out(data_lengths, label_lengths, *used)
    for name, given, wanted in zip(("data_lengths", "label_lengths"), lengths, used):
        check_optional(name, given, wanted, f"use_{name}={wanted}")
        check_shape(name, given, (N,), why=why)
    return [Spec((N,), data.dtype), data]


def _lengths_used(attrs: dict[str, Any]) -> tuple[str, ...]:
    names = ("data_lengths", "label_lengths")
    return tuple([name for name in names if attrs[f"use_{name}"]])


def _sort_out(first: Any, second: Any, use_first: bool, use_second: bool) -> tuple[Any, Any]:
    """A single input of lengths belongs to the labels if only label lengths are used."""
    return (None, first) if use_second and not use_first and second is None else (first, second)


def _lattice(
    xp: Any, shape: Shape, label: Any, steps: Any, label_lengths: Any, blank: str
) -> tuple[Any, Any, Any, Any]:
    """The states of every sequence, (N, S) each: the class of each state, blank beyond the last;
    and where a path may skip the blank before, begin and end: 0 there, else -inf."""
    T, N, C = shape
    L, b = label.shape[1], 0 if blank == "first" else C - 1
    label = label.astype("int64")
    if label_lengths is None:
        padding = label == (0 if blank == "first" else -1)
        lengths = xp.where(padding.any(axis=1), padding.argmax(axis=1), L)
    else:
        lengths = label_lengths.astype("int64")
    inside = xp.arange(L) < lengths[:, None]
    wrong = inside & ((label < 0) | (label >= C) | (label == b))
    for name, counts, most in (("label", lengths, L), ("data", steps, T)) if xp is np else ():
        if label.size and not (counts.min() >= 0 and counts.max() <= most):
            raise MXNetError(f"CTCLoss: {name}_lengths must be in [0, {most}], got {counts}")
    if xp is np and wrong.any():
        raise MXNetError(
            f"CTCLoss: labels must be classes in [0, {C}) other than the blank, {b}; "
            f"got {label[wrong][0]}"
        )
    states = xp.full((N, 2 * L + 1), b)
    states[:, 1::2] = xp.where(inside & ~wrong, label, b)
    place, last = xp.arange(2 * L + 1), 2 * lengths[:, None]
    differs = (place > 2) & (place % 2 == 1) & (states != xp.roll(states, 2, axis=1))
    leap = xp.where(differs, 0.0, -xp.inf)
    start = xp.where((place < 2) & (place <= last), 0.0, -xp.inf)
    if xp is not np:  # a check would wait for the GPU; there the loss becomes nan
        wrong = wrong.any(axis=1) | (lengths < 0) | (lengths > L) | (steps < 0) | (steps > T)
        start = xp.where(wrong[:, None], xp.nan, start)
    return states, leap, start, xp.where((place <= last) & (place >= last - 1), 0.0, -xp.inf)


def _reach(xp: Any, emit: Any, leap: Any, start: Any, first: Any) -> Any:
    """log of the sum over all paths that begin at step `first` (N,) and are in state s at step t,
    without their factor of step t: (T, N, S).

    emit (T, N, S): log of the factor of each state at each step. leap, start (N, S): 0 where a path
    may skip the state before, where a path may begin, else -inf.
    """
    found = xp.empty(emit.shape)
    before = xp.full(emit.shape[1:], -xp.inf)
    for t, now in enumerate(found):
        now[:] = before
        now[:, 1:] = xp.logaddexp(now[:, 1:], before[:, :-1])
        now[:, 2:] = xp.logaddexp(now[:, 2:], before[:, :-2] + leap[:, 2:])
        now[:] = xp.where((first == t)[:, None], start, now)
        before = now + emit[t]
    return found


@op(
    aliases=["ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"], infer=_infer,
    outputs=lambda **_: 1, optional=_lengths_used, output_names=("output0",), mxnet_outputs=2,
    free_dtypes=("label", "data_lengths", "label_lengths"),
    flops=lambda data, label, *_, out, **__: 10.0 * data.size
    + 160.0 * data.shape[0] * label.size,
)  # fmt: skip
def CTCLoss(
    xp, data, label, data_lengths=None, label_lengths=None, *, use_data_lengths: bool = False,
    use_label_lengths: bool = False, blank_label: str = "first",
):  # fmt: skip
    """-log of the probability that softmax(data) spells each label: (T, N, C), (N, L) -> (N,).

    data: scores of C classes at T steps, floating. label: class numbers, of any dtype, without the
    blank, which is class 0 ("first") or C - 1 ("last"). A label ends before its first 0 ("first")
    or -1 ("last"), or with use_label_lengths after label_lengths (N,) classes; a sequence ends
    after T steps, or with use_data_lengths after data_lengths (N,). A label too long for its
    sequence has the loss 0 and no gradient, as in MXNet.

    MXNetError at the call for shapes, at a wait for lengths or classes out of range (on a GPU the
    loss is nan instead). Backward keeps the slope (T, N, C), a hidden output; it is not
    differentiable again. Cost: about 80 FLOPs for each state and step.
    """
    T, N, C = data.shape
    data_lengths, label_lengths = _sort_out(
        data_lengths, label_lengths, use_data_lengths, use_label_lengths
    )
    steps = xp.full(N, T) if data_lengths is None else data_lengths.astype("int64")
    states, leap, start, end = _lattice(xp, data.shape, label, steps, label_lengths, blank_label)
    log_p = log_softmax.compute(xp, data.astype("float64"))
    emit = xp.take_along_axis(log_p, states[None], axis=2)
    alpha = _reach(xp, emit, leap, start, xp.zeros(N)) + emit
    back = xp.roll(leap[:, ::-1], 2, axis=1)  # the leap into a state is one out of its predecessor
    beta = _reach(xp, emit[::-1, :, ::-1], back, end[:, ::-1], T - steps)[::-1, :, ::-1]
    share = alpha + beta

    # Every path is in one state at step 0.
    largest = share[0].max(axis=1, keepdims=True)
    largest = xp.where(largest == -xp.inf, 0.0, largest)
    total = xp.log(xp.exp(share[0] - largest).sum(axis=1)) + largest[:, 0]
    possible = total != -xp.inf
    # The share of the paths that are in class c at step t is what the slope of log_p sums to.
    share = xp.exp(share - xp.where(possible, total, 0.0)[:, None])
    cells = xp.arange(T * N).reshape(T, N, 1) * C + states
    slope = xp.exp(log_p) - scatter_add(xp, cells, share, (T, N, C), None)
    counts = possible & (xp.arange(T)[:, None] < steps)  # (T, N)
    slope = xp.where(counts[:, :, None], slope, 0.0)
    return xp.where(possible, -total, 0.0).astype(data.dtype), slope.astype(data.dtype)


@CTCLoss.gradient(saves="y")
def _(g, y):
    return g[0].reshape((1, -1, 1)) * y[1], None, None, None
