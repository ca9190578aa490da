"""Optimizer updates of all parameters at once: one task in place of one per parameter.

A net has tens of parameters, most of them tiny. A separate operation for each costs more in pushing
than in computing. Large parameters gain when their chunks stay in the cache between the few passes
of a formula, and when all cores share them. So the optimizers push a single `_fused_update`: a list
of steps, each an op of `update` with its attributes, and the arrays of all
steps in sequence. It processes chunks whose boundaries depend on sizes alone.

    steps   [Step(sgd_mom_update, {"lr": 0.1, "momentum": 0.9}), Step(sgd_mom_update, ...)]
    data    weight0, grad0, mom0, weight1, grad1, mom1

>>> from d2lmini import nd
>>> from d2lmini.ops.core import invoke, registry
>>> weight = nd.ones(2)
>>> steps = [UpdateStep(registry["sgd_update"], {"lr": 0.5})]
>>> invoke(registry["_fused_update"], (weight, nd.array([1, 2])), {"steps": steps})
[]
>>> weight
<BLANKLINE>
[0.5 0. ]
<NDArray 2 @cpu(0)>

For slow links KVStore can compress gradients to 2 bits an element.
Each element becomes +threshold, -threshold or 0, four elements to a byte: a sixteenth of float32.
The sender keeps the quantization error in a residual and adds it to the next gradient, so nothing
is lost in the long run. After Seide et al., "1-Bit Stochastic Gradient Descent" (2014), and Strom,
"Scalable Distributed DNN Training" (2015).

>>> residual = nd.zeros(3)
>>> sent = registry["_quantize_2bit"](nd.array([0.2, 0.7, -3]), residual, threshold=0.5)
>>> registry["_dequantize_2bit"](sent, shape=(3,), threshold=0.5).asnumpy().tolist()
[0.0, 0.5, -0.5]
>>> residual
<BLANKLINE>
[ 0.2         0.19999999 -2.5       ]
<NDArray 3 @cpu(0)>
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.ops.core import DType, Op, Shape, Spec, op
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.update import Step, bind

#: Elements of a block: all arrays of a step and its temporaries stay in the L2 cache.
BLOCK = 1 << 16


class UpdateStep(NamedTuple):
    """One parameter's update: the op (elementwise, changing its states in place) and attributes."""

    op: Op
    attrs: dict[str, Any]

    @property
    def width(self) -> int:
        """Number of arrays that the step takes."""
        return len(self.op.input_names)


def pieces_of(sizes: Sequence[int], grain: int = GRAIN) -> list[list[tuple[int, int, int]]]:
    """Split arrays of these sizes into chunks of at most about `grain` elements; small arrays share
    a chunk. Each chunk is a list of (array, begin, end).

    >>> pieces_of([10, 1, 2], grain=4)
    [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 10)], [(1, 0, 1), (2, 0, 2)]]
    """
    pieces: list[list[tuple[int, int, int]]] = []
    together: list[tuple[int, int, int]] = []
    room = grain
    for i, size in enumerate(sizes):
        if size >= grain:
            n = -(-size // grain)
            pieces += [[(i, size * k // n, size * (k + 1) // n)] for k in range(n)]
            continue
        if size > room:
            pieces.append(together)
            together, room = [], grain
        together.append((i, 0, size))
        room -= size
    return [*pieces, together] if together else pieces


def over_pieces(arrays: Sequence[Any], body: Callable[[int, int, int], None]) -> None:
    """Call body(array, begin, end) for all chunks of these arrays, on all cores."""
    pieces = pieces_of([a.size for a in arrays])

    def chunk(k: int) -> None:
        for piece in pieces[k]:
            body(*piece)

    parallel_for(len(pieces), chunk)


@with_kernels
def run(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple]) -> None:
    """Run all steps in place, in blocks, on all cores. groups: the arrays of each step, weight
    first."""
    if xp is not np:
        run.kernels[kind_of(xp)](xp, steps, groups)
        return
    weights = [group[0] for group in groups]
    updates: list[Step] = []
    for i, step in enumerate(steps):
        dtype = weights[i].dtype
        if i and step == steps[i - 1] and dtype == weights[i - 1].dtype:
            updates.append(updates[-1])
        else:
            updates.append(bind(step.op, xp, dtype, step.attrs))

    def body(i: int, begin: int, end: int) -> None:
        weight, arrays = weights[i], (*groups[i], weights[i])
        if end - begin == weight.size <= BLOCK and weight.ndim:
            updates[i](*arrays)
            return
        flat = [a.reshape(-1) for a in arrays]
        for at in range(begin, end, BLOCK):
            updates[i](*[a[at : min(at + BLOCK, end)] for a in flat])

    over_pieces(weights, body)


def groups_of(steps: Sequence[UpdateStep], data: Sequence[Any]) -> list[tuple]:
    """The arrays of each step."""
    groups, at = [], 0
    for step in steps:
        width = step.width
        groups.append(tuple(data[at : at + width]))
        at += width
    return groups


def _written(n: int, attrs: dict[str, Any]) -> list[int]:
    """Weights, and what the ops of the steps change."""
    positions, at = [], 0
    for step in attrs["steps"]:
        positions += [at, *(at + i for i in step.op.mutates)]
        at += step.width
    return positions


def _infer_steps(*data: Spec, steps: Sequence[UpdateStep], **_attrs: Any) -> tuple:
    """No output, if each step's arrays are as its op needs them. (A plan depends on the ops of the
    steps, too, so this is checked once per plan.)"""
    expected = sum(step.width for step in steps)
    if expected != len(data):
        raise MXNetError(
            f"the updates take {expected} arrays, got {len(data)}: an optimizer's states were made "
            "with other settings, as momentum or multi_precision; make a new Trainer to change them"
        )
    for step, specs in zip(steps, groups_of(steps, data)):
        step.op.infer(*specs)
    return ()


@op(infer=_infer_steps, outputs=0, mutates=_written, flops=0, grad=None)
def _fused_update(xp, *data, steps):
    """Run each of `steps` in place, on its arrays; no output."""
    run(xp, steps, groups_of(steps, data))
    return ()


def _one_factor(factor: Spec, *data: Spec) -> tuple:
    if factor.size != 1:
        raise MXNetError(f"the factor is an array of size 1, got shape {factor.shape}")
    return ()


@op(infer=_one_factor, outputs=0, mutates=lambda n, attrs: range(1, n), flops=0, grad=None)
def _scale_arrays(xp, *data):
    """Multiply all arrays but the first, in place, by the first, which has one element; no output.
    `gluon.utils.clip_global_norm` clips gradients to a common norm with this op."""
    factor, *arrays = data
    flat = [a.reshape(-1) for a in arrays]

    def scale(x: Any) -> None:
        x *= factor.reshape(-1).astype(x.dtype, copy=False)

    if xp is not np:
        for x in flat:
            scale(x)
        return ()
    over_pieces(flat, lambda i, begin, end: scale(flat[i][begin:end]))
    return ()


# -- sums of squares, and finite gradients ---------------------------------------------------------


@op(
    infer=lambda *data: Spec((len(data),), np.float32), grad=None,
    flops=lambda *data, **_: 2 * sum(x.size for x in data),
)  # fmt: skip
def _sums_of_squares(xp, *data):
    """The sum of squares of each array, as one float32 vector."""

    def sum_sq(x: Any) -> Any:
        x = x.astype(xp.float32, copy=False)
        return xp.dot(x, x)

    flat = [x.reshape(-1) for x in data]
    if xp is not np:
        return xp.stack([sum_sq(x) for x in flat])
    cuts = [(i, b) for i, x in enumerate(flat) for b in range(0, max(x.size, 1), GRAIN)]
    parts = [xp.zeros((), xp.float32)] * len(cuts)

    def piece(k: int) -> None:
        i, begin = cuts[k]
        parts[k] = sum_sq(flat[i][begin : begin + GRAIN])

    parallel_for(len(cuts), piece)
    sums = xp.zeros(len(data), xp.float32)
    for (i, _), part in zip(cuts, parts, strict=True):
        sums[i] += part
    return sums


@op(
    infer=lambda *data: Spec((1,), np.float32), grad=None, free_dtypes=("data",),
    flops=lambda *data, **_: sum(x.size for x in data),
)  # fmt: skip
def _are_finite(xp, *data):
    """1 if no element of the arrays is inf or nan, else 0."""
    finite = xp.isfinite(data[0]).all()
    for x in data[1:]:
        finite = finite & xp.isfinite(x).all()
    return finite.astype(xp.float32).reshape(1)


def _infer_pack(grad: Spec, residual: Spec, **_attrs: Any) -> Spec:
    return Spec((-(-grad.size // 4),), "uint8")


@op("_quantize_2bit", infer=_infer_pack, mutates=["residual"], flops=24, grad=None)
def quantize_2bit(xp, grad, residual, *, threshold: float, out=None):
    """residual += grad; the code of an element is 1 where it is >= threshold, 2 where it is
    <= -threshold, else 0. The decoded value is subtracted from the residual.

    Returns uint8 ((size + 3) / 4,), the first element in the lowest bits."""
    residual += grad
    high, low = residual >= threshold, residual <= -threshold
    step = residual.dtype.type(threshold)
    residual -= high * step
    residual += low * step
    codes = xp.zeros((-(-grad.size // 4), 4), "uint8")
    codes.reshape(-1)[: grad.size] = (high + 2 * low.astype("uint8")).reshape(-1)
    codes <<= xp.arange(0, 8, 2, dtype="uint8")
    return xp.add.reduce(codes, axis=1, dtype="uint8", out=out)


def _infer_unpack(data: Spec, *, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    return Spec(shape, dtype)


@op("_dequantize_2bit", infer=_infer_unpack, flops=3, grad=None)
def dequantize_2bit(xp, data, *, shape: Shape, threshold: float, dtype: DType = "float32"):
    """Decode the result of `_quantize_2bit` to an array of `shape`: threshold, -threshold or 0."""
    values = xp.array([0, threshold, -threshold, 0], dtype)
    codes = (data[:, None] >> xp.arange(0, 8, 2, dtype="uint8")) & 3
    return values[codes].reshape(-1)[: math.prod(shape)].reshape(shape)
