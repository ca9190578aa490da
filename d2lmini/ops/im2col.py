"""im2col and col2im: the windows of a convolution as the columns of a matrix, and back.

With the windows as columns a convolution is one matrix product:

>>> from d2lmini import nd
>>> image = nd.arange(9).reshape(1, 1, 3, 3)
>>> nd.im2col(image, kernel=(2, 2))
<BLANKLINE>
[[[0. 1. 3. 4.]
  [1. 2. 4. 5.]
  [3. 4. 6. 7.]
  [4. 5. 7. 8.]]]
<NDArray 1x4x4 @cpu(0)>

Row (c, i, j) of the matrix holds element (i, j) of every window of channel c; column (h, w) is the
window that starts at h * stride, w * stride. Images have one, two or three axes after (N, C).
"""

from __future__ import annotations

from math import prod

from d2lmini.base import MXNetError
from d2lmini.ops.chunking import along, copy
from d2lmini.ops.core import Shape, Spec, op
from d2lmini.ops.windows import geometry, inside, taps, windows_of, with_zeros


def _infer_im2col(
    data: Spec, *, kernel: Shape, stride: Shape = (), dilate: Shape = (), pad: Shape = ()
) -> Spec:
    if len(data.shape) != len(kernel) + 2:
        raise MXNetError(f"data is {data.shape}, need (N, C) and one axis for each of {kernel}")
    N, C, *size = data.shape
    geo = geometry(tuple(size), kernel, stride, dilate, pad)
    return Spec((N, C * geo.taps, prod(geo.out)), data.dtype)


@op(infer=_infer_im2col, flops=0)
def im2col(
    xp, data, *, kernel: Shape, stride: Shape = (), dilate: Shape = (), pad: Shape = (), out=None
):  # fmt: skip
    """Windows as columns: (N, C, X...) -> (N, C * prod(kernel), number of windows), dtype kept.

    Along each axis there are (n + 2 pad - dilate (kernel - 1) - 1) // stride + 1 windows; padding
    is 0. MXNetError at the call for a window that does not fit.
    """
    N, C, *size = data.shape
    geo = geometry(tuple(size), kernel, stride, dilate, pad)
    if out is None:
        out = xp.empty((N, C * geo.taps, prod(geo.out)), data.dtype)
    windows = windows_of(with_zeros(xp, data, geo), geo)
    copy(xp, windows, out.reshape(windows.shape))
    return out


@im2col.gradient(saves="data.shape")
def _(g, shape, *, kernel, stride, dilate, pad):
    return col2im(g, output_size=shape[2:], kernel=kernel, stride=stride, dilate=dilate, pad=pad)


def _infer_col2im(
    data: Spec, *, output_size: Shape, kernel: Shape, stride: Shape = (), dilate: Shape = (),
    pad: Shape = (),
) -> Spec:  # fmt: skip
    geo = geometry(output_size, kernel, stride, dilate, pad)
    if len(data.shape) != 3 or data.shape[1] % geo.taps or data.shape[2] != prod(geo.out):
        raise MXNetError(
            f"data is {data.shape}, need (N, C * {geo.taps}, {prod(geo.out)}) for kernel {kernel} "
            f"on an image of {output_size}"
        )
    return Spec((data.shape[0], data.shape[1] // geo.taps, *output_size), data.dtype)


@op(infer=_infer_col2im)
def col2im(
    xp, data, *, output_size: Shape, kernel: Shape, stride: Shape = (), dilate: Shape = (),
    pad: Shape = (),
):  # fmt: skip
    """Add the columns up where `im2col` reads them: the gradient of `im2col`, not its inverse.

    (N, C * prod(kernel), number of windows) -> (N, C, *output_size), dtype kept.
    """
    geo = geometry(output_size, kernel, stride, dilate, pad)
    N, C = data.shape[0], data.shape[1] // geo.taps
    columns = data.reshape(N, C, *kernel, *geo.out)
    image = xp.zeros((N, C, *geo.padded), data.dtype)
    for tap, pixels in taps(geo):
        image[(..., *pixels)] += columns[along(2, *tap)]
    return image[inside(geo)]


@col2im.gradient()
def _(g, *, kernel, stride, dilate, pad):
    return im2col(g, kernel=kernel, stride=stride, dilate=dilate, pad=pad)
