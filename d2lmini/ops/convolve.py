"""Convolution as products of matrices; arrays in, arrays out.

A convolution looks at an image through windows. As a view of the (padded) image they cost no
memory, only strides; copied into columns (im2col: K. Chellapilla et al., 2006) they make it a
product of matrices, where BLAS is at its best. The convolution y = x * w is linear in x and in w,
so its gradients are linear as well:

    convolve         (x, w) -> y     w @ columns
    convolve_data    (g, w) -> dx    w^T @ g gives columns; each is added back where it was copied
                                     from (col2im)
    convolve_weight  (x, g) -> dw    g @ columns^T

>>> import numpy as np
>>> x, w = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
>>> geo = geometry((3, 3), kernel=(2, 2), stride=(), dilate=(), pad=())
>>> y = np.empty((1, 1, *geo.out))
>>> convolve(np, x, w, geo, 1, y)
>>> y
array([[[[ 8., 12.],
         [20., 24.]]]])

There are two ways to lay the columns: image by image (`convolve_each.py`), whose buffers stay in
the cache and whose results land where they belong; and of several images side by side
(`convolve_wide.py`), for images so small that a product for each would starve BLAS. Where channels
and filters are few, copying columns takes longer than multiplying them: then rows of the image are
multiplied as they lie, with the kernel as a band matrix (`convolve_rows.py`). Where they are many,
and a small kernel goes from place to place without a step, a fourth of the multiplications will do
(`convolve_winograd.py`). 1x1 kernels need no columns at all. A GPU's add-on registers ways of its
own. The ops on top of these are in `conv.py`.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.ops import convolve_each as each
from d2lmini.ops import convolve_rows as rows
from d2lmini.ops import convolve_wide as wide
from d2lmini.ops import convolve_winograd as winograd
from d2lmini.ops.core import Shape
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, geometry

__all__ = ["computed", "convolve", "convolve_data", "convolve_weight", "geometry"]


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any, bias: Any = None) -> None:
    """y = x * w + bias: (N, C, *size), (F, C/G, *kernel), (F,) or None -> (N, F, *out)."""
    if geo.is_pointwise:
        _pointwise(xp, w.reshape(groups, w.shape[0] // groups, -1), x, y, groups)
    else:
        way = choose_way(xp, len(x), w.shape, geo, groups)
        if way is each or way is rows:  # they add it while a part of y is in the cache
            way.convolve(xp, x, w, geo, groups, y, bias)
            return
        way.convolve(xp, x, w, geo, groups, y)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * len(geo.out))


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    if geo.is_pointwise:
        w = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
        _pointwise(xp, w, g, dx, groups)
    else:
        choose_way(xp, len(g), w.shape, geo, groups).convolve_data(xp, g, w, geo, groups, dx)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    choose_way(xp, len(x), dw.shape, geo, groups).convolve_weight(xp, x, g, geo, groups, dw)


def _pointwise(xp: Any, w: Any, x: Any, y: Any, groups: int) -> None:
    """A product for each image: w (G, A, B), x (N, G*B, ...) -> y (N, G*A, ...)."""
    N, places = x.shape[0], prod(x.shape[2:])
    images = x.reshape(N, groups, w.shape[2], places)
    matmul(xp, w, images, y.reshape(N, groups, w.shape[1], places))


@with_kernels
@lru_cache(maxsize=1024)
def choose_way(xp: Any, N: int, w: Shape, geo: Geometry, groups: int) -> Any:
    """The quickest by what they cost. Columns are laid image by image, unless that makes too many
    products, or products of too few columns for their weights. Sizes alone decide."""
    if xp is not np:
        return choose_way.kernels[kind_of(xp)](xp, N, w, geo, groups)
    if groups > 1:
        return wide
    quickest = min((each, rows, winograd), key=lambda way: way.cost(N, w, geo))
    places = prod(geo.out)
    if quickest is each and (places < 64 or (places < 256 and prod(w) > 1 << 17)):
        return wide
    return quickest


def computed(
    xp: Any, function: Any, a: Any, b: Any, geo: Any, groups: int, shape: Shape, out: Any,
    *bias: Any,
) -> Any:  # fmt: skip
    """Call one of the three, the first perhaps with a bias; float16, for which a CPU has no
    products, goes by way of float32."""
    if a.dtype.itemsize > 2 or xp is not np:
        out = xp.empty(shape, a.dtype) if out is None else out
        function(xp, a, b, geo, groups, out, *bias)
        return out
    wide = xp.empty(shape, "float32")
    function(xp, a.astype("float32"), b.astype("float32"), geo, groups, wide, *bias)
    if out is None:
        return wide.astype(a.dtype)
    out[...] = wide
    return out
