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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from d2lmini.base import missing_attribute
from d2lmini.base.families import REQUIRED
from d2lmini.gluon.block import Block
from d2lmini.gluon.data.dataset import same_as_one_by_one
from d2lmini.gluon.data.vision import image_ops as ops
from d2lmini.gluon.hybrid_block import HybridBlock, Layer
from d2lmini.gluon.nn.basic import Lambda
from d2lmini.gluon.nn.sequential import Sequential

__all__ = [
    "Compose", "ToTensor", "Normalize", "Resize", "CenterCrop", "RandomResizedCrop",
    "RandomFlipLeftRight", "RandomFlipTopBottom", "RandomBrightness", "RandomContrast",
    "RandomSaturation", "RandomHue", "RandomColorJitter",
]  # fmt: skip


def _takes_batches(kind: Any) -> Any:
    """Mark a class whose Blocks transform each image of a batch (N, H, W, C)."""
    kind._on_batches = lambda block: not (block._forward_hooks or block._forward_pre_hooks)
    return kind


# -- joining them ----------------------------------------------------------------------------------


class Compose(Sequential):
    """Applies transforms one after another; plain functions are allowed."""

    def __init__(self, transforms: list[Callable[[Any], Any]]):
        super().__init__()
        self.add(*[t if isinstance(t, Block) else Lambda(t) for t in transforms])

    def _activate(self, active: bool, flags: dict[str, Any]) -> None:
        """Hybridize the transforms that are HybridBlocks, without a warning."""

    def _on_batches(self) -> bool:
        hooks = self._forward_hooks or self._forward_pre_hooks
        return not hooks and all(map(same_as_one_by_one, self._children.values()))


# -- to layers -------------------------------------------------------------------------------------


@_takes_batches
class ToTensor(HybridBlock):
    """(H, W, C) in 0 ... 255 -> (C, H, W) float32 in [0, 1]; (N, H, W, C) -> (N, C, H, W)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.to_tensor(x)


@_takes_batches
class Normalize(Layer):
    """(x - mean) / std per channel, for (C, H, W) or (N, C, H, W); mean and std are one number for
    all channels or one per channel. MXNetError for integers (apply ToTensor first)."""

    mean: Any = 0.0
    std: Any = 1.0

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.normalize(x, mean=_numbers(self.mean), std=_numbers(self.std))


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if hasattr(value, "__len__") else (float(value),)


# -- sizes and places ------------------------------------------------------------------------------


class _Sized(Layer):
    """Base class of transforms to images of a size."""

    size: Any = REQUIRED
    interpolation: int = 1

    def _build(self) -> None:
        pair = self.size if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        if len(pair) != 2 or not all(isinstance(n, (int, np.integer)) and n > 0 for n in pair):
            raise ValueError(
                f"size: expected an int or (width, height), at least 1, got {self.size!r}"
            )
        self._pair = int(pair[0]), int(pair[1])


@_takes_batches
class Resize(_Sized):
    """Resizes images. interpolation: 0 nearest, 1 bilinear; MXNetError for others of MXNet's.

    keep_ratio: an int `size` sets the shorter side, and the other side keeps the aspect ratio.
    """

    _places = {"size": -2, "keep_ratio": -1}

    keep_ratio: bool = False

    def forward(self, x: Any) -> Any:
        width, height = self._pair
        if self.keep_ratio and not isinstance(self.size, (tuple, list)) and x.ndim >= 3:
            H, W = x.shape[-3:-1]
            if W < H:
                height = H * width // W
            else:
                width = W * height // H
        return ops.resized(x, width=width, height=height, interpolation=self.interpolation)


@_takes_batches
class CenterCrop(_Sized):
    """The central part of this size. From a smaller image, the largest central part with this
    aspect ratio, enlarged."""

    def forward(self, x: Any) -> Any:
        ops.check_image(x)
        H, W = x.shape[-3:-1]
        w, h = ops.scale_down((W, H), self._pair)
        part = ops.cropped(x, x=(W - w) // 2, y=(H - h) // 2, width=w, height=h)
        if (w, h) == self._pair:
            return part
        width, height = self._pair
        return ops.resized(part, width=width, height=height, interpolation=self.interpolation)


class RandomResizedCrop(_Sized):
    """A part of random size, aspect ratio and position, resized to `size`.

    scale: range of the part's area as a share of the image's (or the lower end of the range);
    ratio: range of width / height. If ten draws do not fit, the largest central part is used.
    ValueError for a range that is not (low, high) above 0.
    """

    _places = {"size": -2, "scale": -1, "ratio": -1}

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
        return ops.random_resized_crop(
            x, size=self._pair, scale=tuple(self.scale), ratio=tuple(self.ratio),
            interpolation=self.interpolation,
        )  # fmt: skip


class RandomFlipLeftRight(HybridBlock):
    """Mirrors left to right with probability 1/2."""

    _axis = 1

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.random_flip(x, axis=self._axis, p=0.5)


class RandomFlipTopBottom(RandomFlipLeftRight):
    """Mirrors top to bottom with probability 1/2."""

    _axis = 0


# -- colours ---------------------------------------------------------------------------------------


class _RandomColour(Layer):
    """Changes colours, each by a factor uniform in [max(0, 1 - strength), 1 + strength]: 0.2 means
    0.8 to 1.2. ValueError for a strength below 0."""

    def _build(self) -> None:
        strengths = {name: float(getattr(self, name)) for name in self._fields}
        if min(strengths.values()) < 0:
            raise ValueError(f"{type(self).__name__}: expected strengths >= 0, got {strengths}")
        self._strengths = tuple((name, s) for name, s in strengths.items() if s)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.random_colour(x, strengths=self._strengths)


class RandomBrightness(_RandomColour):
    """Multiplies all pixels by a random factor."""

    brightness: float = REQUIRED


class RandomContrast(_RandomColour):
    """Moves values away from, or towards, the image's mean brightness by a random factor."""

    contrast: float = REQUIRED


class RandomSaturation(_RandomColour):
    """Moves each pixel away from, or towards, its grey by a random factor."""

    saturation: float = REQUIRED


class RandomHue(_RandomColour):
    """Rotates hues by up to `hue` turns (0.5 reaches all hues)."""

    hue: float = REQUIRED


class RandomColorJitter(_RandomColour):
    """Changes brightness, contrast, saturation and hue, in random order."""

    brightness: float = 0
    contrast: float = 0
    saturation: float = 0
    hue: float = 0


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("gluon.data.vision.transforms", name, __all__)
