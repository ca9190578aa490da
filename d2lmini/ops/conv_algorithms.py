"""Convolution as matrix products, on arrays.

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
implementations. `conv.py` has the ops on top of these functions.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.ops import conv_im2col as im2col
from d2lmini.ops import conv_toeplitz as toeplitz
from d2lmini.ops import conv_winograd as winograd
from d2lmini.ops.chunking import place
from d2lmini.ops.core import Shape
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, geometry

__all__ = ["compute_conv", "convolve", "convolve_data", "convolve_weight", "geometry"]


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
    if xp is not np:
        return choose_algorithm.kernels[kind_of(xp)](xp, N, w, geo, groups)
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
