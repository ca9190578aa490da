"""Optimizer updates with a learning rate per element, derived from the size of its gradients.

Two ways of clipping and weight decay, as in MXNet:

    g = clip(rescale_grad * grad)                    decay is added to the step
    h = clip(rescale_grad * grad + wd * weight)      decay is part of the gradient

As in `update`, an op returns the new weight (`out=weight` for in place) and changes its states in
place; all arrays have the weight's spec. Divisions and roots are elementwise.

>>> from d2lmini import nd
>>> weight, grad, mean, var = nd.ones(2), nd.array([0.1, 20]), nd.zeros(2), nd.zeros(2)
>>> nd.adam_update(weight, grad, mean, var, lr=0.01)       # without its correction of the bias
<BLANKLINE>
[0.96837735 0.96837723]
<NDArray 2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import Spec
from d2lmini.ops.update import decay_grad, like_weight, like_weight32, mixed, scale_grad, update


def over(number: Any, lr: Any) -> Any:
    """number / lr, inf at a rate of 0. On a GPU `lr` may be an array."""
    return number / lr if type(lr) is not float or lr else np.inf


def average(xp, mean, beta, value):
    """mean = beta * mean + (1 - beta) * value, in place. `value` is overwritten."""
    mean *= beta
    value *= 1 - beta
    mean += value


@update(12)
def adam_update(
    xp, weight, grad, mean, var, *, lr: float, beta1: float = 0.9, beta2: float = 0.999,
    epsilon: float = 1e-8, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, lazy_update: bool = True, out=None,
):  # fmt: skip
    """mean = beta1 * mean + (1 - beta1) * h; var = beta2 * var + (1 - beta2) * h^2;
    w - lr * mean / (sqrt(var) + epsilon).

    After Kingma and Ba (2014); the `lr` that the optimizer passes includes the bias correction of
    mean and var."""
    g = decay_grad(xp, grad, rescale_grad, clip_gradient, weight, wd)
    average(xp, var, beta2, g * g)
    average(xp, mean, beta1, g)
    return _step(xp, weight, mean, var, epsilon, lr, out)


def _step(xp, weight, mean, var, epsilon, lr, out):
    """weight - lr * mean / (sqrt(var) + epsilon)"""
    step = xp.sqrt(var)
    step += epsilon
    xp.divide(mean, step, out=step)
    step *= lr
    return xp.subtract(weight, step, out=out)


# -- decoupled weight decay ------------------------------------------------------------------------


def _adamw(weight: Spec, grad: Spec, mean: Spec, var: Spec, *rest: Spec, **_attrs) -> Spec:
    *master, rescale_grad = rest
    rule = like_weight32 if master else like_weight
    rule(weight, grad, mean, var, *master)
    if not rescale_grad.size:
        raise MXNetError(f"rescale_grad needs an element, got shape {rescale_grad.shape}")
    return weight


@update(14)
def _decoupled_adam_update(
    xp, weight, grad, mean, var, *, lr: float, rate: float, beta1: float = 0.9,
    beta2: float = 0.999, epsilon: float = 1e-8, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """Means as in `adam_update`, of g; w - lr * mean / (sqrt(var) + epsilon) - rate * wd * w.
    After Loshchilov and Hutter (2017)."""
    g = scale_grad(xp, grad, rescale_grad, clip_gradient, weight, 0.0)
    average(xp, var, beta2, g * g)
    average(xp, mean, beta1, g)
    return _step(xp, weight * (1 - rate * wd) if wd else weight, mean, var, epsilon, lr, out)


@update(
    14, ["grad", "mean", "var"], "_adamw_update", _adamw, same_shape=False, in_mxnet=True,
    auxiliary=("mean", "var"),
)  # fmt: skip
def adamw_update(
    xp, weight, grad, mean, var, rescale_grad, *, lr: float, eta: float, beta1: float = 0.9,
    beta2: float = 0.999, epsilon: float = 1e-8, wd: float = 0.0, clip_gradient: float = -1.0,
    out=None,
):  # fmt: skip
    """Means as in `adam_update`, of g; w - eta * (lr * mean / (sqrt(var) + epsilon) + wd * w).

    `rescale_grad` is an array of one element, so the loss scale need not be computed yet; where it
    is 0, infinite or nan nothing is updated. As in MXNet, g overwrites grad (without a master
    copy)."""
    scale = rescale_grad.reshape(-1)[0]
    how: dict[str, Any] = dict(
        lr=eta * lr, rate=eta, beta1=beta1, beta2=beta2, epsilon=epsilon, wd=wd
    )
    if xp is not np:
        # The host does not know the scale: apply the step, then undo it if the scale is invalid.
        before = weight.copy(), grad.copy(), mean.copy(), var.copy()
        scale = scale.astype(grad.dtype)
        xp.copyto(grad, scale_grad(xp, grad, scale, clip_gradient, weight, 0.0))
        y = _decoupled_adam_update.compute(xp, weight, grad, mean, var, out=out, **how)
        for now, then in zip((y, grad, mean, var), before, strict=True):
            xp.copyto(now, then, where=~xp.isfinite(scale) | (scale == 0))
        return y
    if not (xp.isfinite(scale) and scale):
        if out is None:
            return weight.copy()
        xp.copyto(out, weight)
        return out
    xp.copyto(grad, scale_grad(xp, grad, float(scale), clip_gradient, weight, 0.0))
    return _decoupled_adam_update.compute(xp, weight, grad, mean, var, out=out, **how)


mp_adamw_update = mixed(adamw_update, _adamw, at=4, same_shape=False, in_mxnet=True)


# -- sums and means of squares ---------------------------------------------------------------------


@update(9)
def _adagrad_update(
    xp, weight, grad, history, *, lr: float, epsilon: float = 1e-7, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """history += g^2; w - lr * (g / sqrt(history + epsilon) + wd * w).
    After Duchi et al. (2011)."""
    g = scale_grad(xp, grad, rescale_grad, clip_gradient, weight, 0.0)
    history += g * g
    size = history + epsilon
    xp.sqrt(size, out=size)
    g /= size
    if wd:
        g += weight * wd
    g *= lr
    return xp.subtract(weight, g, out=out)


@update(11)
def rmsprop_update(
    xp, weight, grad, n, *, lr: float, gamma1: float = 0.95, epsilon: float = 1e-8,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0,
    clip_weights: float = -1.0, out=None,
):  # fmt: skip
    """n = gamma1 * n + (1 - gamma1) * h^2; w - lr * h / sqrt(n + epsilon), clipped to
    [-clip_weights, clip_weights] where that is >= 0. After Tieleman and Hinton (2012)."""
    g = decay_grad(xp, grad, rescale_grad, clip_gradient, weight, wd)
    average(xp, n, gamma1, g * g)
    size = n + epsilon
    xp.sqrt(size, out=size)
    g /= size
    g *= lr
    return _clamp(xp, xp.subtract(weight, g, out=out), clip_weights)


@update(17)
def rmspropalex_update(
    xp, weight, grad, n, g, delta, *, lr: float, gamma1: float = 0.95, gamma2: float = 0.9,
    epsilon: float = 1e-8, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, clip_weights: float = -1.0, out=None,
):  # fmt: skip
    """n and g are running means (gamma1) of h^2 and h; delta = gamma2 * delta -
    lr * h / sqrt(n - g^2 + epsilon), then w + delta. After Graves (2013)."""
    h = decay_grad(xp, grad, rescale_grad, clip_gradient, weight, wd)
    average(xp, n, gamma1, h * h)
    average(xp, g, gamma1, h.copy())
    size = g * g
    xp.subtract(n, size, out=size)
    size += epsilon
    xp.sqrt(size, out=size)
    h /= size
    h *= lr
    delta *= gamma2
    delta -= h
    return _clamp(xp, xp.add(weight, delta, out=out), clip_weights)


def _clamp(xp, weight, bound):
    """Clip to [-bound, bound], in place."""
    return weight if bound < 0 else xp.clip(weight, -bound, bound, out=weight)


@update(16, mutates=["grad", "acc_g", "acc_delta"])
def _adadelta_update(
    xp, weight, grad, acc_g, acc_delta, *, rho: float = 0.9, epsilon: float = 1e-5,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """acc_g is the running mean (rho) of g^2; d = g * sqrt((acc_delta + epsilon) / (acc_g +
    epsilon)); acc_delta the running mean of d^2; w - d - wd * w. After Zeiler (2012).

    The gradient itself becomes rescale_grad * grad, as in MXNet's AdaDelta."""
    if rescale_grad != 1:
        grad *= rescale_grad
    d = scale_grad(xp, grad, 1.0, clip_gradient, weight, 0.0)
    average(xp, acc_g, rho, d * d)
    ratio = acc_delta + epsilon
    ratio /= acc_g + epsilon
    xp.sqrt(ratio, out=ratio)
    d *= ratio
    average(xp, acc_delta, rho, xp.multiply(d, d, out=ratio))
    if wd:
        d += weight * wd
    return xp.subtract(weight, d, out=out)


# -- variants of Adam ------------------------------------------------------------------------------


@update(11)
def _adamax_update(
    xp, weight, grad, mean, largest, *, lr: float, beta1: float = 0.9, beta2: float = 0.999,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """mean as in `adam_update`; largest = max(beta2 * largest, |h|); w - lr * mean / largest."""
    g = decay_grad(xp, grad, rescale_grad, clip_gradient, weight, wd)
    largest *= beta2
    xp.maximum(largest, xp.abs(g), out=largest)
    average(xp, mean, beta1, g)
    xp.divide(mean, largest, out=g)
    g *= lr
    return xp.subtract(weight, g, out=out)


@update(17)
def _nadam_update(
    xp, weight, grad, mean, var, *, lr: float, ahead: float, along: float, correction: float = 1.0,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """Means as in `adam_update`; w - lr * (ahead * h + along * mean) / (sqrt(var / correction) +
    epsilon). After Dozat (2016); the optimizer computes the three factors from its schedule."""
    g = decay_grad(xp, grad, rescale_grad, clip_gradient, weight, wd)
    average(xp, var, beta2, g * g)
    average(xp, mean, beta1, g.copy())
    g *= ahead
    g += mean * along
    size = var / correction
    xp.sqrt(size, out=size)
    size += epsilon
    g /= size
    g *= lr
    return xp.subtract(weight, g, out=out)


@update(20)
def ftml_update(
    xp, weight, grad, d, v, z, *, lr: float, t: int, beta1: float = 0.6, beta2: float = 0.999,
    epsilon: float = 1e-8, wd: float = 0.0, rescale_grad: float = 1.0, clip_grad: float = -1.0,
    out=None,
):  # fmt: skip
    """In step t: v as `var` in `adam_update`; e = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) +
    epsilon); z = beta1 * z + (1 - beta1) * h - (e - beta1 * d) * w; d = e; the new weight is
    -z / d. After Zheng and Kwok (2017), "follow the moving leader"."""
    g = decay_grad(xp, grad, rescale_grad, clip_grad, weight, wd)
    average(xp, v, beta2, g * g)
    size = v / (1 - beta2**t)
    xp.sqrt(size, out=size)
    size += epsilon
    size *= over(1 - beta1**t, lr)
    d *= -beta1
    d += size
    d *= weight
    average(xp, z, beta1, g)
    z -= d
    xp.copyto(d, size)
    xp.divide(z, d, out=size)
    return xp.negative(size, out=out)


@update(20)
def ftrl_update(
    xp, weight, grad, z, n, *, lr: float, lamda1: float = 0.01, beta: float = 1.0,
    wd: float = 0.0, rescale_grad: float = 1.0, clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """z += g - (sqrt(n + g^2) - sqrt(n)) / lr * w; n += g^2; the new weight is 0 where
    |z| <= lamda1, else (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd).
    After McMahan et al. (2013), "follow the regularized leader"."""
    g = scale_grad(xp, grad, rescale_grad, clip_gradient, weight, 0.0)
    before = xp.sqrt(n)
    z += g
    g *= g
    n += g
    root = xp.sqrt(n)
    xp.subtract(root, before, out=before)
    before *= over(1, lr)
    before *= weight
    z -= before
    root += beta
    root *= over(1, lr)
    root += wd
    shrunk = xp.abs(z, out=g)
    shrunk -= lamda1
    xp.maximum(shrunk, 0, out=shrunk)
    shrunk *= xp.sign(z)
    shrunk /= root
    return xp.negative(shrunk, out=out)
