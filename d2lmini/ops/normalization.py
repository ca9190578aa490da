"""BatchNorm, LayerNorm, InstanceNorm, GroupNorm: one formula, four choices of axes;
L2Normalization.

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

The gradient subtracts from gh = g gamma the parts that a shift or a scaling of x would cancel:

    dx = (gh - mean(gh) - h mean(gh h)) / sqrt(var + eps)

where the means are over the same axes (S. Ioffe and C. Szegedy, "Batch Normalization", 2015).
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_half
from d2lmini.ops.checks import check_axes, check_choice, check_float, check_one_dtype, check_shapes
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Shape, Spec, normalize_axis, registry
from d2lmini.ops.facts import Inputs, Partial
from d2lmini.ops.reduce import reshape_to

block_grad = registry["BlockGrad"]


def normalize(x: Any, gamma: Any, beta: Any, axes: Shape, eps: float) -> tuple[Any, Any, Any]:
    """gamma h + beta, and mean and (biased) variance, with 1 at `axes`. gamma and beta broadcast.

    The variance is the mean of (x - mean)^2: E x^2 - (E x)^2 would lose digits.
    """
    mean = x.mean(axis=axes, keepdims=True)
    centered = x - mean
    var = (centered * centered).mean(axis=axes, keepdims=True)
    return centered * (var + eps).rsqrt() * gamma + beta, block_grad(mean), block_grad(var)


def normalize_backward(
    g: Any, x: Any, gamma: Any, axes: Shape, eps: float, needs: Any, shape: Shape,
    moments: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """dx, and dgamma and dbeta in the shape of the parameters; None for those that are not needed.
    moments: mean and 1 / sqrt(var + eps), if they are known.

    Where gamma is shared by all that a mean is taken over, it multiplies last, and dgamma and dbeta
    are made of the sums that dx needs.
    """
    n = max(prod(x.shape[a] for a in axes), 1)
    if moments is None:
        centered = x - x.mean(axis=axes, keepdims=True)
        var = (centered * centered).sum(axis=axes, keepdims=True) / n  # 0 of nothing, not nan
        inverse = (var + eps).rsqrt()
    else:
        centered, inverse = x - moments[0], moments[1]
    is_shared = all(gamma.shape[a] == 1 for a in axes)
    gh, scale = (g, gamma * inverse) if is_shared else (g * gamma, inverse)
    total = gh.sum(axis=axes, keepdims=True)
    slope = (gh * centered).sum(axis=axes, keepdims=True) * inverse
    dx = gh - centered * (slope * inverse * (1 / n)) - total * (1 / n)
    of_gamma, of_beta = (slope, total) if is_shared else (g * centered * inverse, g)
    dgamma, dbeta = (
        reshape_to(registry["_sum_to"](part, shape=gamma.shape), shape) if is_needed else None
        for part, is_needed in zip((of_gamma, of_beta), needs[1:])
    )
    return dx * scale if needs[0] else None, dgamma, dbeta


def along(axis: int, x: Any, *vectors: Any) -> list[Any]:
    """The vectors in the shape in which they broadcast along an axis of x."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return [reshape_to(v, tuple(shape)) for v in vectors]


# -- LayerNorm, InstanceNorm and GroupNorm ---------------------------------------------------------


def _one_per_place(given: Inputs, axis: int) -> dict[str, Partial]:
    """Shapes of parameters with one number per index of an axis of data."""
    data = given["data"]
    if not data or not -len(data) <= axis < len(data):
        return {}
    return {**dict.fromkeys(given, (data[axis],)), "data": data}


def _infer_layer_norm(data: Spec, gamma: Spec, beta: Spec, *, axis: int, **_: Any) -> Spec:
    check_float(data, gamma, beta)
    axis = normalize_axis(axis, len(data.shape))
    why = f"axis {axis} of data {data.shape}"
    check_shapes((data.shape[axis],), why=why, gamma=gamma, beta=beta)
    return data


@composed(
    infer=_infer_layer_norm, flops=8, same_shape=("data",), mixed_dtypes=True, mxnet_outputs=3,
    left_out=("output_mean_var",),
)  # fmt: skip
def LayerNorm(data, gamma, beta, *, axis: int = -1, eps: float = 1e-5):
    """Normalize along one axis, of n elements: gamma and beta (n,), the shape is kept.

    One floating dtype. MXNetError at the call for shapes. J. Ba et al., "Layer Normalization".
    """
    scale, shift = along(axis, data, gamma, beta)
    return normalize(data, scale, shift, (axis % data.ndim,), eps)[0]


@LayerNorm.gradient(saves="data gamma beta")
def _(g, data, gamma, beta, *, axis, eps, needs):
    (scale,) = along(axis, data, gamma)
    return normalize_backward(g, data, scale, (axis % data.ndim,), eps, needs, gamma.shape)


LayerNorm.infer_inputs(lambda given, out, attrs: _one_per_place(given, attrs["axis"]))


def _infer_groups(data: Spec, gamma: Spec, beta: Spec, *, num_groups: Any = None, **_: Any) -> Spec:
    """The rule of GroupNorm, and of InstanceNorm, which has no `num_groups`."""
    check_float(data, gamma, beta)
    check_axes(data, 3, "(N, C, ...), three axes or more")
    C = data.shape[1]
    groups = C if num_groups is None else num_groups
    if num_groups is not None and (groups < 1 or C % groups):
        raise MXNetError(f"{C} channels cannot be cut into num_groups={num_groups} equal groups")
    check_shapes((groups,), (C,), why="one number per group or channel", gamma=gamma, beta=beta)
    return data


@composed(
    infer=_infer_groups, flops=8, same_shape=("data",), mxnet_outputs=3,
    left_out=("output_mean_var",),
)  # fmt: skip
def GroupNorm(data, gamma, beta, *, num_groups: int = 1, eps: float = 1e-5):
    """Normalize each group of C / num_groups channels of each image (N, C, ...); shape kept.

    gamma and beta: one number per group, as in MXNet 1.9, or per channel, as in the paper
    (Y. Wu and K. He, "Group Normalization", 2018). One floating dtype.
    """
    N, C = data.shape[:2]
    view = (N, num_groups, C // num_groups, prod(data.shape[2:]))
    # One number per group or per channel.
    scale, shift = (reshape_to(v, (1, num_groups, v.size // num_groups, 1)) for v in (gamma, beta))
    y = normalize(reshape_to(data, view), scale, shift, (2, 3), eps)[0]
    return reshape_to(y, data.shape)


@GroupNorm.infer_inputs
def _(given, out, attrs):
    # One number per channel is allowed as well, so a known shape stays.
    per = (attrs["num_groups"],)
    return {name: given[name] or per for name in ("gamma", "beta")}


@composed(
    infer=_infer_groups, flops=8, same_shape=("data",), mxnet_outputs=3,
    onnx="InstanceNormalization(epsilon=eps)",
)  # fmt: skip
def InstanceNorm(data, gamma, beta, *, eps: float = 1e-3):
    """Normalize each channel of each image: data (N, C, ...), gamma and beta (C,); shape kept.

    One floating dtype. MXNetError at the call for shapes. D. Ulyanov et al. (2016).
    """
    scale, shift = along(1, data, gamma, beta)
    return normalize(data, scale, shift, tuple(range(2, data.ndim)), eps)[0]


@InstanceNorm.gradient(saves="data gamma")
def _(g, data, gamma, *, eps, needs):
    (scale,) = along(1, data, gamma)
    axes = tuple(range(2, data.ndim))
    return normalize_backward(g, data, scale, axes, eps, needs, gamma.shape)


InstanceNorm.infer_inputs(lambda given, out, attrs: _one_per_place(given, 1))


# -- BatchNorm ------------------------------------------------------------------------------------


def _infer_batch_norm(
    data: Spec, gamma: Spec, beta: Spec, moving_mean: Spec, moving_var: Spec, *, axis: int, **_: Any
) -> list[Spec]:
    check_float(data)
    check_float(gamma, beta, moving_mean, moving_var)
    if gamma.dtype != data.dtype and not (is_half(data.dtype) and gamma.dtype == "float32"):
        check_one_dtype(data, gamma)
    check_axes(data, 2, "two axes or more")
    axis = normalize_axis(axis, len(data.shape))
    check_shapes(
        (data.shape[axis],), why=f"axis {axis} of data {data.shape}", gamma=gamma, beta=beta,
        moving_mean=moving_mean, moving_var=moving_var,
    )  # fmt: skip
    return [data, gamma, gamma]


def finish(xp: Any, inputs: Any, results: Any, attrs: dict[str, Any]) -> None:
    """Write the last two results into the moving statistics."""
    for moving, now in zip(inputs[3:5], results[-2:]):
        xp.copyto(moving, now, casting="same_kind")


def _normalize_batch(
    data: Any, gamma: Any, beta: Any, axis: int, eps: float, fix_gamma: bool
) -> tuple[Any, Any, Any]:
    scale, shift = along(axis, data, gamma.ones_like() if fix_gamma else gamma, beta)
    return normalize(data, scale, shift, other_axes(data, axis), eps)


def other_axes(data: Any, axis: int) -> Shape:
    """All axes of data but one."""
    return tuple(a for a in range(data.ndim) if a != axis % data.ndim)


@composed("_normalized_batch", infer=lambda data, gamma, beta, **_: data, flops=8)
def normalized_batch(data, gamma, beta, *, eps: float, fix_gamma: bool, axis: int):
    """The output of BatchNorm in training; there are no moving statistics."""
    return _normalize_batch(data, gamma, beta, axis, eps, fix_gamma)[0]


@composed(
    infer=_infer_batch_norm, flops=8, finish=finish, extra=2, same_shape=("data",),
    # The moving statistics, in training; otherwise they are only read.
    mutates=lambda n, attrs: (
        (3, 4) if attrs.get("training", True) and not attrs["use_global_stats"] else ()
    ),
    auxiliary=("moving_mean", "moving_var"), constants=("moving_mean", "moving_var"),
    initial={"moving_mean": ("zero", {}), "moving_var": ("one", {})},
    free_dtypes=("gamma", "beta", "moving_mean", "moving_var"), float32_parameters=True,
    output_names=("output", "mean", "var"), mxnet_outputs=3,
    outputs=lambda output_mean_var=False, **_: 3 if output_mean_var else 1,
    left_out=("min_calib_range", "max_calib_range"),
)  # fmt: skip
def BatchNorm(
    data, gamma, beta, moving_mean, moving_var, *, eps: float = 1e-3, momentum: float = 0.9,
    fix_gamma: bool = True, use_global_stats: bool = False, output_mean_var: bool = False,
    axis: int = 1, cudnn_off: bool = False, training,
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
    if training and not use_global_stats:
        y, mean, var = _normalize_batch(data, gamma, beta, axis, eps, fix_gamma)
        olds = along(axis, data, moving_mean, moving_var)
        news = [
            old * momentum + now.astype(old.dtype, copy=False) * (1 - momentum)
            for old, now in zip(olds, (mean, var))
        ]
        found = [reshape_to(x, gamma.shape) for x in (mean, (var + eps).rsqrt(), *news)]
        return y, *found
    inverse = (moving_var + eps).rsqrt()
    factor = inverse if fix_gamma else gamma * inverse
    scale, shift = along(axis, data, factor, beta - moving_mean * factor)
    return data * scale + shift, moving_mean, inverse, moving_mean, moving_var


BatchNorm.infer_inputs(lambda given, out, attrs: _one_per_place(given, attrs["axis"]))


@BatchNorm.gradient(saves="y data gamma beta gamma.dtype")
def _(g, y, data, gamma, beta, dtype, *, eps, fix_gamma, use_global_stats, axis, training, needs):
    g = g[0] if isinstance(g, list) else g
    axes = other_axes(data, axis)
    scale, mean, inverse = along(axis, data, gamma.ones_like() if fix_gamma else gamma, *y[1:])
    if training and not use_global_stats:
        # What forward kept: unless it was rounded, or its own dependence on data matters.
        moments = None if is_half(dtype) or data.is_taped else (mean, inverse)
        dx, dgamma, dbeta = normalize_backward(
            g, data, scale, axes, eps, needs, gamma.shape, moments
        )
    else:
        dx = g * (scale * inverse)
        dgamma, dbeta = (g * (data - mean) * inverse).sum(axis=axes), g.sum(axis=axes)
    return dx, gamma.zeros_like() if fix_gamma else dgamma, dbeta, None, None


# -- L2Normalization ------------------------------------------------------------------------------


def _infer_l2(data: Spec, *, mode: str, **_: Any) -> Spec:
    check_float(data)
    check_choice("mode", mode, ("instance", "channel", "spatial"))
    check_axes(data, 1 if mode == "instance" else 3, f"more axes for mode={mode!r}")
    return data


@composed(infer=_infer_l2, flops=4, same_shape=True, mxnet_outputs=2)
def L2Normalization(data, *, eps: float = 1e-10, mode: str = "instance"):
    """data / sqrt(sum of squares + eps): over each 'instance', 'channel' (axis 1), or 'spatial'
    (axes 2 on, for each channel). Shape and floating dtype are kept.

    Each element of a vector is an instance.
    """
    first, end = {"instance": (1, data.ndim), "channel": (1, 2), "spatial": (2, data.ndim)}[mode]
    squares = data * data
    if first < end:
        squares = squares.sum(axis=tuple(range(first, end)), keepdims=True)
    return data / (squares + eps).sqrt()
