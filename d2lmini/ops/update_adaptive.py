"""Optimizer updates with a learning rate per element, derived from the size of its gradients.

Two ways of clipping and weight decay, as in MXNet; the name in the formula says which:

    g = clip(rescale_grad * grad)                    decay is added to the step
    h = clip(rescale_grad * grad + wd * weight)      decay is part of the gradient

As in `update`, an op returns the new weight (`out=weight` for in place) and changes its states in
place; all arrays have the weight's spec.

>>> from d2lmini import nd
>>> weight, grad, mean, var = nd.ones(2), nd.array([0.1, 20]), nd.zeros(2), nd.zeros(2)
>>> nd.adam_update(weight, grad, mean, var, lr=0.01)       # without its correction of the bias
<BLANKLINE>
[0.96837735 0.96837723]
<NDArray 2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.core import Spec, op
from d2lmini.ops.update import like_weight, update
from d2lmini.ops.update_program import limit


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
def _adagrad_update(xp, w, g, history, *, lr, wd, epsilon: float = 1e-7):
    """history += g^2; w - lr * (g / sqrt(history + epsilon) + wd * w).
    After Duchi et al. (2011)."""
    history = history + g * g
    return w - (lr * g / xp.sqrt(history + epsilon) + lr * wd * w), history


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
# steps. The norms are separate reductions between the two ops.


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


def _phase2(weight: Spec, g: Spec, r1: Spec, r2: Spec, **_attrs: Any) -> Spec:
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
