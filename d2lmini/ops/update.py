"""Optimizer updates of one parameter: gradient descent, momentum, sign methods.

    weight = nd.ones(3)
    mom = nd.zeros(3)
    nd.sgd_mom_update(weight, grad, mom, lr=0.1, momentum=0.9, out=weight)

An update op returns the new weight; `out=weight` updates in place. The state (`mom`) always changes
in place. In the formulas of this family

    g = clip(rescale_grad * grad)            to [-clip_gradient, clip_gradient] where that is >= 0
    w = weight

and `wd` is the weight decay. All arrays have the shape and dtype of the weight; the `mp_` ops
(mixed precision) take weight and gradient in float16, compute on `weight32`, and keep the state
in float32. `lazy_update`, for MXNet's sparse gradients, is accepted and has no effect.

`update_adaptive` has methods with a learning rate per element, `update_multi` has ops that update
many parameters in one task, which the optimizers use.

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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import Op, Spec, op
from d2lmini.ops.signature import signature_of, with_signature

# -- shared by the family --------------------------------------------------------------------------


def like_weight(weight: Spec, grad: Spec, *states: Spec, **_attrs: Any) -> Spec:
    """The new weight, the gradient and the states have the spec of the weight."""
    for what, spec in (("gradient", grad), *(("state", s) for s in states)):
        if spec != weight:
            raise MXNetError(f"the {what} must have the weight's spec {weight}, got {spec}")
    return weight


def like_weight32(weight: Spec, grad: Spec, *states: Spec, **_attrs: Any) -> Spec:
    """The rule for mixed precision: states and master copy are float32."""
    if grad != weight:
        raise MXNetError(f"the gradient must have the weight's spec {weight}, got {grad}")
    for spec in states:
        if spec != Spec(weight.shape, np.float32):
            raise MXNetError(
                f"states and weight32 are float32 of the weight's shape {weight.shape}, got {spec}"
            )
    return weight


def update(
    flops: float, mutates: Sequence[str] | None = None, name: str | None = None,
    infer: Callable[..., Spec] = like_weight, **facts: Any,
) -> Callable[[Callable], Op]:  # fmt: skip
    """Declare an update. mutates: the inputs that change, if not just all those after the gradient,
    the states; facts: as for `Op`."""

    def declare(compute: Callable) -> Op:
        changed = signature_of(compute).inputs[2:] if mutates is None else mutates
        how = dict(mutates=changed, flops=flops, infer=infer, **facts)
        declared: Op = op(name, elementwise=True, grad=None, **how)(compute)
        return declared

    return declare


def scale_grad(
    xp: Any, grad: Any, rescale: float, clip: float, weight: Any, wd: float, by: float = 1.0
) -> Any:
    """by * (clip(rescale * grad) + wd * weight), in as few passes as possible; a new array.

    On a GPU `by` and `wd` may be 0-d arrays, whose values the host does not know."""
    if clip >= 0 or grad.dtype.itemsize < 4:  # float16 cannot hold every product by * rescale
        step = xp.multiply(grad, rescale)
        if clip >= 0:
            xp.clip(step, -clip, clip, out=step)
        if type(by) is not float or by != 1:
            step *= by
    else:
        step = xp.multiply(grad, by * rescale)
    if type(wd) is not float or wd:
        step += weight * (by * wd)
    return step


def decay_grad(xp: Any, grad: Any, rescale: float, clip: float, weight: Any, wd: float) -> Any:
    """clip(rescale * grad + wd * weight), a new array."""
    g = xp.multiply(grad, rescale)
    if wd:
        g += weight * wd
    if clip >= 0:
        xp.clip(g, -clip, clip, out=g)
    return g


def with_master(
    rule: Op, xp: Any, weight: Any, grad: Any, *rest: Any, out: Any, **attrs: Any
) -> Any:
    """Apply `rule` to the float32 master copy, the last array; the weight is the rounded copy."""
    *states, weight32 = rest
    grad = grad.astype(weight32.dtype, copy="grad" in changed_by(rule))
    rule.compute(xp, weight32, grad, *states, out=weight32, **attrs)
    if out is None:
        return weight32.astype(weight.dtype)
    xp.copyto(out, weight32, casting="same_kind")
    return out


def changed_by(rule: Op) -> list[str]:
    """The names of the inputs that the rule mutates."""
    return [rule.input_names[i] for i in rule.mutates]


def mixed(rule: Op, infer: Any = like_weight32, at: int | None = None, **facts: Any) -> Op:
    """Declare `mp_RULE`: the rule in mixed precision. at: position of `weight32` among the inputs,
    if not last."""
    own = signature_of(rule.compute)
    at = len(own.inputs) if at is None else at
    inputs = (*own.inputs[:at], "weight32", *own.inputs[at:])

    @with_signature(
        own._replace(inputs=inputs, n_required=len(inputs)),
        f"`{rule.compute.__name__}` in mixed precision.",
    )
    def compute(xp: Any, *arrays: Any, out: Any = None, **attrs: Any) -> Any:
        rest = arrays[:at] + arrays[at + 1 :]
        return with_master(rule, xp, *rest, arrays[at], out=out, **attrs)

    name = f"_mp{rule.name}" if rule.name.startswith("_") else f"mp_{rule.name}"
    changed = [*(name for name in changed_by(rule) if name != "grad"), "weight32"]
    return update(rule.flops + 1, changed, name, infer, **facts)(compute)  # type: ignore[operator]


# -- gradient descent ------------------------------------------------------------------------------


@update(3)
def sgd_update(
    xp, weight, grad, *, lr: float, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, lazy_update: bool = True, out=None,
):  # fmt: skip
    """w - lr * (g + wd * w)"""
    step = scale_grad(xp, grad, rescale_grad, clip_gradient, weight, wd, by=lr)
    return xp.subtract(weight, step, out=out)


mp_sgd_update = mixed(sgd_update)


@update(5)
def sgd_mom_update(
    xp, weight, grad, mom, *, lr: float, momentum: float = 0.0, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, lazy_update: bool = True, out=None,
):  # fmt: skip
    """mom = momentum * mom - lr * (g + wd * w), then w + mom. After Polyak (1964)."""
    mom *= momentum
    mom -= scale_grad(xp, grad, rescale_grad, clip_gradient, weight, wd, by=lr)
    return xp.add(weight, mom, out=out)


mp_sgd_mom_update = mixed(sgd_mom_update)


@update(7)
def nag_mom_update(
    xp, weight, grad, mom, *, lr: float, momentum: float = 0.0, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """With d = lr * (g + wd * w): mom = momentum * mom - d, then w + momentum * mom - d.
    After Nesterov (1983): the step looks ahead along the momentum.

    (MXNet 1.9 uses the new weight for the momentum's weight decay if the update is in place, else
    the old weight; here it is always the old weight.)"""
    step = scale_grad(xp, grad, rescale_grad, clip_gradient, weight, wd, by=lr)
    mom *= momentum
    mom -= step
    xp.subtract(mom * momentum, step, out=step)
    return xp.add(weight, step, out=out)


mp_nag_mom_update = mixed(nag_mom_update)


# -- sign methods ----------------------------------------------------------------------------------


@update(3)
def signsgd_update(
    xp, weight, grad, *, lr: float, wd: float = 0.0, rescale_grad: float = 1.0,
    clip_gradient: float = -1.0, out=None,
):  # fmt: skip
    """(1 - lr * wd) * w - lr * sign(grad); rescaling and clipping do not change a sign.
    After Bernstein et al. (2018)."""
    step = xp.sign(grad)
    step *= lr
    return xp.subtract(weight * (1 - lr * wd) if wd else weight, step, out=out)


@update(8)
def signum_update(
    xp, weight, grad, mom, *, lr: float, momentum: float = 0.0, wd: float = 0.0,
    rescale_grad: float = 1.0, clip_gradient: float = -1.0, wd_lh: float = 0.0, out=None,
):  # fmt: skip
    """mom = momentum * mom - (1 - momentum) * (g + wd * w), then (1 - lr * wd_lh) * w +
    lr * sign(mom): weight decay `wd` applies to the momentum, `wd_lh` to the weight directly."""
    mom *= momentum
    mom -= scale_grad(xp, grad, rescale_grad, clip_gradient, weight, wd, by=1 - momentum)
    step = xp.sign(mom)
    step *= lr
    return xp.add(weight * (1 - lr * wd_lh) if wd_lh else weight, step, out=out)
