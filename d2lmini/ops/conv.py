"""Convolution, its two gradients and Deconvolution: each is a derivative of the others.

>>> from d2lmini import nd
>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> w = nd.ones((1, 1, 3, 3))
>>> nd.Convolution(x, w, kernel=(3, 3), num_filter=1, no_bias=True)
<BLANKLINE>
[[[[45. 54.]
   [81. 90.]]]]
<NDArray 1x1x2x2 @cpu(0)>

The convolution y = x * w is linear in x and in w. So there are three operations, one for each pair
of the image x, the weight w and the gradient g of y,

    Convolution            (x, w) -> g-like
    _conv_backward_data    (g, w) -> x-like
    _conv_backward_weight  (x, g) -> w-like

and each has the other two as its gradients, to any order. Deconvolution is the second under
another name. `conv_algorithms.py` explains how they compute.

Shapes are MXNet's channel-first ones: (N, C, W), (N, C, H, W) or (N, C, D, H, W).
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float, check_optional, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.conv_algorithms import compute_conv, convolve, convolve_data, convolve_weight
from d2lmini.ops.core import ALL, NOWHERE, Shape, Spec, op
from d2lmini.ops.windows import Geometry, check_layout, geometry, transposed_geometry


def _unless_no_bias(attrs: dict[str, Any]) -> tuple[str, ...]:
    return () if attrs["no_bias"] else ("bias",)


def _infer(
    data: Spec, weight: Spec, bias: Spec | None = None, *, kernel: Shape, stride: Shape,
    dilate: Shape, pad: Shape, num_filter: int, num_group: int, no_bias: bool, layout: str | None,
    adj: Shape | None = None, target_shape: Shape = (), **_: Any,
) -> Spec:  # fmt: skip
    """The rule of Convolution, and of Deconvolution, which has `adj` and `target_shape`."""
    check_float(data, weight, bias)
    check_optional("bias", bias, not no_bias, f"no_bias={no_bias}")
    check_layout(layout, len(kernel), data)
    size, lists = data.shape[2:], (kernel, stride, dilate, pad)
    if adj is None:
        size = geometry(size, *lists).out
    else:
        size = transposed_geometry(size, *lists, adj, target_shape).size
    N, C = data.shape[:2]
    if num_filter < 1 or num_group < 1 or C % num_group or num_filter % num_group:
        raise MXNetError(
            f"{C} channels and num_filter={num_filter} cannot be cut into num_group={num_group} "
            "equal parts"
        )
    filters, why = (num_filter, C // num_group), "num_filter, channels / num_group"
    if adj is not None:
        filters, why = (C, num_filter // num_group), "channels, num_filter / num_group"
    check_shape("weight", weight, (*filters, *kernel), why=f"{why}, kernel for data {data.shape}")
    check_shape("bias", bias, (num_filter,))
    return Spec((N, num_filter, *size), data.dtype)


def _flops(data: Spec, weight: Spec, bias: Spec | None = None, *, out: Spec, **_: Any) -> float:
    """One multiplication and one addition for each output and each weight that contributes."""
    return 2.0 * out.size * prod(weight.shape[1:]) + (out.size if bias else 0)


def _flops_transposed(
    data: Spec, weight: Spec, bias: Spec | None = None, *, out: Spec, **_: Any
) -> float:
    return 2.0 * data.size * prod(weight.shape[1:]) + (out.size if bias else 0)


@op(infer=_infer, flops=_flops, optional=_unless_no_bias)
def Convolution(
    xp, data, weight, bias=None, *, kernel: Shape, stride: Shape = (), dilate: Shape = (),
    pad: Shape = (), num_filter: int, num_group: int = 1, workspace: int = 1024,
    no_bias: bool = False, cudnn_tune: str | None = None, cudnn_off: bool = False,
    layout: str | None = None, out=None,
):  # fmt: skip
    """Slide filters over images: y[n, f] = bias[f] + sum over c of data[n, c] (x) weight[f, c].

    data (N, C, *size), weight (num_filter, C / num_group, *kernel), bias (num_filter,) unless
    no_bias -> (N, num_filter, *out), out = (size + 2 pad - dilate (kernel - 1) - 1) // stride + 1,
    for one to three spatial axes. (x) is cross-correlation: the filter is not flipped. With groups
    the i-th part of the filters sees the i-th part of the channels. One floating dtype, kept.

    MXNetError at the call for shapes, dtypes and layouts other than channel-first. Cost: 2 FLOPs
    for each output element and each of its C / num_group * prod(kernel) weights. After MXNet's
    Convolution; its tuning attributes are accepted and have no effect.

    >>> images, filters = nd.ones((8, 3, 28, 28)), nd.ones((16, 3, 5, 5))
    >>> nd.Convolution(images, filters, kernel=(5, 5), num_filter=16, no_bias=True).shape
    (8, 16, 24, 24)
    """
    geo = geometry(data.shape[2:], kernel, stride, dilate, pad)
    shape = (data.shape[0], num_filter, *geo.out)
    return compute_conv(xp, convolve, data, weight, geo, num_group, shape, out, bias)


@Convolution.gradient(saves="data data.shape weight")
def _(
    g, data, shape, weight, *, kernel, stride, dilate, pad, num_group, no_bias, needs=ALL,
    places=NOWHERE,
):  # fmt: skip
    how = dict(geo=geometry(shape[2:], kernel, stride, dilate, pad), num_group=num_group)
    dx = conv_backward_data(g, weight, **how) if needs[0] else None
    dw = conv_backward_weight(data, g, **how, out=places[1]) if needs[1] else None
    if no_bias:
        return dx, dw
    return dx, dw, g.sum(axis=1, exclude=True, out=places[2]) if needs[2] else None


def _infer_inputs(given: Any, out: Any, attrs: dict[str, Any]) -> dict[str, Any]:
    """The rule of Convolution, and of Deconvolution, which has `adj`."""
    data, kernel, filters = given["data"], attrs["kernel"], attrs["num_filter"]
    if not data:
        return {}
    channels, groups = data[1] if len(data) > 1 else 0, attrs["num_group"]
    transposed = "adj" in attrs
    weight = (channels, filters // groups) if transposed else (filters, channels // groups)
    found = {"weight": (*weight, *kernel), "bias": (filters,)}
    return {**found, "data": (out[0], *data[1:])} if out and not transposed else found


Convolution.infer_inputs(_infer_inputs)


def _convolution(data: Any, weight: Any, filters: int, geo: Geometry, num_group: int) -> Any:
    return Convolution(
        data, weight, num_filter=filters, no_bias=True, num_group=num_group, kernel=geo.kernel,
        stride=geo.stride, dilate=geo.dilate, pad=geo.pad,
    )  # fmt: skip


def _data_shape(grad: Any, weight: Any, geo: Geometry, num_group: int) -> Shape:
    return (grad.shape[0], weight.shape[1] * num_group, *geo.size)


@op(
    "_conv_backward_data", flops=_flops_transposed,
    infer=lambda grad, weight, **how: Spec(_data_shape(grad, weight, **how), grad.dtype),
)  # fmt: skip
def conv_backward_data(xp, grad, weight, *, geo, num_group: int, out=None):
    """The gradient of a convolution for its data (see the module's docstring)."""
    shape = _data_shape(grad, weight, geo, num_group)
    return compute_conv(xp, convolve_data, grad, weight, geo, num_group, shape, out)


@conv_backward_data.gradient(saves="grad weight weight.shape")
def _(g, grad, weight, shape, *, geo, num_group, needs=ALL, places=NOWHERE):
    how = dict(geo=geo, num_group=num_group)
    return (
        _convolution(g, weight, shape[0], **how) if needs[0] else None,
        conv_backward_weight(g, grad, **how, out=places[1]) if needs[1] else None,
    )


def _weight_shape(data: Any, grad: Any, geo: Geometry, num_group: int) -> Shape:
    return (grad.shape[1], data.shape[1] // num_group, *geo.kernel)


@op(
    "_conv_backward_weight",
    flops=lambda data, grad, *, out, **_: 2.0 * grad.size * prod(out.shape[1:]),
    infer=lambda data, grad, **how: Spec(_weight_shape(data, grad, **how), data.dtype),
)
def conv_backward_weight(xp, data, grad, *, geo, num_group: int, out=None):
    """The gradient of a convolution for its weight (see the module's docstring)."""
    shape = _weight_shape(data, grad, geo, num_group)
    return compute_conv(xp, convolve_weight, data, grad, geo, num_group, shape, out)


@conv_backward_weight.gradient(saves="data grad grad.shape")
def _(g, data, grad, shape, *, geo, num_group, needs=ALL):
    how = dict(geo=geo, num_group=num_group)
    return (
        conv_backward_data(grad, g, **how) if needs[0] else None,
        _convolution(data, g, shape[1], **how) if needs[1] else None,
    )


# -- Deconvolution --------------------------------------------------------------------------------


@composed(infer=_infer, flops=_flops_transposed, optional=_unless_no_bias)
def Deconvolution(
    data, weight, bias=None, *, kernel: Shape, stride: Shape = (), dilate: Shape = (),
    pad: Shape = (), adj: Shape = (), target_shape: Shape = (), num_filter: int,
    num_group: int = 1, workspace: int = 512, no_bias: bool = True, cudnn_tune: str | None = None,
    cudnn_off: bool = False, layout: str | None = None,
):  # fmt: skip
    """Transposed convolution: each element of data adds a scaled filter to the output.

    data (N, C, *size), weight (C, num_filter / num_group, *kernel) -> (N, num_filter, *out),
    out = stride (size - 1) + dilate (kernel - 1) + 1 - 2 pad + adj, or target_shape, which then
    determines pad and adj. This is the gradient of the Convolution from `out` to `size`. There is a
    bias only if no_bias is False (the default is True). Errors and dtypes as for Convolution.
    """
    geo = transposed_geometry(data.shape[2:], kernel, stride, dilate, pad, adj, target_shape)
    y = conv_backward_data(data, weight, geo=geo, num_group=num_group)
    return y if no_bias else y + bias.reshape((-1, *(1,) * len(kernel)))


Deconvolution.infer_inputs(_infer_inputs)
