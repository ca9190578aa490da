"""Pooling: the maximum, mean or sum of each window.

>>> from d2lmini import nd
>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
<BLANKLINE>
[[[[ 5.  7.]
   [13. 15.]]]]
<NDArray 1x1x2x2 @cpu(0)>

A maximum or a sum over a rectangle separates into one axis after the other, so a k x k window costs
2 k operations instead of k^2. Along an axis, place j of all windows at once is one slice of the
image with the stride as its step. Padding holds a number that changes nothing. Small windows use a
faster method, `combine_neighbours`.

Backward. The sum's gradient spreads each g over its window, again axis by axis
(`_pooling_spread`); the maximum's gradient gives each g to the first place with the largest value
(`_max_pooling_backward`). Spreading and summing are each other's gradients; so are scattering to
the argmax and gathering at the argmax.

Unit steps. The first places of all windows lie `stride` apart, and NumPy processes twelve such
strided elements in about the time of a hundred contiguous ones. So a window's maximum is computed
for *all* places of a group of images, as one long row of memory against the same row shifted:

    x      3 1 4 1 | 5 9 2 6        rows of four
    right  3 4 4 5 | 9 9 6 .        max(x, x shifted by 1)
    down   9 9 6 .                  max(right, right shifted by 4)
    y      9   6                    the results at the first places

Three of four results are thrown away, and the method still takes a third of the time. Results that
cross the end of a row are never selected.

The gradient of windows of 2 x 2 (`give_to_winners`) treats two adjacent places as one integer of
twice the width: g is written into the lower half, and shifted to the upper half where the place on
the right is the argmax. This is integer arithmetic on the bits of g, exact for every value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.scratch import scratch
from d2lmini.ops.checks import check_choice, check_float, refuse_gradient
from d2lmini.ops.chunking import along, share
from d2lmini.ops.core import Shape, Spec, op
from d2lmini.ops.kernels import with_kernels
from d2lmini.ops.windows import Geometry, check_layout, geometry, inside, taps

#: Images (one channel each) are processed in groups of about this many elements. (With smaller
#: groups the workers that share them spend their time on passing the interpreter lock.)
GRAIN = 1 << 18

#: What becomes of a window: its sum, its mean over all places or over those on the image, or its
#: maximum.
SUM, MEAN, MEAN_ON_IMAGE, MAX = range(4)


@lru_cache(maxsize=1024)
def pool_of(
    size: Shape, kernel: Shape, stride: Shape, pad: Shape, global_pool: bool, convention: str
) -> Geometry:
    """The windows; MXNetError when none fits."""
    if global_pool:
        return geometry(size, size, (), (), ())
    return geometry(size, kernel, stride, (), pad, round_up=convention == "full")


def _padded(x: Any, pool: Geometry, value: float) -> Any:
    """x (images, *size) with `value` in the padding; x itself if windows cover no padding."""
    needed = [(o - 1) * s + k for o, s, k in zip(pool.out, pool.stride, pool.kernel)]
    size = [max(p + n, m) for p, n, m in zip(pool.pad, pool.size, needed)]
    if tuple(size) == x.shape[1:]:
        return x
    padded = np.full((len(x), *size), value, x.dtype)
    padded[inside(pool)] = x
    return padded


def _places(pool: Geometry, axis: int) -> Iterator[tuple]:
    """For each place of a window along a spatial axis: the index of this place of all windows."""
    stride, out = pool.stride[axis], pool.out[axis]
    for j in range(pool.kernel[axis]):
        yield along(axis + 1, slice(j, j + (out - 1) * stride + 1, stride))


def _reduce(x: Any, pool: Geometry, largest: bool, y: Any) -> None:
    """The maximum or the sum of x in every window: (images, *size) -> (images, *out)."""
    combine, whole = (np.maximum, np.max) if largest else (np.add, np.sum)
    x = _padded(x, pool, float(np.finfo(x.dtype).min) if largest else 0.0)
    if max(pool.kernel) <= MOST_TAPS:
        combine_neighbours(combine, x, pool.kernel, pool.stride, y)
        return
    last = len(pool.size) - 1
    for axis in range(last + 1):
        shape = x.shape[: axis + 1] + (pool.out[axis],) + x.shape[axis + 2 :]
        result = y if axis == last else np.empty(shape, y.dtype)
        if shape[axis + 1] == 1 and pool.kernel[axis] == x.shape[axis + 1]:
            whole(x, axis=axis + 1, keepdims=True, out=result)
        else:
            first, *others = _places(pool, axis)
            np.copyto(result, x[first])
            for place in others:
                combine(result, x[place], out=result)
        x = result


def _sum_backward(g: Any, pool: Geometry, dx: Any) -> None:
    """The transpose of the sum: each g is added to all places of its window."""
    covers = all(s == k and p == 0 and o * k == n for n, k, s, _dilate, p, o in zip(*pool))
    whole = _padded(dx, pool, 0.0)
    for axis in reversed(range(len(pool.size))):
        shape = g.shape[: axis + 1] + whole.shape[axis + 1 : axis + 2] + g.shape[axis + 2 :]
        result = whole if axis == 0 else np.empty(shape, dx.dtype)
        if not covers:
            result.fill(0)
        # If each place of the image lies in one window, g is written, not added.
        for place in [...] if covers and pool.out[axis] == 1 else _places(pool, axis):
            if covers:
                result[place] = g
            else:
                result[place] += g
        g = result
    if whole is not dx:
        dx[...] = whole[inside(pool)]


@lru_cache(maxsize=256)
def _counts(pool: Geometry, kind: int, dtype: Any) -> Any:
    """Number of places that the mean of each window counts, (*out)."""
    counts = np.ones((), dtype)
    for n, k, s, _dilate, p, o in zip(*pool):
        first = np.arange(o) * s - p
        if kind == MEAN:
            places = np.minimum(first + k, n + p) - first
        else:
            places = np.minimum(first + k, n) - np.maximum(first, 0)
        counts = counts[..., None] * np.maximum(places, 1).astype(dtype)
    return counts


def _by_images(body: Callable[..., None], *arrays: Any) -> None:
    """body(*parts) for groups of images of arrays (N, C, ...), as (images, ...)."""
    flat = [a.reshape(a.shape[0] * a.shape[1], *a.shape[2:]) for a in arrays]
    images = len(flat[0])
    largest = max(prod(a.shape[1:]) for a in flat)
    n = images * largest // GRAIN
    if n % 2 and n > 1:  # three groups take two workers as long as four
        n += 1
    share(np, images, min(images, n), lambda part: body(*(a[part] for a in flat)))


@with_kernels
def reduce_windows(xp: Any, x: Any, pool: Geometry, kind: int, y: Any) -> None:
    """Fill y (N, C, *out) with the sum, mean or maximum of each window of x (N, C, *size)."""
    wide = x.dtype if kind == MAX else np.promote_types(x.dtype, "float32")

    def body(x: Any, place: Any) -> None:
        y = place if wide == place.dtype else np.empty(place.shape, wide)
        _reduce(x.astype(wide, copy=False), pool, kind == MAX, y)
        if kind in (MEAN, MEAN_ON_IMAGE):
            y /= _counts(pool, kind, wide)
        if y is not place:
            place[...] = y

    _by_images(body, x, y)


# -- the ops --------------------------------------------------------------------------------------


def _infer_pooling(
    data: Spec, *, kernel: Shape, pool_type: str, global_pool: bool, pooling_convention: str,
    stride: Shape, pad: Shape, layout: str | None, **_: Any,
) -> Spec:  # fmt: skip
    check_float(data)
    check_choice("pool_type", pool_type, ("max", "avg", "sum"))
    check_choice("pooling_convention", pooling_convention, ("valid", "full"))
    check_layout(layout, len(data.shape) - 2 if global_pool else len(kernel), data)
    pool = pool_of(data.shape[2:], kernel, stride, pad, global_pool, pooling_convention)
    if pool_type == "max" and any(p >= k for p, k in zip(pool.pad, pool.kernel)):
        raise MXNetError(f"pad={pad} must be less than kernel={kernel}: a window lies in padding")
    return Spec((*data.shape[:2], *pool.out), data.dtype)


def _flops(data: Spec, *, out: Spec, kernel: Shape, global_pool: bool, **_: Any) -> float:
    return float(data.size if global_pool else out.size * sum(kernel))


@op(
    infer=_infer_pooling, flops=_flops,
    mxnet_outputs=lambda attrs: 2 if attrs["pool_type"] == "max" and attrs["kernel"] else 1,
)  # fmt: skip
def Pooling(
    xp, data, *, kernel: Shape = (), pool_type: str = "max", global_pool: bool = False,
    cudnn_off: bool = False, pooling_convention: str = "valid", stride: Shape = (),
    pad: Shape = (), p_value: int | None = None, count_include_pad: bool | None = None,
    layout: str | None = None, out=None,
):  # fmt: skip
    """Maximum, mean or sum of each window; (N, C, *size) -> (N, C, *out).

    pool_type 'max', 'avg' or 'sum'; p_value belongs to MXNet's 'lp', which is left out.
    out = (size + 2 pad - kernel) // stride + 1; pooling_convention 'full' rounds up, so the last
    window may extend past the end. global_pool: one window, the image. Padding never wins a maximum
    and adds nothing to a sum; 'avg' divides by the window's places including padding unless
    count_include_pad is False. float16, float32, float64, kept (sums of float16 in float32).

    MXNetError at the call when the kernel exceeds the padded input, for unknown choices, and for
    layouts other than channel-first. After MXNet's Pooling.
    """
    pool = pool_of(data.shape[2:], kernel, stride, pad, global_pool, pooling_convention)
    shape = (*data.shape[:2], *pool.out)
    y = xp.empty(shape, data.dtype) if out is None else out
    reduce_windows(xp, data, pool, _kind_of(pool_type, count_include_pad), y)
    return y


@Pooling.gradient(saves="data data.shape y")
def _(
    g, data, shape, y, *, kernel, pool_type, global_pool, pooling_convention, stride, pad,
    count_include_pad,
):  # fmt: skip
    pool = pool_of(shape[2:], kernel, stride, pad, global_pool, pooling_convention)
    if pool_type == "max":
        return max_pooling_backward(g, data, y, pool=pool)
    return pooling_spread(g, pool=pool, kind=_kind_of(pool_type, count_include_pad))


def _kind_of(pool_type: str, count_include_pad: bool | None) -> int:
    if pool_type == "avg" and count_include_pad is False:
        return MEAN_ON_IMAGE
    return {"max": MAX, "avg": MEAN}.get(pool_type, SUM)


def _shape_on(g: Any, pool: Geometry) -> Shape:
    """The shape of the images whose windows g has an element for."""
    return (*g.shape[:2], *pool.size)


@refuse_gradient
@op("_pooling_spread", infer=lambda g, *, pool, **_: Spec(_shape_on(g, pool), g.dtype))
def pooling_spread(xp, g, *, pool, kind: int, out=None):
    """The gradient of sum or mean pooling: g spread over its window."""
    dx = xp.empty(_shape_on(g, pool), g.dtype) if out is None else out
    if kind != SUM:
        counts = _counts(pool, kind, np.promote_types(g.dtype, "float32"))
        g = (g / counts).astype(g.dtype, copy=False)
    _by_images(lambda g, dx: _sum_backward(g, pool, dx), g, dx)
    return dx


@refuse_gradient
@op("_max_pooling_backward", infer=lambda g, data, y, **_: data)
def max_pooling_backward(xp, g, data, y, *, pool, out=None):
    """The gradient of max pooling: g goes to the first place of its window that holds y."""
    dx = xp.empty(data.shape, g.dtype) if out is None else out
    if are_squares(data.dtype, pool):
        _by_images(give_to_winners, g, data, y, dx)
        return dx

    def body(g: Any, x: Any, y: Any, dx: Any) -> None:
        x = _padded(x, pool, float(np.finfo(x.dtype).min))
        whole = dx if x.shape == dx.shape else np.empty(x.shape, dx.dtype)
        whole.fill(0)
        free = np.ones(y.shape, bool)
        for _, pixels in taps(pool):
            place = (slice(None), *pixels)
            won = (x[place] == y) & free
            free ^= won
            # Convert to numbers first: a ufunc that converts while it computes is slow.
            whole[place] += g * won.astype(g.dtype)
        if whole is not dx:
            dx[...] = whole[inside(pool)]

    _by_images(body, g, data, y, dx)
    return dx


#: Windows with more taps use strided slices: shifting costs too much.
MOST_TAPS = 4

#: By the itemsize: the unsigned integers as wide as one and as two elements.
WIDTHS = {2: ("u2", "u4"), 4: ("u4", "u8")}


def combine_neighbours(
    combine: Callable, x: np.ndarray, kernel: Shape, stride: Shape, y: np.ndarray
) -> None:
    """Fill y (images, *out) with what `combine` makes of every window of x (images, *size)."""
    size = x.shape[1:]
    spare = [scratch.array(name, x.size, x.dtype) for name in ("left", "right")]
    row = x.reshape(-1)  # the results so far, at the first `row.size` places
    whole = x
    for axis, k in enumerate(kernel):
        step = prod(size[axis + 1 :])
        source = row
        target = spare[0] if whole is not spare[0] else spare[1]
        for j in range(1, k):
            n = source.size - j * step
            combine(row[:n], source[j * step :], out=target[:n])
            row, whole = target[:n], target
    first = tuple(slice(0, (o - 1) * s + 1, s) for o, s in zip(y.shape[1:], stride))
    y[...] = whole.reshape(x.shape)[(slice(None), *first)]


def are_squares(dtype: np.dtype, pool: Geometry) -> bool:
    """True if `give_to_winners` applies: the windows are 2 x 2, and pairs fit an integer."""
    return (
        (2, 2) == pool.kernel == pool.stride
        and pool.size == tuple(2 * n for n in pool.out)
        and dtype.itemsize in WIDTHS
        and sys.byteorder == "little"
    )


def give_to_winners(g: np.ndarray, x: np.ndarray, y: np.ndarray, dx: np.ndarray) -> None:
    """dx (images, H, W): each g goes to the first place of its 2 x 2 window of x that holds y.

    The upper row wins where its maximum is y, the left place where it is not the smaller one.
    """
    narrow, wide = WIDTHS[x.itemsize]
    W = x.shape[-1]
    line = f"V{W // 2 * x.itemsize}"  # half a row, copied as one thing
    x, y, bits = x.reshape(-1), y.reshape(-1), g.reshape(-1).view(narrow)
    n = x.size
    room = scratch.array("left", n, x.dtype)
    rows = scratch.array("right", n // 2, narrow)

    np.maximum(x[:-1], x[1:], out=room[:-1])
    rows[...] = room.view(wide)  # the lower halves: the places on the left
    lines = rows.view(line)
    upper, lower = room[: n // 2].view(narrow).reshape(2, -1)
    upper.view(line)[...] = lines[0::2]
    upper[...] = upper.view(x.dtype) == y
    upper *= bits
    np.bitwise_xor(bits, upper, out=lower)
    lines[0::2], lines[1::2] = upper.view(line), lower.view(line)

    is_right = scratch.array("flags", n, bool)
    np.less(x[:-1], x[1:], out=is_right[:-1])
    shifts = is_right.view("u2")
    shifts &= 1
    shifts *= 8 * x.itemsize
    np.left_shift(rows, shifts, out=dx.reshape(-1).view(wide), dtype=wide)
