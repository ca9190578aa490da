"""Connectionist temporal classification (CTC): loss of a sequence whose alignment is unknown.

>>> from d2lmini import nd
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
alpha[t, s] sums the paths that are in state s after step t; beta[t, s] sums their continuations.
Both are sums over two or three neighbours. Since probabilities of long sequences are tiny, all sums
use logarithms, in float64. Source: A. Graves et al., "Connectionist Temporal Classification"
(2006).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.core import Spec, op
from d2lmini.ops.places import scatter_add
from d2lmini.ops.softmax import log_softmax


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
    check_shape("label", label, (N, label.shape[1]), why=f"data is (T, N, C) = {data.shape}")
    if T < 1 or C < 1:
        raise MXNetError(f"data needs a step and a class at least, got (T, N, C) = {data.shape}")
    if label.shape[1] > T:
        raise MXNetError(
            f"label (N, L) = {label.shape} has room for more letters than data (T, N, C) = "
            f"{data.shape} has steps; need L <= T"
        )
    data_lengths, label_lengths = _sort_out(
        data_lengths, label_lengths, use_data_lengths, use_label_lengths
    )
    for name, given, wanted in (
        ("data_lengths", data_lengths, use_data_lengths),
        ("label_lengths", label_lengths, use_label_lengths),
    ):
        check_optional(name, given, wanted, f"use_{name}={wanted}")
        check_shape(name, given, (N,), why=f"data is (T, N, C) = {data.shape}")
    return [Spec((N,), data.dtype), Spec((T, N, 2 * label.shape[1] + 1), "float64")]


def _lengths_used(attrs: dict[str, Any]) -> tuple[str, ...]:
    names = ("data_lengths", "label_lengths")
    return tuple([name for name in names if attrs[f"use_{name}"]])


def _sort_out(first: Any, second: Any, use_first: bool, use_second: bool) -> tuple[Any, Any]:
    """A single input of lengths belongs to the labels if only label lengths are used."""
    return (None, first) if use_second and not use_first and second is None else (first, second)


class _Lattice(NamedTuple):
    """The states of every sequence, on which `_forward` and `_backward` work.

    states (N, S)     the class of each state; blank beyond the last state
    leap   (N, S)     0 where a path may skip the blank before the state, else -inf
    last   (N,)       2 L: the state of the final blank of each label of length L
    steps  (N,)       number of time steps of each sequence
    start  (N, S)     0 in the first two states, where paths begin, else -inf
    end    (N, S)     0 in the last two, where they end, else -inf
    """

    states: Any
    leap: Any
    last: Any
    steps: Any
    start: Any
    end: Any


def _lattice(
    xp: Any, shape: tuple[int, ...], label: Any, data_lengths: Any, label_lengths: Any, blank: str
) -> _Lattice:
    T, N, C = shape
    L = label.shape[1]
    label = label.astype("int64")
    if label_lengths is None:
        padding = label == (0 if blank == "first" else -1)
        lengths = xp.where(padding.any(axis=1), padding.argmax(axis=1), L)
    else:
        lengths = label_lengths.astype("int64")
    steps = xp.full(N, T) if data_lengths is None else data_lengths.astype("int64")
    b = 0 if blank == "first" else C - 1
    inside = xp.arange(L) < lengths[:, None]
    wrong = inside & ((label < 0) | (label >= C) | (label == b))
    if xp is np:
        _check(label, wrong, (("label", lengths, L), ("data", steps, T)), C, b)
    states = xp.full((N, 2 * L + 1), b)
    states[:, 1::2] = xp.where(inside & ~wrong, label, b)
    minus_inf = -xp.inf
    leap = xp.full(states.shape, minus_inf)
    leap[:, 3::2] = xp.where(states[:, 3::2] != states[:, 1:-2:2], 0.0, minus_inf)
    place, last = xp.arange(2 * L + 1), 2 * lengths[:, None]
    start = xp.where((place < 2) & (place <= last), 0.0, minus_inf)
    if xp is not np:  # a check would wait for the GPU; there the loss becomes nan
        wrong = wrong.any(axis=1) | (lengths < 0) | (lengths > L) | (steps < 0) | (steps > T)
        start = xp.where(wrong[:, None], xp.nan, start)
    end = xp.where((place <= last) & (place >= last - 1), 0.0, minus_inf)
    return _Lattice(states, leap, last[:, 0], steps, start, end)


def _check(label: Any, wrong: Any, lengths: tuple, C: int, b: int) -> None:
    """MXNetError for lengths or classes out of range."""
    for name, counts, most in lengths:
        if label.size and not (counts.min() >= 0 and counts.max() <= most):
            raise MXNetError(f"CTCLoss: {name}_lengths must be in [0, {most}], got {counts}")
    if wrong.any():
        raise MXNetError(
            f"CTCLoss: labels must be classes in [0, {C}) other than the blank, {b}; "
            f"got {label[wrong][0]}"
        )


def _emissions(xp: Any, data: Any, states: Any) -> tuple[Any, Any]:
    """log softmax(data), (T, N, C), and its value at the class of each state, (T, N, S)."""
    log_p = log_softmax.compute(xp, data.astype("float64"))
    return log_p, xp.take_along_axis(log_p, states[None], axis=2)


def _log_likelihood(xp: Any, lattice: _Lattice, alpha: Any) -> Any:
    """log of the probability of each label, (N,); -inf where no path of that length spells it."""
    N = len(lattice.steps)
    final = alpha[xp.maximum(lattice.steps - 1, 0), xp.arange(N)] + lattice.end  # (N, S)
    largest = final.max(axis=1, keepdims=True)
    largest = xp.where(largest == -xp.inf, 0.0, largest)
    total = xp.log(xp.exp(final - largest).sum(axis=1)) + largest[:, 0]
    return xp.where(lattice.steps > 0, total, -xp.inf)


@op(
    aliases=["ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"], infer=_infer,
    outputs=lambda **_: 1, optional=_lengths_used, output_names=("output0",), mxnet_outputs=2,
    free_dtypes=("label", "data_lengths", "label_lengths"),
    flops=lambda data, label, *_, out, **__: 5.0 * data.size
    + 80.0 * data.shape[0] * label.size,
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
    loss is nan instead). Backward keeps alpha (T, N, 2 L + 1). Cost: about 40 FLOPs for each state
    and step.
    """
    data_lengths, label_lengths = _sort_out(
        data_lengths, label_lengths, use_data_lengths, use_label_lengths
    )
    lattice = _lattice(xp, data.shape, label, data_lengths, label_lengths, blank_label)
    _, emit = _emissions(xp, data, lattice.states)
    alpha = xp.empty(emit.shape)
    alpha[0] = lattice.start + emit[0]
    for t in range(1, len(alpha)):
        before, now = alpha[t - 1], alpha[t]
        now[:] = before
        now[:, 1:] = xp.logaddexp(now[:, 1:], before[:, :-1])
        now[:, 2:] = xp.logaddexp(now[:, 2:], before[:, :-2] + lattice.leap[:, 2:])
        now += emit[t]
    total = _log_likelihood(xp, lattice, alpha)
    return xp.where(total == -xp.inf, 0.0, -total).astype(data.dtype), alpha


@CTCLoss.gradient(saves="y data label data_lengths label_lengths")
def _(
    g, y, data, label, data_lengths, label_lengths, *, use_data_lengths, use_label_lengths,
    blank_label,
):  # fmt: skip
    lengths = [length for length in (data_lengths, label_lengths) if length is not None]
    dx = _ctc_grad(
        g[0], y[1], data, label, *lengths, use_data_lengths=use_data_lengths,
        use_label_lengths=use_label_lengths, blank_label=blank_label,
    )  # fmt: skip
    return (dx, *[None] * (1 + len(lengths)))


@op(
    infer=lambda g, alpha, data, *_, **__: data, grad=None,
    flops=lambda g, alpha, data, *_, out, **__: 5.0 * data.size + 60.0 * alpha.size,
)  # fmt: skip
def _ctc_grad(
    xp, g, alpha, data, label, data_lengths=None, label_lengths=None, *, use_data_lengths: bool,
    use_label_lengths: bool, blank_label: str,
):  # fmt: skip
    """g (softmax(data) - q), where q[t, n, c] is the share of the paths that are in c at step t.

    q sums alpha beta / p over the states of class c. (There is no second-order gradient.)
    """
    data_lengths, label_lengths = _sort_out(
        data_lengths, label_lengths, use_data_lengths, use_label_lengths
    )
    T, N, C = data.shape
    lattice = _lattice(xp, data.shape, label, data_lengths, label_lengths, blank_label)
    log_p, emit = _emissions(xp, data, lattice.states)
    total = _log_likelihood(xp, lattice, alpha)
    possible = total != -xp.inf
    share = xp.empty(alpha.shape)
    beta = xp.full(alpha.shape[1:], -xp.inf)
    for t in range(T - 1, -1, -1):
        if t < T - 1:
            after = beta + emit[t + 1]
            beta = after.copy()
            beta[:, :-1] = xp.logaddexp(beta[:, :-1], after[:, 1:])
            beta[:, :-2] = xp.logaddexp(beta[:, :-2], after[:, 2:] + lattice.leap[:, 2:])
        beta = xp.where((lattice.steps - 1 == t)[:, None], lattice.end, beta)
        share[t] = alpha[t] + beta
    share = xp.exp(share - xp.where(possible, total, 0.0)[:, None])
    cells = xp.arange(T * N).reshape(T, N, 1) * C + lattice.states
    q = scatter_add(xp, cells, share, (T, N, C), None)
    dx = xp.exp(log_p) - q
    counts = possible & (xp.arange(T)[:, None] < lattice.steps)  # (T, N)
    return xp.where(counts[:, :, None], dx * g[:, None], 0.0).astype(data.dtype)
