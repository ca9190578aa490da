"""BatchNorm, LayerNorm, InstanceNorm, GroupNorm: one formula, four choices of axes.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2, 3], [10, 20, 30]])
>>> nd.LayerNorm(x, nd.ones(3), nd.zeros(3)).round()
<BLANKLINE>
[[-1.  0.  1.]
 [-1.  0.  1.]]
<NDArray 2x3 @cpu(0)>

All compute

    h = (x - mean) / sqrt(var + eps)        y = gamma h + beta

and differ in the axes of mean and variance: LayerNorm uses one axis, InstanceNorm the places of
each channel of each image, GroupNorm groups of channels, BatchNorm everything but the channel.
BatchNorm also keeps running means of both for use after training.

The gradient subtracts from gh = g gamma the parts that a shift or a scaling of x would cancel
(`normalization_backward.py`):

    dx = (gh - mean(gh) - h mean(gh h)) / sqrt(var + eps)

where the means are over the same axes (S. Ioffe and C. Szegedy, "Batch Normalization", 2015).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.bfloat16 import is_half
from d2lmini.device.scratch import scratch
from d2lmini.ops.checks import check_float, check_one_dtype, check_shapes
from d2lmini.ops.chunking import along, share
from d2lmini.ops.core import ALL, Shape, Spec, as_three_axes, normalize_axis, op, with_axis
from d2lmini.ops.facts import Inputs
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.normalization_backward import (
    GRAIN,
    along_rows,
    normalize_backward,
    total,
)
from d2lmini.ops.partial import Partial


@with_kernels
def normalize_into(
    xp: Any, x: Any, axes: tuple[int, ...], split: int, eps: float, gamma: Any, beta: Any, y: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Fill y with the normalized x; returns mean and (biased) variance, of x's shape with 1 at
    axes.

    Chunks are cut along axis `split`, which no mean reduces. float16 is computed in float32. The
    variance is the mean of (x - mean)^2: E x^2 - (E x)^2 would lose digits.
    """
    if x.size and xp is not np:
        return normalize_into.kernels[kind_of(xp)](xp, x, axes, split, eps, gamma, beta, y)
    wide = xp.promote_types(x.dtype, "float32")
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    share_of_each = wide.type(1 / max(prod(x.shape[a] for a in axes), 1))

    def body(piece: slice) -> None:
        part = along(split, piece)
        block = x[part].astype(wide, copy=False)
        mean = total(block, axes) * share_of_each
        block = np.subtract(
            block, along_rows(mean, block), out=scratch.array("centered", block.shape, wide)
        )
        square = np.multiply(block, block, out=scratch.array("product", block.shape, wide))
        variance = total(square, axes) * share_of_each
        means[part], variances[part] = mean, variance
        scale, shift = (v[part] if v.shape[split] > 1 else v for v in (gamma, beta))
        block *= along_rows(scale / xp.sqrt(variance + wide.type(eps)), block)
        np.add(block, along_rows(shift, block), out=y[part])

    means, variances = xp.zeros(shape, wide), xp.zeros(shape, wide)
    if x.size:
        share(xp, x.shape[split], min(x.shape[split], -(-x.size // GRAIN)), body)
    return means, variances


def _gradients(
    g: Any, x: Any, gamma: Any, axes: Shape, eps: float, needs: Any, shapes: tuple[Shape, Shape]
) -> tuple[Any, Any, Any]:
    """dx, dgamma and dbeta, of the shape of data and that of gamma; in ops on values. None for
    gradients that are not needed."""
    if not (needs[0] or needs[1] or needs[2]):
        return None, None, None
    data_shape, gamma_shape = shapes
    dx, dgamma, dbeta = normalize_backward(g, x, gamma, axes=axes, eps=eps)
    return (
        dx.reshape(data_shape) if needs[0] else None,
        dgamma.reshape(gamma_shape) if needs[1] else None,
        dbeta.reshape(gamma_shape) if needs[2] else None,
    )


# -- LayerNorm ------------------------------------------------------------------------------------


#: Facts of the ops that return the moments, too, if asked to.
_MOMENTS: dict[str, Any] = dict(
    outputs=lambda output_mean_var=False, **_: 3 if output_mean_var else 1, mxnet_outputs=3
)


def _infer_layer_norm(
    data: Spec, gamma: Spec, beta: Spec, *, axis: int, output_mean_var: bool, **_: Any
) -> Spec | list[Spec]:
    check_float(data, gamma, beta)
    axis = normalize_axis(axis, len(data.shape))
    why = f"axis {axis} of data {data.shape}"
    check_shapes((data.shape[axis],), why=why, gamma=gamma, beta=beta)
    kept = Spec(with_axis(data.shape, axis, 1), data.dtype)
    return [data, kept, kept] if output_mean_var else data


@op(
    infer=_infer_layer_norm, flops=8, same_shape=("data",),
    output_names=("output", "mean", "std"), mixed_dtypes=True, **_MOMENTS,
)  # fmt: skip
def LayerNorm(
    xp, data, gamma, beta, *, axis: int = -1, eps: float = 1e-5, output_mean_var: bool = False,
    out=None,
):  # fmt: skip
    """Normalize along one axis, of n elements: gamma and beta (n,), the shape is kept.

    With output_mean_var also mean and sqrt(var + eps), the axis kept as 1; both have no gradient.
    One floating dtype. MXNetError at the call for shapes. J. Ba et al., "Layer Normalization".
    """
    y = first_output(xp, data, out)
    view = as_three_axes(data.shape, axis)
    scale, shift = gamma.reshape(1, -1, 1), beta.reshape(1, -1, 1)
    mean, var = normalize_into(xp, data.reshape(view), (1,), 0, eps, scale, shift, y.reshape(view))
    if not output_mean_var:
        return y
    kept = with_axis(data.shape, axis, 1)
    return all_outputs(y, mean.reshape(kept), xp.sqrt(var + eps).reshape(kept), data.dtype, out)


def first_output(xp: Any, data: Any, out: Any) -> Any:
    """The array for the (first) output."""
    if out is None:
        return xp.empty(data.shape, data.dtype)
    return out[0] if isinstance(out, tuple) else out


def all_outputs(y: Any, mean: Any, second: Any, dtype: Any, out: Any) -> Any:
    """The three outputs, copied into `out` if given."""
    if out is None:
        return y, mean.astype(dtype), second.astype(dtype)
    out[1][...], out[2][...] = mean, second
    return out


@LayerNorm.gradient(saves="data data.shape gamma")
def _(g, data, shape, gamma, *, axis, eps, output_mean_var, needs=ALL):
    g = g[0] if output_mean_var else g
    view = as_three_axes(shape, axis)
    g, x, scale = g.reshape(view), data.reshape(view), gamma.reshape((1, view[1], 1))
    return _gradients(g, x, scale, (1,), eps, needs, (shape, (view[1],)))


def _one_per_place(given: Inputs, axis: int) -> dict[str, Partial]:
    """Shapes of parameters with one number per index of an axis of data."""
    data = given["data"]
    if not data or not -len(data) <= axis < len(data):
        return {}
    return {**dict.fromkeys(given, (data[axis],)), "data": data}


@LayerNorm.infer_inputs
def _(given, out, attrs):
    return _one_per_place(given, attrs["axis"])


# -- InstanceNorm and GroupNorm -------------------------------------------------------------------


def _check_image(data: Spec) -> None:
    if len(data.shape) < 3:
        raise MXNetError(f"needs data (N, C, ...) of three axes or more, got {data.shape}")


def _infer_instance_norm(data: Spec, gamma: Spec, beta: Spec, **_: Any) -> Spec:
    check_float(data, gamma, beta)
    _check_image(data)
    why = f"the channels of data {data.shape}"
    check_shapes(data.shape[1:2], why=why, gamma=gamma, beta=beta)
    return data


@op(
    infer=_infer_instance_norm, flops=8, mxnet_outputs=3, same_shape=("data",),
    onnx="InstanceNormalization(epsilon=eps)",
)  # fmt: skip
def InstanceNorm(xp, data, gamma, beta, *, eps: float = 1e-3, out=None):
    """Normalize each channel of each image: data (N, C, ...), gamma and beta (C,); shape kept.

    One floating dtype. MXNetError at the call for shapes. D. Ulyanov et al. (2016).
    """
    y = first_output(xp, data, out)
    view = (*data.shape[:2], prod(data.shape[2:]))
    scale, shift = gamma.reshape(1, -1, 1), beta.reshape(1, -1, 1)
    normalize_into(xp, data.reshape(view), (2,), 0, eps, scale, shift, y.reshape(view))
    return y


@InstanceNorm.gradient(saves="data data.shape gamma")
def _(g, data, shape, gamma, *, eps, needs=ALL):
    view = (*shape[:2], prod(shape[2:]))
    g, x, scale = g.reshape(view), data.reshape(view), gamma.reshape((1, view[1], 1))
    return _gradients(g, x, scale, (2,), eps, needs, (shape, (view[1],)))


@InstanceNorm.infer_inputs
def _(given, out, attrs):
    return _one_per_place(given, 1)


def _groups(shape: Shape, num_groups: int) -> Shape:
    """(N, groups, channels of a group, places)."""
    return (shape[0], num_groups, shape[1] // num_groups, prod(shape[2:]))


def _per_group(gamma: Shape, view: Shape) -> Shape:
    """The shape of gamma on the view: one number per group or per channel."""
    return (1, view[1], 1 if gamma == (view[1],) else view[2], 1)


def _infer_group_norm(
    data: Spec, gamma: Spec, beta: Spec, *, num_groups: int, output_mean_var: bool, **_: Any
) -> Spec | list[Spec]:
    check_float(data, gamma, beta)
    _check_image(data)
    N, C = data.shape[:2]
    if num_groups < 1 or C % num_groups:
        raise MXNetError(f"{C} channels cannot be cut into num_groups={num_groups} equal groups")
    why = "one number per group or channel"
    check_shapes((num_groups,), (C,), why=why, gamma=gamma, beta=beta)
    kept = Spec((N, num_groups), data.dtype)
    return [data, kept, kept] if output_mean_var else data


@op(
    infer=_infer_group_norm, flops=8, same_shape=("data",),
    output_names=("output", "mean", "std"), **_MOMENTS,
)  # fmt: skip
def GroupNorm(
    xp, data, gamma, beta, *, num_groups: int = 1, eps: float = 1e-5,
    output_mean_var: bool = False, out=None,
):  # fmt: skip
    """Normalize each group of C / num_groups channels of each image (N, C, ...); shape kept.

    gamma and beta: one number per group, as in MXNet 1.9, or per channel, as in the paper
    (Y. Wu and K. He, "Group Normalization", 2018). With output_mean_var also mean and
    sqrt(var + eps), (N, num_groups); both have no gradient. One floating dtype.
    """
    y = first_output(xp, data, out)
    view = _groups(data.shape, num_groups)
    scale = gamma.reshape(_per_group(gamma.shape, view))
    shift = beta.reshape(_per_group(beta.shape, view))
    mean, var = normalize_into(
        xp, data.reshape(view), (2, 3), 0, eps, scale, shift, y.reshape(view)
    )
    if not output_mean_var:
        return y
    kept = view[:2]
    return all_outputs(y, mean.reshape(kept), xp.sqrt(var + eps).reshape(kept), data.dtype, out)


@GroupNorm.gradient(saves="data data.shape gamma gamma.shape beta.shape")
def _(
    g, data, shape, gamma, gamma_shape, beta_shape, *, num_groups, eps, output_mean_var, needs=ALL
):  # fmt: skip
    g = g[0] if output_mean_var else g
    view = _groups(shape, num_groups)
    g, x = g.reshape(view), data.reshape(view)
    scale = gamma.reshape(_per_group(gamma_shape, view))
    alike = gamma_shape == beta_shape
    dx, dgamma, dbeta = _gradients(
        g, x, scale, (2, 3), eps, (*needs[:2], needs[2] and alike), (shape, gamma_shape)
    )
    if needs[2] and not alike:
        shift = _per_group(beta_shape, view)
        dbeta = g.sum(axis=tuple(a for a in range(4) if shift[a] == 1)).reshape(beta_shape)
    return dx, dgamma, dbeta


@GroupNorm.infer_inputs
def _(given, out, attrs):
    # One number per channel is allowed as well, so a known shape stays.
    per = (attrs["num_groups"],)
    return {name: given[name] or per for name in ("gamma", "beta")}


# -- BatchNorm ------------------------------------------------------------------------------------


def _infer_batch_norm(
    data: Spec, gamma: Spec, beta: Spec, moving_mean: Spec, moving_var: Spec, *, axis: int, **_: Any
) -> list[Spec]:
    check_float(data)
    check_float(gamma, beta, moving_mean, moving_var)
    if gamma.dtype != data.dtype and not (is_half(data.dtype) and gamma.dtype == "float32"):
        check_one_dtype(data, gamma)
    if len(data.shape) < 2:
        raise MXNetError(f"needs data of two axes or more, got {data.shape}")
    axis = normalize_axis(axis, len(data.shape))
    check_shapes(
        (data.shape[axis],), why=f"axis {axis} of data {data.shape}", gamma=gamma, beta=beta,
        moving_mean=moving_mean, moving_var=moving_var,
    )  # fmt: skip
    return [data, gamma, gamma]


def _find_mutated(n: int, attrs: dict[str, Any]) -> tuple[int, ...]:
    """The moving statistics are mutated in training; otherwise they are only read."""
    return (3, 4) if attrs.get("training", True) and not attrs["use_global_stats"] else ()


@op(
    infer=_infer_batch_norm, flops=8, mutates=_find_mutated, same_shape=("data",),
    auxiliary=("moving_mean", "moving_var"),
    initial={"moving_mean": ("zero", {}), "moving_var": ("one", {})},
    free_dtypes=("gamma", "beta", "moving_mean", "moving_var"), float32_parameters=True,
    output_names=("output", "mean", "var"), **_MOMENTS,
)  # fmt: skip
def BatchNorm(
    xp, data, gamma, beta, moving_mean, moving_var, *, eps: float = 1e-3, momentum: float = 0.9,
    fix_gamma: bool = True, use_global_stats: bool = False, output_mean_var: bool = False,
    axis: int = 1, cudnn_off: bool = False, min_calib_range: float | None = None,
    max_calib_range: float | None = None, training, out=None,
):  # fmt: skip
    """Normalize each channel (axis `axis`, of C elements) over the batch; the shape is kept.

    gamma, beta, moving_mean, moving_var (C,). In training mean and variance are those of the batch,
    and moving = momentum moving + (1 - momentum) batch for both; otherwise, or with
    use_global_stats, the moving statistics are used and do not change. With fix_gamma, the default,
    gamma counts as 1 and its gradient is 0. With output_mean_var also the mean and
    1 / sqrt(var + eps) in use, (C,); both have no gradient.

    float32 or float64, or data of 16 bits with parameters of its dtype or float32. MXNetError at
    the call for shapes and dtypes. The moving statistics change in forward, as in MXNet's
    documentation; MXNet's CPU code changes them in backward. They differ after a training-mode
    forward without backward, and agree after one of each.
    """
    y = first_output(xp, data, out)
    view = as_three_axes(data.shape, axis)
    x, place = data.reshape(view), y.reshape(view)
    column = (1, view[1], 1)
    scale, shift = _columns(xp, gamma, beta, fix_gamma)
    if training and not use_global_stats:
        mean, var = normalize_into(xp, x, (0, 2), 1, eps, scale, shift, place)
        update_moving(moving_mean, moving_var, (mean.reshape(-1), var.reshape(-1)), momentum)
    else:
        wide = xp.promote_types(x.dtype, "float32")
        mean, var = (v.reshape(column).astype(wide, copy=False) for v in (moving_mean, moving_var))
        scale = scale / xp.sqrt(var + wide.type(eps))
        shift = shift - mean * scale

        def body(channels: slice) -> None:
            part = (slice(None), channels)
            xp.add(x[part] * scale[part], shift[part], out=place[part])

        share(xp, view[1], min(view[1], -(-x.size // GRAIN)), body)
    inverse = 1 / xp.sqrt(var + var.dtype.type(eps))
    return all_outputs(y, mean.reshape(-1), inverse.reshape(-1), gamma.dtype, out)


def update_moving(mean: Any, var: Any, batch: Iterable[Any], momentum: float) -> None:
    """moving = momentum * moving + (1 - momentum) * batch, for both moments, in place."""
    for moving, now in zip((mean, var), batch):
        moving *= moving.dtype.type(momentum)
        moving += now.astype(moving.dtype) * moving.dtype.type(1 - momentum)


def _columns(xp: Any, gamma: Any, beta: Any, fix_gamma: bool) -> tuple[Any, Any]:
    """Scale and shift of the channels, (1, C, 1)."""
    column = (1, beta.size, 1)
    return xp.ones(column, gamma.dtype) if fix_gamma else gamma.reshape(column), beta.reshape(
        column
    )


@op("_normalized_batch", infer=lambda data, gamma, beta, **_: data, flops=8, grad=None)
def normalized_batch(
    xp, data, gamma, beta, *, eps: float, fix_gamma: bool, axis: int, out=None
):  # fmt: skip
    """The output of BatchNorm in training, to the bit; there are no moving statistics."""
    y = first_output(xp, data, out)
    view = as_three_axes(data.shape, axis)
    scale, shift = _columns(xp, gamma, beta, fix_gamma)
    normalize_into(xp, data.reshape(view), (0, 2), 1, eps, scale, shift, y.reshape(view))
    return y


@BatchNorm.infer_inputs
def _(given, out, attrs):
    return _one_per_place(given, attrs["axis"])


@BatchNorm.gradient(saves="y data data.shape data.dtype gamma gamma.dtype")
def _(
    g, y, data, shape, dtype, gamma, wide, *, eps, fix_gamma, use_global_stats, axis, training,
    needs=ALL,
):  # fmt: skip
    view = as_three_axes(shape, axis)
    g, x = g[0].reshape(view), data.reshape(view)
    scale = (gamma.ones_like() if fix_gamma else gamma).reshape((1, view[1], 1))
    needs = needs[0], needs[1] and not fix_gamma, needs[2]
    if training and not use_global_stats:
        # Recompute mean and variance: they depend on data, which matters for higher orders.
        dx, dgamma, dbeta = _gradients(g, x, scale, (0, 2), eps, needs, (shape, (view[1],)))
    else:
        if dtype != wide:
            g, x = g.astype(wide), x.astype(wide)
        inverse = y[2].reshape((1, view[1], 1))
        dx = dgamma = dbeta = None
        if needs[0]:
            dx = (g * scale * inverse).reshape(shape)
            dx = dx if dtype == wide else dx.astype(dtype)
        if needs[1]:
            dgamma = (g * (x - y[1].reshape((1, view[1], 1))) * inverse).sum(axis=(0, 2))
        if needs[2]:
            dbeta = g.sum(axis=(0, 2))
    return dx, gamma.zeros_like() if fix_gamma else dgamma, dbeta, None, None
