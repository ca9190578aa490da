"""Transforms of images between dataset and network, as Blocks.

>>> from d2lmini import nd
>>> from d2lmini.gluon.data.vision import transforms
>>> prepare = transforms.Compose([transforms.Resize(4), transforms.ToTensor()])
>>> prepare(nd.zeros((28, 28, 1), dtype="uint8")).shape
(1, 4, 4)

Apply them with `dataset.transform_first(prepare)`. Images are (H, W, C), uint8 or float32 in 0 ...
255; `ToTensor` makes the (C, H, W) floats in [0, 1] that `Normalize` and networks take. `size` is
an int for both sides, or (width, height): width first, as in MXNet.

Deterministic transforms also take a batch of images of one size, (N, H, W, C), and transform each
image; so the DataLoader can transform a batch in one operation. Random transforms take one image
and draw from streams of `d2lmini.random`: the seed fixes the results for any number of workers.

Each transform is an operation of the engine, which is checked at the call; the operations are not
in `nd`. Formulas and ranges are those of MXNet 1.9's transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from d2lmini.base import MXNetError, missing_attribute
from d2lmini.base.families import REQUIRED
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock, Layer
from d2lmini.gluon.nn.basic import Lambda, Sequential
from d2lmini.ops.core import Op, Spec

__all__ = [
    "Compose", "ToTensor", "Normalize", "Resize", "CenterCrop", "RandomResizedCrop",
    "RandomFlipLeftRight", "RandomFlipTopBottom",
]  # fmt: skip


def _image_op(infer: Callable[..., Spec], flops: float) -> Callable[[Callable], Op]:
    """Make an op without a gradient that is not in the registry."""
    return lambda compute: Op(compute, compute.__name__, infer=infer, flops=flops, grad=None)


def _sides(data: Any, batches: bool = True) -> tuple[int, int]:
    """H and W of an image or a batch; MXNetError for other shapes."""
    if len(data.shape) == 3 or (batches and len(data.shape) == 4):
        return data.shape[-3:-1]  # type: ignore[no-any-return]
    many = " or (N, height, width, channels)" if batches else ""
    raise MXNetError(f"expected an image (height, width, channels){many}, got shape {data.shape}")


class Compose(Sequential):
    """Applies transforms one after another; plain functions are allowed."""

    _takes_batches = True

    def __init__(self, transforms: list[Callable[[Any], Any]]):
        super().__init__()
        self.add(*[t if isinstance(t, Block) else Lambda(t) for t in transforms])

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the transforms that are HybridBlocks, without a warning."""
        Block.hybridize(self, active, **kwargs)


# -- to layers -------------------------------------------------------------------------------------


def _infer_to_tensor(data: Spec) -> Spec:
    H, W = _sides(data)
    return Spec((*data.shape[:-3], data.shape[-1], H, W), "float32")


@_image_op(_infer_to_tensor, flops=1)
def to_tensor(xp, data):
    """data / 255: (H, W, C) of any dtype -> (C, H, W) float32; (N, H, W, C) alike."""
    data = data.transpose((2, 0, 1) if data.ndim == 3 else (0, 3, 1, 2))
    return xp.true_divide(data, np.float32(255), out=xp.empty(data.shape, np.float32), dtype="f4")


class ToTensor(HybridBlock):
    """(H, W, C) in 0 ... 255 -> (C, H, W) float32 in [0, 1]; (N, H, W, C) -> (N, C, H, W)."""

    _takes_batches = True

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return to_tensor(x)


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


@_image_op(_infer_normalize, flops=2)
def normalize(xp, data, *, mean, std):
    """(data - mean) / std per channel; (C, H, W) or (N, C, H, W), floating dtype kept."""
    y = data - xp.asarray(mean, data.dtype).reshape(-1, 1, 1)
    y /= xp.asarray(std, data.dtype).reshape(-1, 1, 1)
    return y


@normalize.gradient()
def _(g, *, mean, std):
    return normalize(g, mean=(0.0,) * len(mean), std=std)


class Normalize(Layer):
    """(x - mean) / std per channel, for (C, H, W) or (N, C, H, W); mean and std are one number for
    all channels or one per channel. MXNetError for integers (apply ToTensor first)."""

    _takes_batches = True

    mean: Any = 0.0
    std: Any = 1.0

    def _build(self) -> None:
        values = self.mean, self.std
        self._mean, self._std = (tuple(map(float, np.ravel(value))) for value in values)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return normalize(x, mean=self._mean, std=self._std)


# -- sizes and places ------------------------------------------------------------------------------


def resize(xp: Any, x: Any, width: int, height: int) -> Any:
    """Resize (..., H, W, C) to (..., height, width, C) of the same dtype; integers are rounded.

    Bilinear: pixels are squares with centres at half-integers, so output i samples the input at
    (i + 1/2) * n / m - 1/2; beyond the border the last pixel repeats. Cost: about 4 operations for
    each element of the two passes.

    >>> ramp = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    >>> resize(np, ramp, 2, 1).ravel()
    array([0.5, 2.5], dtype=float32)
    """
    H, W = x.shape[-3:-1]
    if (height, width) == (H, W):
        return x.copy()
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
    return y.astype(x.dtype, copy=False) if x.dtype.kind == "f" else xp.rint(y).astype(x.dtype)


def _infer_window(data: Spec, *, size: tuple[int, int], box: Any = None, **_: Any) -> Spec:
    _sides(data, batches=box is not None)
    return Spec((*data.shape[:-3], *size[::-1], data.shape[-1]), data.dtype)


@_image_op(_infer_window, flops=8)
def resized(xp, data, *, box, size):
    """The rectangle `box` = (x, y, width, height), resized to `size` = (width, height)."""
    x, y, w, h = box
    return resize(xp, data[..., y : y + h, x : x + w, :], *size)


def central_box(data: Any, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The centred rectangle of `size`; in a smaller image, the largest one of this aspect ratio."""
    H, W = _sides(data)
    shrunk = min(1.0, W / size[0], H / size[1])
    w, h = (max(1, int(side * shrunk + 1e-9)) for side in size)
    return (W - w) // 2, (H - h) // 2, w, h


class _Sized(Layer):
    """Base class of transforms to images of a size."""

    size: Any = REQUIRED

    def _build(self) -> None:
        pair = self.size if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        if len(pair) != 2 or not all(isinstance(n, (int, np.integer)) and n > 0 for n in pair):
            raise ValueError(
                f"size: expected an int or (width, height), at least 1, got {self.size!r}"
            )
        self._pair = int(pair[0]), int(pair[1])


class Resize(_Sized):
    """Resizes images, bilinear.

    keep_ratio: an int `size` sets the shorter side, and the other side keeps the aspect ratio.
    """

    _takes_batches = True

    keep_ratio: bool = False

    def forward(self, x: Any) -> Any:
        width, height = self._pair
        H, W = _sides(x)
        if self.keep_ratio and not isinstance(self.size, (tuple, list)):
            if W < H:
                height = H * width // W
            else:
                width = W * height // H
        return resized(x, box=(0, 0, W, H), size=(width, height))


class CenterCrop(_Sized):
    """The central part of this size. From a smaller image, the largest central part with this
    aspect ratio, enlarged."""

    _takes_batches = True

    def forward(self, x: Any) -> Any:
        return resized(x, box=central_box(x, self._pair), size=self._pair)


@_image_op(_infer_window, flops=8)
def random_resized_crop(xp, data, *, size, scale, ratio, rng):
    """A random rectangle, resized to `size`: area as a share of the image's in `scale`, aspect
    ratio (width / height) log-uniform in `ratio`, and random position. A rectangle that does not
    fit is drawn again, up to ten times; then the op uses the largest centred part."""
    random = rng.generator(0)
    H, W = _sides(data)
    box = central_box(data, size)
    for _ in range(10):
        area = random.uniform(*scale) * H * W
        proportion = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
        if 1 <= w <= W and 1 <= h <= H:
            box = random.integers(0, W - w + 1), random.integers(0, H - h + 1), w, h
            break
    return resized.compute(xp, data, box=box, size=size)


class RandomResizedCrop(_Sized):
    """A part of random size, aspect ratio and position, resized to `size`.

    scale: range of the part's area as a share of the image's (or the lower end of the range);
    ratio: range of width / height. If ten draws do not fit, the largest central part is used.
    ValueError for a range that is not (low, high) above 0.
    """

    scale: Any = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)

    def _build(self) -> None:
        super()._build()
        if isinstance(self.scale, (int, float)):
            self.scale = (self.scale, 1.0)
        for name, given in (("scale", self.scale), ("ratio", self.ratio)):
            if not isinstance(given, (tuple, list)) or len(given) != 2 or min(given) <= 0:
                raise ValueError(f"{name}: expected (low, high) above 0, got {given!r}")

    def forward(self, x: Any) -> Any:
        how: Any = {"size": self._pair, "scale": tuple(self.scale), "ratio": tuple(self.ratio)}
        return random_resized_crop(x, **how)


def _infer_flip(data: Spec, *, axis: int) -> Spec:
    _sides(data, batches=False)
    return data


@_image_op(_infer_flip, flops=0)
def random_flip(xp, data, *, axis: int, rng):
    """Mirrored along an axis (0: top to bottom, 1: left to right) with probability 1/2."""
    return (xp.flip(data, axis) if rng.generator(0).random() < 0.5 else data).copy()


class RandomFlipLeftRight(HybridBlock):
    """Mirrors left to right with probability 1/2."""

    _axis = 1

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return random_flip(x, axis=self._axis)


class RandomFlipTopBottom(RandomFlipLeftRight):
    """Mirrors top to bottom with probability 1/2."""

    _axis = 0


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("gluon.data.vision.transforms", name, __all__)
