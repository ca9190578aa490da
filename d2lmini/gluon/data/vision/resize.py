"""Resizing: each output row is a weighted sum of a few input rows; then the same for columns.

`taps` returns the input rows and their weights, for the interpolations that MXNet takes from
OpenCV: 0 nearest, 1 bilinear, 2 bicubic, 3 area. Pixels are squares with centres at half-integers,
so output i samples the input at (i + 1/2) * n / m - 1/2; beyond the border the last pixel repeats.

>>> import numpy as np
>>> ramp = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
>>> resize(np, ramp, 2, 1).ravel()
array([0.5, 2.5], dtype=float32)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

INTERPOLATIONS = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area"}


def resize(xp: Any, x: Any, width: int, height: int, interpolation: int = 1) -> Any:
    """Resize (..., H, W, C) to (..., height, width, C) of the same dtype; integers are rounded.

    Cost: about 2 * taps operations for each element of the two passes (bilinear: 2 taps).
    """
    *_, H, W, _C = x.shape
    if (height, width) == (H, W):
        return x.copy()
    if interpolation == 0:
        rows, columns = map(xp.asarray, (_nearest(H, height), _nearest(W, width)))
        return xp.take(xp.take(x, rows, axis=-3), columns, axis=-2)
    if interpolation == 3 and (height > H or width > W):
        interpolation = -3  # enlarging: pixels grow, blended only at their borders
    floating = x.dtype if x.dtype.kind == "f" and x.dtype.itemsize > 2 else np.dtype(np.float32)
    y = _along(xp, x, -3, *taps(H, height, interpolation), floating)
    y = _along(xp, y, -2, *taps(W, width, interpolation), floating)
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


def _nearest(n: int, m: int) -> np.ndarray:
    return np.minimum(np.arange(m) * n // m, n - 1)


def _along(
    xp: Any, x: Any, axis: int, places: np.ndarray, weights: np.ndarray, dtype: np.dtype
) -> Any:
    """sum over k of weights[k, i] * x[places[k, i]] along `axis` (-3 or -2), in `dtype`."""
    shape = (-1,) + (1,) * (-axis - 1)
    weights = xp.asarray(weights.astype(dtype).reshape(len(weights), *shape))
    places = xp.asarray(places)
    y = xp.take(x, places[0], axis=axis).astype(dtype, copy=False)
    if len(places) == 2:  # a + (b - a) * share: exact where a equals b
        part = xp.take(x, places[1], axis=axis) - y
        part *= weights[1]
        y += part
        return y
    y *= weights[0]
    for place, weight in zip(places[1:], weights[1:]):
        y += xp.take(x, place, axis=axis) * weight
    return y


@lru_cache(maxsize=64)
def taps(n: int, m: int, interpolation: int) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of the m outputs on an axis of n pixels: indices and weights, both (taps, m)."""
    scale = n / m
    out = np.arange(m)
    if interpolation == 3:
        return _area(n, m)
    if interpolation == -3:
        first = np.floor(out * scale)
        share = out + 1 - (first + 1) / scale
        share = np.where(share <= 0, 0.0, share - np.floor(share))
    else:
        centre = (out + 0.5) * scale - 0.5
        first = np.floor(centre)
        share = centre - first
    if interpolation == 2:
        offsets = np.arange(-1, 3)
        weights = np.stack([_cubic(np.abs(share - k)) for k in offsets])
    else:
        offsets = np.arange(2)
        weights = np.stack([1 - share, share])
    places = np.clip(first + offsets[:, None], 0, n - 1).astype(np.int64)
    return places, weights


def _cubic(t: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Keys' cubic convolution kernel, with OpenCV's a (R. Keys, 1981)."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = a * (((t - 5) * t + 8) * t - 4)
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _area(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Each output is the mean of the n / m pixels it covers; end pixels count partially."""
    scale = n / m
    begin, end = np.arange(m) * scale, np.arange(1, m + 1) * scale
    first = np.floor(begin + 1e-9).astype(np.int64)
    places = first + np.arange(int(np.ceil(scale)) + 1)[:, None]
    covered = np.minimum(places + 1, end) - np.maximum(places, begin)
    weights = np.where(covered > 1e-9, covered, 0.0) / scale
    used = weights.any(axis=1)
    return np.clip(places, 0, n - 1)[used], weights[used]
