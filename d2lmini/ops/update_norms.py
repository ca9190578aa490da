"""Layer-wise optimizer updates (LARS, LAMB): rates proportional to the norm of the weight.

LARS and LAMB scale the step of each parameter by |weight| / |step|, so that large batches may use
large steps. The norms are separate reductions; the ops around them are

    lars    multi_sum_sq of weights and gradients -> multi_lars -> preloaded_multi_sgd_update
    lamb    lamb_update_phase1 -> norms of weight and step -> lamb_update_phase2

The module also has the test for finite gradients that dynamic loss scaling uses.

>>> from d2lmini import nd
>>> nd.multi_sum_sq(nd.array([1, 2]), nd.array([[3, 4]]), num_arrays=2)
<BLANKLINE>
[ 5. 25.]
<NDArray 2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.ops.checks import check_float, refuse_gradient
from d2lmini.ops.chunking import place
from d2lmini.ops.core import Spec, declare_op, op
from d2lmini.ops.signature import signature_of, with_signature
from d2lmini.ops.update import like_weight, like_weight32, mixed, update

# -- LAMB ------------------------------------------------------------------------------------------


@update(15, always_written=("wd",))
def lamb_update_phase1(
    xp, w, g, mean, var, *, wd, t: int, beta1: float = 0.9, beta2: float = 0.999,
    epsilon: float = 1e-6, bias_correction: bool = True,
):  # fmt: skip
    """The direction of step t: mean / (sqrt(var) + epsilon) + wd * weight, with running means of
    the clipped gradient and its square, with bias correction if bias_correction.
    After You et al. (2019)."""
    m = mean = beta1 * mean + (1 - beta1) * g
    v = var = beta2 * var + (1 - beta2) * g * g
    if bias_correction:
        m, v = mean / (1 - beta1**t), var / (1 - beta2**t)
    return m / (xp.sqrt(v) + epsilon) + wd * w, mean, var


def _phase2(weight: Spec, g: Spec, r1: Spec, r2: Spec, *weight32: Spec, **_attrs: Any) -> Spec:
    if weight32:
        like_weight32(weight, weight, g, *weight32)
    else:
        like_weight(weight, g)
    if r1.shape[:1] != (1,) or r2.shape[:1] != (1,):
        raise MXNetError(f"r1 and r2 are (1, ...), got shapes {r1.shape} and {r2.shape}")
    return weight


@op(infer=_phase2, elementwise=True, flops=2, grad=None, same_shape=False)
def lamb_update_phase2(
    xp, weight, g, r1, r2, *, lr: float, lower_bound: float = -1.0, upper_bound: float = -1.0,
    out=None,
):  # fmt: skip
    """weight - lr * r1 / r2 * g, with r1 = |weight| clipped to the bounds that are >= 0 and
    r2 = |g|. The ratio is 1 where either is 0. Both are the first element of their array."""
    r1, r2 = r1.reshape(-1)[0], r2.reshape(-1)[0]
    r1 = xp.maximum(r1, lower_bound) if lower_bound >= 0 else r1
    r1 = xp.minimum(r1, upper_bound) if upper_bound >= 0 else r1
    ratio = xp.where((r1 == 0) | (r2 == 0), 1, r1 / r2).astype(g.dtype)
    return xp.subtract(weight, g * (ratio * g.dtype.type(lr)), out=out)


def _phase1_wide(weight: Spec, *others: Spec, **attrs) -> Spec:
    return Spec(like_weight32(weight, *others).shape, np.float32)


_phase1 = signature_of(lamb_update_phase1.compute)


@op(
    "mp_lamb_update_phase1", mutates=["mean", "var"], infer=_phase1_wide, elementwise=True,
    flops=16, grad=None, always_written=("wd",),
)  # fmt: skip
@with_signature(_phase1._replace(inputs=(*_phase1.inputs, "weight32"), n_required=5))
def _(xp, weight, grad, mean, var, weight32, **attrs):
    """`lamb_update_phase1` in mixed precision; the direction is float32."""
    grad = grad.astype(weight32.dtype)
    return lamb_update_phase1.compute(xp, weight32, grad, mean, var, **attrs)


declare_op(mixed(lamb_update_phase2, _phase2, same_shape=False))


# -- LARS ------------------------------------------------------------------------------------------


def _alike(lrs: Spec, *others: Spec, **_attrs: Any) -> Spec:
    if lrs.dtype != np.float32 or {lrs, *others} != {lrs}:
        raise MXNetError(f"all arrays must have one spec, of dtype float32; got {(lrs, *others)}")
    return lrs


@refuse_gradient
@op(infer=_alike, elementwise=True, flops=10)
def multi_lars(
    xp, lrs, weights_sum_sq, grads_sum_sq, wds, *, eta: float, eps: float,
    rescale_grad: float = 1.0, out=None,
):  # fmt: skip
    """One learning rate per parameter: lr * eta * |w| / (rescale_grad * |g| + wd * |w| + eps), or
    lr where |w| or |g| is 0. After You et al. (2017)."""
    w = xp.sqrt(weights_sum_sq)
    g = xp.sqrt(grads_sum_sq) * rescale_grad
    rate = lrs * eta * w / (g + wds * w + eps)
    rate = xp.where((w > 0) & (grads_sum_sq > 0), rate, lrs)
    return place(xp, rate, rate.dtype, out)


def _one(*data: Spec, num_arrays: int = 1, **_attrs) -> Spec:
    if num_arrays != len(data):
        raise MXNetError(f"num_arrays={num_arrays}, but {len(data)} arrays came")
    for spec in data:
        check_float(spec)
    return Spec((1,), np.float32)


def _one_each(*data: Spec, num_arrays: int) -> Spec:
    return Spec((num_arrays,), _one(*data, num_arrays=num_arrays).dtype)


def _reads_all(*data: Spec, **_: Any) -> float:
    return sum(d.size for d in data)


def _float32(attrs: dict[str, Any], data: Any, n: int) -> list[Any]:
    return [np.dtype("float32")]


def _array_names(attrs: dict[str, Any]) -> list[str]:
    return [f"array_{i}" for i in range(attrs["num_arrays"])]


@refuse_gradient
@op(
    infer=_one_each, flops=lambda *data, **_: 2 * _reads_all(*data), output_dtypes=_float32,
    always_written=("num_arrays",), counted_inputs=_array_names,
)  # fmt: skip
def multi_sum_sq(xp, *data, num_arrays: int):
    """The sum of squares of each of the `num_arrays` arrays, as one float32 vector."""

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


# -- finite gradients ------------------------------------------------------------------------------


@refuse_gradient
@op(
    infer=_one, flops=_reads_all, reads_out=True, counted_inputs=_array_names,
    output_dtypes=_float32, free_dtypes=("data",),
)  # fmt: skip
def multi_all_finite(xp, *data, num_arrays: int = 1, init_output: bool = True, out=None):
    """`all_finite` of all the arrays together; num_arrays says how many."""
    finite = xp.isfinite(data[0]).all()
    for x in data[1:]:
        finite = finite & xp.isfinite(x).all()
    if out is None:
        out = xp.empty(1, xp.float32)
    elif not init_output:
        finite = finite & (out[0] != 0)
    out[0] = finite
    return out


@refuse_gradient
@op(infer=_one, flops=_reads_all, reads_out=True, output_dtypes=_float32)
def all_finite(xp, data, *, init_output: bool = True, out=None):
    """1 if all elements are finite, else 0: shape (1,), float32. With init_output=False an `out`
    that is 0 stays 0, so that calls can be chained."""
    return multi_all_finite.compute(xp, data, init_output=init_output, out=out)
