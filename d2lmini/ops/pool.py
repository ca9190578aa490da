"""Pooling: the maximum, mean or sum of each window.

>>> from d2lmini import nd
>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
<BLANKLINE>
[[[[ 5.  7.]
   [13. 15.]]]]
<NDArray 1x1x2x2 @cpu(0)>

A maximum or a sum over a rectangle separates into one axis after the other, so a k x k window costs
2 k operations instead of k^2. Along an axis, tap j of all windows at once is one slice of the image
with the stride as its step. Slices that would reach into the padding are shortened, so nothing is
ever padded. (Small windows without padding use a faster method: `pool_dense.py`.)

Backward. The sum's gradient spreads each g over its window, again axis by axis
(`_pooling_spread`); the maximum's gradient gives each g to the first place with the largest value
(`_max_pooling_backward`). Spreading and summing are each other's gradients; so are scattering to
the argmax and gathering at the argmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, refuse_gradient
from d2lmini.ops.chunking import along, share
from d2lmini.ops.core import Shape, Spec, op
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.pool_dense import (
    are_squares,
    combine_neighbours,
    cover,
    give_to_winners,
    is_near,
    repeat_windows,
)
from d2lmini.ops.windows import Geometry, check_layout, geometry

#: Images (one channel each) are processed in groups of about this many elements. (With smaller
#: groups the workers that share them spend their time on passing the interpreter lock.)
GRAIN = 1 << 18

#: What becomes of a window: its sum, its mean over all places or over those on the image, or its
#: maximum.
SUM, MEAN, MEAN_ON_IMAGE, MAX = range(4)


class Tap(NamedTuple):
    """Place j of every window along an axis: `outputs` are the windows whose place j lies on the
    image, `inputs` the positions of these places."""

    outputs: slice
    inputs: slice


@lru_cache(maxsize=1024)
def pool_of(
    size: Shape, kernel: Shape, stride: Shape, pad: Shape, global_pool: bool, convention: str
) -> Geometry:
    """The windows; MXNetError when none fits."""
    if global_pool:
        return geometry(size, size, (), (), ())
    return geometry(size, kernel, stride, (), pad, round_up=convention == "full")


@lru_cache(maxsize=1024)
def _taps(pool: Geometry, axis: int) -> list[Tap]:
    """The taps along spatial axis `axis`, without those that only cover padding."""
    n, k, s, _dilate, p, o = (field[axis] for field in pool)
    taps = []
    for j in range(k):
        first = max(0, -((j - p) // s))
        last = min(o - 1, (n - 1 + p - j) // s)
        if first <= last:
            start = first * s - p + j
            end = start + (last - first) * s + 1
            taps.append(Tap(slice(first, last + 1), slice(start, end, s)))
    return taps


def _reduce(x: Any, pool: Geometry, largest: bool, y: Any) -> None:
    """The maximum or the sum of x in every window: (images, *size) -> (images, *out)."""
    combine, whole = (np.maximum, np.max) if largest else (np.add, np.sum)
    if is_near(pool):
        combine_neighbours(combine, x, pool.kernel, pool.stride, y)
        return
    start = float(np.finfo(x.dtype).min) if largest else 0.0
    last = len(pool.size) - 1
    for axis in range(last + 1):
        shape = x.shape[: axis + 1] + (pool.out[axis],) + x.shape[axis + 2 :]
        result = y if axis == last else np.empty(shape, y.dtype)
        n, k, _s, _dilate, p, o = (field[axis] for field in pool)
        if o == 1 and p == 0 and k == n:
            x = whole(x, axis=axis + 1, keepdims=True, out=result)
            continue
        result.fill(start)
        for tap in _taps(pool, axis):
            part = result[along(axis + 1, tap.outputs)]
            combine(part, x[along(axis + 1, tap.inputs)], out=part)
        x = result


def _sum_backward(g: Any, pool: Geometry, dx: Any) -> None:
    """The transpose of the sum: each g is added to all places of its window."""
    if cover(pool):
        repeat_windows(g, pool.kernel, dx)
        return
    for axis in reversed(range(len(pool.size))):
        shape = g.shape[: axis + 1] + (pool.size[axis],) + g.shape[axis + 2 :]
        result = dx if axis == 0 else np.empty(shape, dx.dtype)
        result.fill(0)
        for tap in _taps(pool, axis):
            result[along(axis + 1, tap.inputs)] += g[along(axis + 1, tap.outputs)]
        g = result


def _winners(x: Any, y: Any, pool: Geometry) -> Iterator[tuple[tuple, tuple, Any]]:
    """For each tap of the windows (outputs, inputs, mask: is it the first with the maximum)."""
    free = np.ones(y.shape, bool)
    for i, taps in enumerate(product(*(_taps(pool, axis) for axis in range(len(pool.size))))):
        outputs = (slice(None), *(tap.outputs for tap in taps))
        inputs = (slice(None), *(tap.inputs for tap in taps))
        won = x[inputs] == y[outputs]
        if i:
            won &= free[outputs]
        free[outputs] ^= won
        yield outputs, inputs, won


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
    if xp is not np:
        reduce_windows.kernels[kind_of(xp)](xp, x, pool, kind, y)
        return
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
        dx.fill(0)
        for outputs, inputs, won in _winners(x, y, pool):
            # Convert to numbers first: a ufunc that converts while it computes is slow.
            dx[inputs] += g[outputs] * won.astype(g.dtype)

    _by_images(body, g, data, y, dx)
    return dx
