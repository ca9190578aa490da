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
from d2lmini.ops.checks import check_axes, check_choice, check_float, check_optional, check_shape
from d2lmini.ops.core import Shape, Spec, op, with_axis
from d2lmini.ops.facts import Inputs, Partial
from d2lmini.ops.index import adjoint, integers, scatter, scatter_add
from d2lmini.ops.softmax import log_softmax


def _check(
    axes: tuple[int, ...], data: Spec, sequence_length: Spec | None = None, *,
    use_sequence_length: bool = False, axis: int = 0, **_: Any,
) -> Spec:  # fmt: skip
    if axis not in axes:
        raise MXNetError(f"axis={axis}, need {' or '.join(map(str, axes))}")
    check_axes(data, 2, "two axes or more: time and batch")
    used, batch = use_sequence_length, data.shape[1 - axis]
    check_optional("sequence_length", sequence_length, used, f"use_sequence_length={used}")
    check_shape("sequence_length", sequence_length, (batch,), why="one for each sequence")
    return data


def _one_per_sequence(given: Inputs, out: Partial, attrs: dict[str, Any]) -> dict[str, Partial]:
    data = given["data"]
    batch = data[1 - attrs.get("axis", 0)] if data and len(data) > 1 else 0
    return {"sequence_length": (batch,)}


def _grid(xp: Any, data: Any, lengths: Any, axis: int) -> tuple[Any, Any]:
    """The steps and the lengths, in shapes that broadcast to (T, N) or (N, T)."""
    steps, lengths = xp.arange(data.shape[axis]), integers(xp, lengths)
    return (steps[:, None], lengths) if axis == 0 else (steps, lengths[:, None])


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
    steps, lengths = _grid(xp, data, sequence_length, axis)
    past = steps >= lengths
    past = past.reshape(past.shape + (1,) * (data.ndim - 2))  # (T, N) to (T, N, 1, ...)
    return xp.where(past, np.array(value).astype(data.dtype)[()], data)


@SequenceMask.gradient(saves="sequence_length")
def _(g, sequence_length, *, use_sequence_length, axis):
    how = {"use_sequence_length": use_sequence_length, "axis": axis}
    return SequenceMask(g, sequence_length, **how) if use_sequence_length else g, None


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
):
    """The last valid step of each sequence: (T, N, X...) -> (N, X...), dtype kept.

    Without lengths step T-1. A length outside 1 ... T counts as the nearest (MXNet reads memory
    outside the array). Errors as in `SequenceMask`.
    """
    return data[_last_step(xp, data.shape, sequence_length, axis)]


@adjoint(SequenceLast, "_sequence_last_grad", flops=0)
def _sequence_last_grad(
    xp, g, sequence_length=None, *, shape: Shape, use_sequence_length: bool, axis: int
):
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
    steps, lengths = _grid(xp, data, sequence_length, 0)
    lengths = xp.minimum(lengths, T)
    source = xp.where(steps < lengths, lengths - 1 - steps, steps)
    return data[source, xp.arange(N)]


@SequenceReverse.gradient(saves="sequence_length")
def _(g, sequence_length, *, use_sequence_length):
    return SequenceReverse(g, sequence_length, use_sequence_length=use_sequence_length), None


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
    if xp is np:
        _check_labels(label, wrong, (("label", lengths, L), ("data", steps, T)), C, b)
    states = xp.full((N, 2 * L + 1), b)
    states[:, 1::2] = xp.where(inside & ~wrong, label, b)
    leap = xp.full(states.shape, -xp.inf)
    leap[:, 3::2] = xp.where(states[:, 3::2] != states[:, 1:-2:2], 0.0, -xp.inf)
    place, last = xp.arange(2 * L + 1), 2 * lengths[:, None]
    start = xp.where((place < 2) & (place <= last), 0.0, -xp.inf)
    if xp is not np:  # a check would wait for the GPU; there the loss becomes nan
        wrong = wrong.any(axis=1) | (lengths < 0) | (lengths > L) | (steps < 0) | (steps > T)
        start = xp.where(wrong[:, None], xp.nan, start)
    return states, leap, start, xp.where((place <= last) & (place >= last - 1), 0.0, -xp.inf)


def _check_labels(label: Any, wrong: Any, lengths: tuple, C: int, b: int) -> None:
    """MXNetError for lengths or classes out of range."""
    for name, counts, most in lengths:
        if label.size and not (counts.min() >= 0 and counts.max() <= most):
            raise MXNetError(f"CTCLoss: {name}_lengths must be in [0, {most}], got {counts}")
    if wrong.any():
        raise MXNetError(
            f"CTCLoss: labels must be classes in [0, {C}) other than the blank, {b}; "
            f"got {label[wrong][0]}"
        )


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


CTCLoss.gradient("y")(lambda g, y: (g[0].reshape((1, -1, 1)) * y[1], None, None, None))
