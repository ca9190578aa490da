"""Image operations of the transforms: checked at the call, run by the engine.

An image is (H, W, C); a batch of images of one size is (N, H, W, C). `to_tensor` makes the (C, H,
W) that layers take. Random ops draw from the operation's own stream, so the same seed gives the
same images on any thread.

>>> from d2lmini import nd
>>> to_tensor(nd.full((2, 3, 1), 255, dtype="uint8")).shape
(1, 2, 3)

These ops are not in `nd`: MXNet's `nd.image` is not implemented. Formulas and ranges are those of
MXNet 1.9's transforms; as in MXNet, integers are clipped to 0 ... 255, and rounded towards zero
except where they are resized.

Resizing is bilinear (interpolation 1) or takes the nearest pixel (0). Pixels are squares with
centres at half-integers, so output i samples the input at (i + 1/2) * n / m - 1/2; beyond the
border the last pixel repeats.

>>> ramp = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
>>> resize(np, ramp, 2, 1).ravel()
array([0.5, 2.5], dtype=float32)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import Op, Spec

#: Weights of red, green and blue in brightness (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def image_op(infer: Callable[..., Spec], flops: float = 4.0) -> Callable[[Callable], Op]:
    """Make an op without a gradient that is not in the registry."""

    def declare(compute: Callable) -> Op:
        return Op(compute, compute.__name__, infer=infer, flops=flops, grad=None)

    return declare


def _sizes(data: Spec, batches: bool = True) -> tuple[int, int, int]:
    """H, W, C of an image or a batch; MXNetError for other shapes."""
    if len(data.shape) == 3 or (batches and len(data.shape) == 4):
        H, W, C = data.shape[-3:]
        return H, W, C
    many = " or (N, height, width, channels)" if batches else ""
    raise MXNetError(f"expected an image (height, width, channels){many}, got shape {data.shape}")


def check_image(data: Any) -> None:
    """MXNetError unless this NDArray is an image or a batch of images."""
    _sizes(Spec(data.shape, data.dtype))


def _resized_spec(data: Spec, width: int, height: int, interpolation: int) -> Spec:
    if interpolation not in (0, 1):
        raise MXNetError(f"interpolation is 0 (nearest) or 1 (bilinear), got {interpolation!r}")
    return _with_sizes(data, height, width)


def _with_sizes(data: Spec, height: int, width: int) -> Spec:
    if width < 1 or height < 1:
        raise MXNetError(f"width and height must be at least 1, got {width} and {height}")
    return Spec((*data.shape[:-3], height, width, data.shape[-1]), data.dtype)


# -- to layers -------------------------------------------------------------------------------------


def _infer_to_tensor(data: Spec) -> Spec:
    H, W, C = _sizes(data)
    return Spec((*data.shape[:-3], C, H, W), "float32")


@image_op(_infer_to_tensor, flops=1)
def to_tensor(xp, data):
    """data / 255: (H, W, C) of any dtype -> (C, H, W) float32; (N, H, W, C) alike."""
    data = data.transpose((2, 0, 1) if data.ndim == 3 else (0, 3, 1, 2))
    return xp.true_divide(data, np.float32(255), out=xp.empty(data.shape, np.float32), dtype="f4")


def _infer_normalize(data: Spec, *, mean: tuple, std: tuple) -> Spec:
    if len(data.shape) not in (3, 4):
        raise MXNetError(
            f"expected (channels, height, width), or (N, channels, height, width), got {data.shape}"
        )
    if data.dtype.kind != "f":
        raise MXNetError(f"expected floating pixels, got {data.dtype}; call ToTensor before")
    C = data.shape[-3]
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, C):
            raise MXNetError(f"{name} must have 1 or {C} elements for {C} channels, got {values}")
    return data


@image_op(_infer_normalize, flops=2)
def normalize(xp, data, *, mean, std):
    """(data - mean) / std per channel; (C, H, W) or (N, C, H, W), floating dtype kept."""
    y = data - xp.asarray(mean, data.dtype).reshape(-1, 1, 1)
    y /= xp.asarray(std, data.dtype).reshape(-1, 1, 1)
    return y


@normalize.gradient()
def _(g, *, mean, std):
    return normalize(g, mean=(0.0,) * len(mean), std=std)


# -- sizes and places ------------------------------------------------------------------------------


def _infer_resize(data: Spec, *, width: int, height: int, interpolation: int) -> Spec:
    _sizes(data)
    return _resized_spec(data, width, height, interpolation)


def resize(xp: Any, x: Any, width: int, height: int, interpolation: int = 1) -> Any:
    """Resize (..., H, W, C) to (..., height, width, C) of the same dtype; integers are rounded.
    Cost: about 4 operations for each element of the two passes."""
    *_, H, W, _C = x.shape
    if (height, width) == (H, W):
        return x.copy()
    if interpolation == 0:
        for axis, n, m in ((-3, H, height), (-2, W, width)):
            places = np.minimum(np.arange(m) * n // m, n - 1)
            x = xp.take(x, xp.asarray(places), axis=axis)
        return x
    y = x.astype(np.promote_types(x.dtype, np.float32) if x.dtype.kind == "f" else np.float32)
    for axis, n, m in ((-3, H, height), (-2, W, width)):
        centre = (np.arange(m) + 0.5) * (n / m) - 0.5
        first = np.floor(centre)
        low, high = np.clip([first, first + 1], 0, n - 1).astype(np.int64)
        share = (centre - first).astype(y.dtype).reshape(-1, *[1] * (-axis - 1))
        start = xp.take(y, xp.asarray(low), axis=axis)
        part = xp.take(y, xp.asarray(high), axis=axis) - start
        part *= xp.asarray(share)
        start += part  # a + (b - a) * share: exact where a equals b
        y = start
    return as_dtype(xp, y, x.dtype, rounded=True)


def as_dtype(xp: Any, y: Any, dtype: np.dtype, rounded: bool = False) -> Any:
    """Computed pixels in the image's dtype: clipped to an integer's range, and rounded to nearest
    or (as MXNet's colour transforms do) towards zero."""
    if dtype.kind == "f":
        return y.astype(dtype, copy=False)
    if rounded:
        y = xp.rint(y)
    ends = np.iinfo(dtype)
    return xp.clip(y, ends.min, ends.max).astype(dtype)


@image_op(_infer_resize, flops=8)
def resized(xp, data, *, width: int, height: int, interpolation: int):
    """The image resized; see this module."""
    return resize(xp, data, width, height, interpolation)


def _infer_crop(data: Spec, *, x: int, y: int, width: int, height: int) -> Spec:
    H, W, _ = _sizes(data)
    if x < 0 or y < 0 or x + width > W or y + height > H:
        raise MXNetError(
            f"the rectangle x {x}..{x + width}, y {y}..{y + height} does not lie inside the image "
            f"of width {W} and height {H}"
        )
    return _with_sizes(data, height, width)


@image_op(_infer_crop, flops=0)
def cropped(xp, data, *, x: int, y: int, width: int, height: int):
    """The rectangle of size (width, height) whose upper left corner is (x, y)."""
    return data[..., y : y + height, x : x + width, :].copy()


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """The largest (width, height) that fits the image, at most `size`, with size's aspect ratio."""
    w, h = size
    W, H = src_size
    shrunk = min(1.0, W / w, H / h)
    return max(1, int(w * shrunk + 1e-9)), max(1, int(h * shrunk + 1e-9))


def cut_and_resize(xp, data, x, y, w, h, size, interpolation):
    """The rectangle (x, y, w, h) of an array, resized to (width, height)."""
    part = data[..., y : y + h, x : x + w, :]
    return part.copy() if (w, h) == size else resize(xp, part, size[0], size[1], interpolation)


def _infer_window(data: Spec, *, size: tuple, interpolation: int, **_: Any) -> Spec:
    _sizes(data, batches=False)
    return _resized_spec(data, size[0], size[1], interpolation)


@image_op(_infer_window, flops=8)
def random_resized_crop(xp, data, *, size, scale, ratio, interpolation: int, rng):
    """A random rectangle, resized to `size`: area as a share of the image's in `scale`, aspect
    ratio (width / height) log-uniform in `ratio`, and random position. A rectangle that does not
    fit is drawn again, up to ten times; then the op uses the largest centred part."""
    random = rng.generator(0)
    H, W, _ = data.shape
    for _ in range(10):
        area = random.uniform(*scale) * H * W
        proportion = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
        if 1 <= w <= W and 1 <= h <= H:
            x, y = random.integers(0, W - w + 1), random.integers(0, H - h + 1)
            return cut_and_resize(xp, data, x, y, w, h, size, interpolation)
    w, h = scale_down((W, H), size)
    return cut_and_resize(xp, data, (W - w) // 2, (H - h) // 2, w, h, size, interpolation)


def _infer_random(data: Spec, **_: Any) -> Spec:
    _sizes(data, batches=False)
    return data


@image_op(_infer_random, flops=0)
def random_flip(xp, data, *, axis: int, p: float, rng):
    """Mirrored along an axis (0: top to bottom, 1: left to right) with probability p."""
    flipped = rng.generator(0).random() < p
    return xp.ascontiguousarray(xp.flip(data, axis)) if flipped else data.copy()


# -- colours ---------------------------------------------------------------------------------------


def luma(xp: Any, data: Any) -> Any:
    """Brightness of each pixel, (H, W, 1)."""
    if data.shape[-1] != 3:
        return data.astype(np.float32).mean(axis=-1, keepdims=True)
    return (data @ xp.asarray(LUMA))[..., None]


def brightness(xp: Any, data: Any, factor: float) -> Any:
    return data * np.float32(factor)


def contrast(xp: Any, data: Any, factor: float) -> Any:
    """Move the values away from, or towards, the mean brightness of the image."""
    return data * np.float32(factor) + luma(xp, data).mean() * np.float32(1 - factor)


def saturation(xp: Any, data: Any, factor: float) -> Any:
    """Move each pixel away from, or towards, its grey. (MXNet 1.9 uses only the blue share.)"""
    if data.shape[-1] != 3:
        return data
    return data * np.float32(factor) + luma(xp, data) * np.float32(1 - factor)


def hue(xp: Any, data: Any, factor: float) -> Any:
    """Rotate the hue by `factor` turns; each pixel's minimum and maximum of red, green and blue
    stay the same."""
    if data.shape[-1] != 3:
        return data
    top, low = data.max(axis=-1), data.min(axis=-1)
    chroma = top - low
    r, g, b = data[..., 0], data[..., 1], data[..., 2]
    safe = xp.where(chroma == 0, 1, chroma)
    sector = xp.where(
        top == r, (g - b) / safe, xp.where(top == g, 2 + (b - r) / safe, 4 + (r - g) / safe)
    )
    sector = (sector + np.float32(6 * (factor % 1))) % 6
    wheel = xp.stack(
        [xp.abs(sector - 3) - 1, 2 - xp.abs(sector - 2), 2 - xp.abs(sector - 4)], axis=-1
    )
    return low[..., None] + chroma[..., None] * xp.clip(wheel, 0, 1)


COLOURS = {f.__name__: f for f in (brightness, contrast, saturation, hue)}


@image_op(_infer_random, flops=20)
def random_colour(xp, data, *, strengths, rng):
    """Apply each of `strengths` = ((name, strength), ...) once, in random order, with a factor
    uniform in [max(0, 1 - strength), 1 + strength]."""
    random = rng.generator(0)
    y = data.astype(np.float32)
    rounded = False
    for i in random.permutation(len(strengths)) if len(strengths) > 1 else range(len(strengths)):
        name, strength = strengths[i]
        y = COLOURS[name](xp, y, random.uniform(max(0.0, 1 - strength), 1 + strength))
        rounded |= name == "hue"  # otherwise 46.99999 would become 46
    return as_dtype(xp, y, data.dtype, rounded)
