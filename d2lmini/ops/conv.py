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
another name.
Shapes are MXNet's channel-first ones: (N, C, W), (N, C, H, W) or (N, C, D, H, W).

They compute with matrix products.
The windows of a convolution are a strided view of the (padded) image, which costs no memory; copied
into columns (im2col: K. Chellapilla et al., 2006) they make the convolution a matrix product, which
BLAS computes fastest. The convolution y = x * w is linear in x and in w, so its gradients are
linear as well:

    convolve         (x, w) -> y     w @ columns
    convolve_data    (g, w) -> dx    w^T @ g gives columns; each is added back to its source
                                     (col2im)
    convolve_weight  (x, g) -> dw    g @ columns^T

>>> import numpy as np
>>> x, w = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
>>> geo = geometry((3, 3), kernel=(2, 2), stride=(), dilate=(), pad=())
>>> y = np.empty((1, 1, *geo.out))
>>> convolve(np, x, w, geo, 1, y)
>>> y
array([[[[ 8., 12.],
         [20., 24.]]]])

`conv_im2col.py` computes any convolution so, with buffers that stay in the cache. Where channels
and filters are few, copying columns takes longer than multiplying them: `conv_toeplitz.py` then
multiplies whole rows of the image with the kernel as a band matrix. Where they are many, and the
kernel is small with stride 1, Winograd's algorithm needs a fourth of the multiplications
(`conv_winograd.py`). 1x1 kernels need no columns at all. The GPU's add-on registers its own
implementations.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops import conv_im2col as im2col
from d2lmini.ops import conv_toeplitz as toeplitz
from d2lmini.ops import conv_winograd as winograd
from d2lmini.ops.checks import check_float, check_optional, check_shape
from d2lmini.ops.chunking import place
from d2lmini.ops.composed import composed
from d2lmini.ops.core import ALL, NOWHERE, Shape, Spec, op
from d2lmini.ops.kernels import with_kernels
from d2lmini.ops.linalg import flops_of_layer, unless_no_bias
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, check_layout, geometry, transposed_geometry


def _infer(
    data: Spec, weight: Spec, bias: Spec | None = None, *, kernel: Shape, stride: Shape,
    dilate: Shape, pad: Shape, num_filter: int, num_group: int, no_bias: bool, layout: str | None,
    adj: Shape | None = None, **_: Any,
) -> Spec:  # fmt: skip
    """The rule of Convolution, and of Deconvolution, which has `adj`."""
    check_float(data, weight, bias)
    check_optional("bias", bias, not no_bias, f"no_bias={no_bias}")
    check_layout(layout, len(kernel), data)
    size, lists = data.shape[2:], (kernel, stride, dilate, pad)
    if adj is None:
        size = geometry(size, *lists).out
    else:
        size = transposed_geometry(size, *lists, adj).size
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


def _flops_transposed(
    data: Spec, weight: Spec, bias: Spec | None = None, *, out: Spec, **_: Any
) -> float:
    return 2.0 * data.size * prod(weight.shape[1:]) + (out.size if bias else 0)


@op(infer=_infer, flops=flops_of_layer, optional=unless_no_bias)
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


@composed(
    infer=_infer, flops=_flops_transposed, optional=unless_no_bias, left_out=("target_shape",)
)
def Deconvolution(
    data, weight, bias=None, *, kernel: Shape, stride: Shape = (), dilate: Shape = (),
    pad: Shape = (), adj: Shape = (), num_filter: int, num_group: int = 1, workspace: int = 512,
    no_bias: bool = True, cudnn_tune: str | None = None, cudnn_off: bool = False,
    layout: str | None = None,
):  # fmt: skip
    """Transposed convolution: each element of data adds a scaled filter to the output.

    data (N, C, *size), weight (C, num_filter / num_group, *kernel) -> (N, num_filter, *out),
    out = stride (size - 1) + dilate (kernel - 1) + 1 - 2 pad + adj. This is the gradient of the
    Convolution from `out` to `size`. There is a bias only if no_bias is False (the default is
    True). Errors and dtypes as for Convolution.
    """
    geo = transposed_geometry(data.shape[2:], kernel, stride, dilate, pad, adj)
    y = conv_backward_data(data, weight, geo=geo, num_group=num_group)
    return y if no_bias else y + bias.reshape((-1, *(1,) * len(kernel)))


Deconvolution.infer_inputs(_infer_inputs)


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any, bias: Any = None) -> None:
    """y = x * w + bias: (N, C, *size), (F, C/G, *kernel), (F,) or None -> (N, F, *out)."""
    if geo.is_pointwise:
        _pointwise(xp, w.reshape(groups, w.shape[0] // groups, -1), x, y, groups)
    else:
        algorithm = choose_algorithm(xp, len(x), w.shape, geo, groups)
        if algorithm in (im2col, toeplitz):  # these add the bias while a part of y is in the cache
            algorithm.convolve(xp, x, w, geo, groups, y, bias)
            return
        algorithm.convolve(xp, x, w, geo, groups, y)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * len(geo.out))


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    if geo.is_pointwise:
        w = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
        _pointwise(xp, w, g, dx, groups)
    else:
        algorithm = choose_algorithm(xp, len(g), w.shape, geo, groups)
        algorithm.convolve_data(xp, g, w, geo, groups, dx)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    algorithm = choose_algorithm(xp, len(x), dw.shape, geo, groups)
    algorithm.convolve_weight(xp, x, g, geo, groups, dw)


def _pointwise(xp: Any, w: Any, x: Any, y: Any, groups: int) -> None:
    """A product for each image: w (G, A, B), x (N, G*B, ...) -> y (N, G*A, ...)."""
    N, places = x.shape[0], prod(x.shape[2:])
    images = x.reshape(N, groups, w.shape[2], places)
    matmul(xp, w, images, y.reshape(N, groups, w.shape[1], places))


@with_kernels
@lru_cache(maxsize=1024)
def choose_algorithm(xp: Any, N: int, w: Shape, geo: Geometry, groups: int) -> Any:
    """The algorithm, a module, with the lowest predicted cost. Only sizes decide."""
    if groups > 1:
        return im2col
    return min((im2col, toeplitz, winograd), key=lambda algorithm: algorithm.cost(N, w, geo))


def compute_conv(
    xp: Any, function: Any, a: Any, b: Any, geo: Any, groups: int, shape: Shape, out: Any,
    *bias: Any,
) -> Any:  # fmt: skip
    """Call one of the three functions, `convolve` perhaps with a bias. float16 is converted to
    float32, since CPUs have no float16 products."""
    if a.dtype.itemsize > 2 or xp is not np:
        out = xp.empty(shape, a.dtype) if out is None else out
        function(xp, a, b, geo, groups, out, *bias)
        return out
    single = xp.empty(shape, "float32")
    function(xp, a.astype("float32"), b.astype("float32"), geo, groups, single, *bias)
    return place(xp, single, a.dtype, out)
