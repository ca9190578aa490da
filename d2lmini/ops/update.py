"""Optimizer updates of one parameter: gradient descent, momentum, sign and adaptive methods.

    weight = nd.ones(3)
    mom = nd.zeros(3)
    nd.sgd_mom_update(weight, grad, mom, lr=0.1, momentum=0.9, out=weight)

An update op returns the new weight; `out=weight` updates in place. The states (`mom`) always change
in place. An op is declared by its formula, from which `update_program` makes a program of calls in
place. The hyper-parameters `lr`, `wd` (weight decay), `rescale_grad` and `clip_gradient` belong to
all ops; a formula names those that it uses itself. There are two ways of clipping to
[-clip_gradient, clip_gradient], where that is >= 0, and of decay, as in MXNet; the name of the
gradient in the formula says which:

    g = clip(rescale_grad * grad)                    decay is added to the step
    h = clip(rescale_grad * grad + wd * weight)      decay is part of the gradient

All arrays have the shape and dtype of the weight. In mixed precision (`mixed_form`) weight and
gradient are float16, the update computes on `weight32`, and the states are float32. `lazy_update`,
for MXNet's sparse gradients, is accepted and has no effect.


>>> from d2lmini import nd
>>> weight, grad, mom = nd.ones(2), nd.array([1, 2]), nd.zeros(2)
>>> nd.sgd_mom_update(weight, grad, mom, lr=0.5, momentum=0.9, out=weight)
<BLANKLINE>
[0.5 0. ]
<NDArray 2 @cpu(0)>
>>> mom
<BLANKLINE>
[-0.5 -1. ]
<NDArray 2 @cpu(0)>

**All parameters at once.** A net has tens of parameters, most of them tiny. A separate operation
for each costs more in pushing than in computing. Large parameters gain when their chunks stay in
the cache between the few passes of a formula, and when all cores share them. So the optimizers push
a single `_fused_update`: a list of steps, each an op of this module with its attributes, and the
arrays of all steps in sequence. It processes chunks whose boundaries depend on sizes alone.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.ops.chunking import cut
from d2lmini.ops.core import Spec, declaring, op
from d2lmini.ops.kernels import with_kernels
from d2lmini.ops.update_program import Formula, Step, Update, limit


def update(flops: float, **rules: Any) -> Any:
    """Declare the op of a formula. rules: those of `Formula`, and as for `Op`."""
    return declaring(Formula, None, {"flops": flops, **rules})


# -- gradient descent ------------------------------------------------------------------------------


@update(3)
def sgd_update(xp, w, g, *, lr, wd, lazy_update: bool = True):
    """w - lr * (g + wd * w)"""
    return w - (lr * g + lr * wd * w)


@update(5)
def sgd_mom_update(xp, w, g, mom, *, lr, wd, momentum: float = 0.0, lazy_update: bool = True):
    """mom = momentum * mom - lr * (g + wd * w), then w + mom. After Polyak (1964)."""
    mom = momentum * mom - (lr * g + lr * wd * w)
    return w + mom, mom


@update(7)
def nag_mom_update(xp, w, g, mom, *, lr, wd, momentum: float = 0.0):
    """With d = lr * (g + wd * w): mom = momentum * mom - d, then w + momentum * mom - d.
    After Nesterov (1983): the step looks ahead along the momentum.

    (MXNet 1.9 uses the new weight for the momentum's weight decay if the update is in place, else
    the old weight; here it is always the old weight.)"""
    d = lr * g + lr * wd * w
    mom = momentum * mom - d
    return w + (momentum * mom - d), mom


# -- sign methods ----------------------------------------------------------------------------------


@update(3)
def signsgd_update(xp, w, grad, *, lr, wd):
    """(1 - lr * wd) * w - lr * sign(grad); rescaling and clipping do not change a sign.
    After Bernstein et al. (2018)."""
    return (1 - lr * wd) * w - lr * xp.sign(grad)


@update(8)
def signum_update(xp, w, g, mom, *, lr, wd, momentum: float = 0.0, wd_lh: float = 0.0):
    """mom = momentum * mom - (1 - momentum) * (g + wd * w), then (1 - lr * wd_lh) * w +
    lr * sign(mom): weight decay `wd` applies to the momentum, `wd_lh` to the weight directly."""
    mom = momentum * mom - ((1 - momentum) * g + (1 - momentum) * wd * w)
    return (1 - lr * wd_lh) * w + lr * xp.sign(mom), mom


@update(12)
def adam_update(
    xp, w, h, mean, var, *, lr, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
    lazy_update: bool = True,
):  # fmt: skip
    """mean = beta1 * mean + (1 - beta1) * h; var = beta2 * var + (1 - beta2) * h^2;
    w - lr * mean / (sqrt(var) + epsilon).

    After Kingma and Ba (2014); the `lr` that the optimizer passes includes the bias correction of
    mean and var."""
    mean = beta1 * mean + (1 - beta1) * h
    var = beta2 * var + (1 - beta2) * h * h
    return w - lr * (mean / (xp.sqrt(var) + epsilon)), mean, var


# -- sums and means of squares ---------------------------------------------------------------------


@update(9)
def _adagrad_update(xp, w, g, history, *, lr, wd, float_stable_eps: float = 1e-7):
    """history += g^2; w - lr * (g / sqrt(history + float_stable_eps) + wd * w).
    After Duchi et al. (2011)."""
    history = history + g * g
    return w - (lr * g / xp.sqrt(history + float_stable_eps) + lr * wd * w), history


@update(11)
def rmsprop_update(
    xp, w, h, n, *, lr, gamma1: float = 0.95, epsilon: float = 1e-8, clip_weights: float = -1.0
):
    """n = gamma1 * n + (1 - gamma1) * h^2; w - lr * h / sqrt(n + epsilon), clipped to
    [-clip_weights, clip_weights] where that is >= 0. After Tieleman and Hinton (2012)."""
    n = gamma1 * n + (1 - gamma1) * h * h
    return limit(xp, w - lr * h / xp.sqrt(n + epsilon), clip_weights), n


@update(17)
def rmspropalex_update(
    xp, w, h, n, g, delta, *, lr, gamma1: float = 0.95, gamma2: float = 0.9,
    epsilon: float = 1e-8, clip_weights: float = -1.0,
):  # fmt: skip
    """n and g are running means (gamma1) of h^2 and h; delta = gamma2 * delta -
    lr * h / sqrt(n - g^2 + epsilon), then w + delta. After Graves (2013)."""
    n = gamma1 * n + (1 - gamma1) * h * h
    g = gamma1 * g + (1 - gamma1) * h
    delta = gamma2 * delta - lr * h / xp.sqrt(n - g * g + epsilon)
    return limit(xp, w + delta, clip_weights), n, g, delta


@update(16, changes=["grad", "acc_g", "acc_delta"])
def _adadelta_update(
    xp, w, grad, acc_g, acc_delta, *, wd, rescale_grad, clip_gradient, rho: float = 0.9,
    epsilon: float = 1e-5,
):  # fmt: skip
    """acc_g is the running mean (rho) of g^2; d = g * sqrt((acc_delta + epsilon) / (acc_g +
    epsilon)); acc_delta the running mean of d^2; w - d - wd * w. After Zeiler (2012).

    The gradient itself becomes rescale_grad * grad, as in MXNet's AdaDelta."""
    grad = rescale_grad * grad
    g = limit(xp, grad, clip_gradient)
    acc_g = rho * acc_g + (1 - rho) * g * g
    d = g * xp.sqrt((acc_delta + epsilon) / (acc_g + epsilon))
    acc_delta = rho * acc_delta + (1 - rho) * d * d
    return w - (d + wd * w), grad, acc_g, acc_delta


# -- variants of Adam ------------------------------------------------------------------------------


@update(11)
def _adamax_update(xp, w, h, mean, largest, *, lr, beta1: float = 0.9, beta2: float = 0.999):
    """mean as in `adam_update`; largest = max(beta2 * largest, |h|); w - lr * mean / largest."""
    mean = beta1 * mean + (1 - beta1) * h
    largest = xp.maximum(beta2 * largest, xp.abs(h))
    return w - lr * (mean / largest), mean, largest


@update(20, clip="clip_grad")
def ftml_update(
    xp, w, h, d, v, z, *, lr, t: int, beta1: float = 0.6, beta2: float = 0.999,
    epsilon: float = 1e-8,
):  # fmt: skip
    """In step t: v as `var` in `adam_update`; e = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) +
    epsilon); z = beta1 * z + (1 - beta1) * h - (e - beta1 * d) * w; d = e; the new weight is
    -z / d. After Zheng and Kwok (2017), "follow the moving leader"."""
    v = beta2 * v + (1 - beta2) * h * h
    e = (1 - beta1**t) / lr * (xp.sqrt(v / (1 - beta2**t)) + epsilon)
    z = beta1 * z + (1 - beta1) * h - (e - beta1 * d) * w
    return -(z / e), e, v, z


@update(20)
def ftrl_update(xp, w, g, z, n, *, lr, wd, lamda1: float = 0.01, beta: float = 1.0):
    """z += g - (sqrt(n + g^2) - sqrt(n)) / lr * w; n += g^2; the new weight is 0 where
    |z| <= lamda1, else (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd).
    After McMahan et al. (2013), "follow the regularized leader"."""
    before = xp.sqrt(n)
    n = n + g * g
    root = xp.sqrt(n)
    z = z + g - (root - before) / lr * w
    shrunk = xp.maximum(xp.abs(z) - lamda1, 0)
    return -(shrunk * xp.sign(z) / ((beta + root) / lr + wd)), z, n


# -- steps scaled by the norm of the whole weight --------------------------------------------------
#
# LAMB scales the step of each parameter by |weight| / |step|, so that large batches may use large
# steps: `optimizer.LAMB`.


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


#: Elements of a block: all arrays of a step and its temporaries stay in the L2 cache.
BLOCK = 1 << 16


class UpdateStep(NamedTuple):
    """One parameter's update: the op (elementwise, changing its states in place) and attributes."""

    op: Update
    attrs: dict[str, Any]


def over_pieces(arrays: Sequence[Any], body: Callable[[int, int, int], None]) -> None:
    """Call body(array, begin, end) for all arrays, in chunks of at most `GRAIN` elements, on all
    cores; small arrays share a chunk.

    >>> over_pieces([np.empty(2), np.empty(3)], print)
    0 0 2
    1 0 3
    """
    chunks: list[list[tuple[int, int, int]]] = [[]]
    room = GRAIN
    for i, array in enumerate(arrays):
        size = array.size
        if size <= room:
            chunks[-1].append((i, 0, size))
            room -= size
        else:
            n = -(-size // GRAIN)
            chunks += [[(i, size * k // n, size * (k + 1) // n)] for k in range(n)]
            room = GRAIN - size // n

    def run_chunk(k: int) -> None:
        for piece in chunks[k]:
            body(*piece)

    parallel_for(len(chunks), run_chunk)


@with_kernels
def run(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple]) -> None:
    """Run all steps in place, in blocks, on all cores. groups: the arrays of each step, weight
    first."""
    weights = [group[0] for group in groups]
    updates: list[Step] = []
    for i, step in enumerate(steps):
        dtype = weights[i].dtype
        if i and step == steps[i - 1] and dtype == weights[i - 1].dtype:
            updates.append(updates[-1])
        else:
            updates.append(step.op.step(xp, dtype, step.attrs))

    def body(i: int, begin: int, end: int) -> None:
        weight, arrays = weights[i], (*groups[i], weights[i])
        if end - begin == weight.size <= BLOCK and weight.ndim:
            updates[i](*arrays)
            return
        flat = [a.reshape(-1) for a in arrays]
        for at in range(begin, end, BLOCK):
            updates[i](*[a[at : min(at + BLOCK, end)] for a in flat])

    over_pieces(weights, body)


def groups_of(steps: Sequence[UpdateStep], data: Iterable[Any]) -> list[tuple]:
    """The arrays of each step."""
    rest = iter(data)
    return [tuple(islice(rest, step.op.arity)) for step in steps]


def _written(n: int, attrs: dict[str, Any]) -> list[int]:
    """Weights, and what the ops of the steps change."""
    groups = zip(attrs["steps"], groups_of(attrs["steps"], count()))
    return [places[i] for step, places in groups for i in (0, *step.op.mutates)]


def _infer_steps(*data: Spec, steps: Sequence[UpdateStep], **_attrs: Any) -> tuple:
    """No output, if each step's arrays are as its op needs them. (A plan depends on the ops of the
    steps, too, so this is checked once per plan.)"""
    expected = sum(step.op.arity for step in steps)
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

    if xp is np:
        over_pieces(flat, lambda i, begin, end: scale(flat[i][begin:end]))
    else:
        for x in flat:
            scale(x)
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
    cuts = [(i, part) for i, x in enumerate(flat) for part in cut(max(x.size, 1), GRAIN)]
    parts = np.zeros(len(cuts), np.float32)

    def piece(k: int) -> None:
        i, part = cuts[k]
        parts[k] = sum_sq(flat[i][part])

    parallel_for(len(cuts), piece)
    sums = np.zeros(len(data), np.float32)
    np.add.at(sums, [i for i, _ in cuts], parts)
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
