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
from d2lmini.gluon.block import Block
from d2lmini.gluon.data.batchify import same_as_one_by_one
from d2lmini.gluon.data.vision import image_ops as ops
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.nn.sequential import Sequential
from d2lmini.ops.random_state import next_key

__all__ = [
    "Compose", "RandomApply", "Cast", "ToTensor", "Normalize", "Resize", "CenterCrop", "CropResize",
    "RandomResizedCrop", "RandomFlipLeftRight", "RandomFlipTopBottom",
    "RandomBrightness", "RandomContrast", "RandomSaturation", "RandomHue", "RandomColorJitter",
    "RandomLighting",
]  # fmt: skip


def _takes_batches(kind: Any) -> Any:
    """Mark a class whose Blocks transform each image of a batch (N, H, W, C)."""
    kind._on_batches = lambda block: (
        not (  # type: ignore[attr-defined]
            block._forward_hooks or block._forward_pre_hooks
        )
    )
    return kind


def _pair(size: Any) -> tuple[int, int]:
    """(width, height) of an int or a pair."""
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(isinstance(n, (int, np.integer)) and n > 0 for n in pair):
        raise ValueError(f"size: expected an int or (width, height), at least 1, got {size!r}")
    return int(pair[0]), int(pair[1])


# -- joining them ----------------------------------------------------------------------------------


class _Function(Block):
    """A plain function as a transform."""

    def __init__(self, fn: Callable[[Any], Any]):
        super().__init__()
        self.forward = fn  # type: ignore[method-assign]


def _blocks(transforms: Any) -> list[Block]:
    return [t if isinstance(t, Block) else _Function(t) for t in transforms]


class Compose(Sequential):
    """Applies transforms one after another; plain functions are allowed."""

    def __init__(self, transforms: list[Callable[[Any], Any]]):
        super().__init__()
        self.add(*_blocks(transforms))

    def _activate(self, active: bool, flags: dict[str, Any]) -> None:
        """Hybridize the transforms that are HybridBlocks, without a warning."""

    def _on_batches(self) -> bool:
        hooks = self._forward_hooks or self._forward_pre_hooks
        return not hooks and all(map(same_as_one_by_one, self._children.values()))


class RandomApply(Sequential):
    """Applies all transforms with probability p, otherwise none of them."""

    def __init__(self, transforms: Any, p: float = 0.5):
        super().__init__()
        several = isinstance(transforms, (list, tuple))
        self.add(*_blocks(transforms if several else [transforms]))
        self.p = p

    def forward(self, x: Any) -> Any:
        return super().forward(x) if next_key().generator(0).random() < self.p else x


# -- to layers -------------------------------------------------------------------------------------


@_takes_batches
class Cast(HybridBlock):
    """Converts to another dtype."""

    def __init__(self, dtype: Any = "float32"):
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(x, dtype=self._dtype)


@_takes_batches
class ToTensor(HybridBlock):
    """(H, W, C) in 0 ... 255 -> (C, H, W) float32 in [0, 1]; (N, H, W, C) -> (N, C, H, W)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.to_tensor(x)


@_takes_batches
class Normalize(HybridBlock):
    """(x - mean) / std per channel, for (C, H, W) or (N, C, H, W); mean and std are one number for
    all channels or one per channel. MXNetError for integers (apply ToTensor first)."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0):
        super().__init__()
        self._how: dict[str, Any] = {"mean": _numbers(mean), "std": _numbers(std)}

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.normalize(x, **self._how)


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if hasattr(value, "__len__") else (float(value),)


# -- sizes and places ------------------------------------------------------------------------------


@_takes_batches
class Resize(Block):
    """Resizes images. interpolation: 0 nearest, 1 bilinear, 2 bicubic, 3 area.

    keep_ratio: an int `size` sets the shorter side, and the other side keeps the aspect ratio.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1):
        super().__init__()
        self._size = _pair(size)
        self._keep = keep_ratio and not isinstance(size, (tuple, list))
        self._interpolation = interpolation

    def forward(self, x: Any) -> Any:
        width, height = self._size
        if self._keep and x.ndim >= 3:
            H, W = x.shape[-3:-1]
            if W < H:
                height = H * width // W
            else:
                width = W * height // H
        return ops.resized(x, width=width, height=height, interpolation=self._interpolation)


@_takes_batches
class CenterCrop(Block):
    """The central part of this size. From a smaller image, the largest central part with this
    aspect ratio, enlarged."""

    def __init__(self, size: Any, interpolation: int = 1):
        super().__init__()
        self._size = _pair(size)
        self._interpolation = interpolation

    def forward(self, x: Any) -> Any:
        ops.check_image(x)
        H, W = x.shape[-3:-1]
        w, h = ops.scale_down((W, H), self._size)
        return _crop(x, (W - w) // 2, (H - h) // 2, w, h, self._size, self._interpolation)


@_takes_batches
class CropResize(Block):
    """The rectangle of (width, height) whose upper left corner is (x, y), resized if `size` is
    given. MXNetError unless the rectangle lies inside the image."""

    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        size: Any = None,
        interpolation: int | None = None,
    ):
        super().__init__()
        self._place = (x, y, width, height)
        self._size = (width, height) if size is None else _pair(size)
        self._interpolation = 1 if interpolation is None else interpolation

    def forward(self, data: Any) -> Any:
        return _crop(data, *self._place, self._size, self._interpolation)


def _crop(data: Any, x: int, y: int, w: int, h: int, size: tuple, interpolation: int) -> Any:
    part = ops.cropped(data, x=x, y=y, width=w, height=h)
    if (w, h) == size:
        return part
    return ops.resized(part, width=size[0], height=size[1], interpolation=interpolation)


class RandomResizedCrop(Block):
    """A part of random size, aspect ratio and position, resized to `size`.

    scale: range of the part's area as a share of the image's (or the lower end of the range);
    ratio: range of width / height. If ten draws do not fit, the largest central part is used.
    ValueError for a range that is not (low, high) above 0.
    """

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: int = 1,
    ):
        super().__init__()
        scale = (scale, 1.0) if isinstance(scale, (int, float)) else scale
        for name, given in (("scale", scale), ("ratio", ratio)):
            if not isinstance(given, (tuple, list)) or len(given) != 2 or min(given) <= 0:
                raise ValueError(f"{name}: expected (low, high) above 0, got {given!r}")
        self._how: dict[str, Any] = {
            "size": _pair(size),
            "scale": tuple(scale),
            "ratio": tuple(ratio),
            "interpolation": interpolation,
        }

    def forward(self, x: Any) -> Any:
        return ops.random_resized_crop(x, **self._how)


class RandomFlipLeftRight(HybridBlock):
    """Mirrors left to right with probability 1/2."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.random_flip(x, axis=1, p=0.5)


class RandomFlipTopBottom(HybridBlock):
    """Mirrors top to bottom with probability 1/2."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.random_flip(x, axis=0, p=0.5)


# -- colours ---------------------------------------------------------------------------------------


class _RandomColour(HybridBlock):
    """Changes colours by factors uniform in [max(0, 1 - strength), 1 + strength]."""

    def __init__(self, shuffled: bool = False, **strengths: float):
        super().__init__()
        if min(strengths.values()) < 0:
            raise ValueError(f"{type(self).__name__}: expected strengths >= 0, got {strengths}")
        self._how: dict[str, Any] = {
            "strengths": tuple((name, float(s)) for name, s in strengths.items() if s),
            "shuffled": shuffled,
        }

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.random_colour(x, **self._how)


class RandomBrightness(_RandomColour):
    """Multiplies all pixels by a random factor; strength 0.2 means 0.8 to 1.2."""

    def __init__(self, brightness: float):
        super().__init__(brightness=brightness)


class RandomContrast(_RandomColour):
    """Moves values away from, or towards, the image's mean brightness by a random factor."""

    def __init__(self, contrast: float):
        super().__init__(contrast=contrast)


class RandomSaturation(_RandomColour):
    """Moves each pixel away from, or towards, its grey by a random factor."""

    def __init__(self, saturation: float):
        super().__init__(saturation=saturation)


class RandomHue(_RandomColour):
    """Rotates hues by up to `hue` turns (0.5 reaches all hues)."""

    def __init__(self, hue: float):
        super().__init__(hue=hue)


class RandomColorJitter(_RandomColour):
    """Changes brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ):
        super().__init__(
            shuffled=True, brightness=brightness, contrast=contrast, saturation=saturation, hue=hue
        )


class RandomLighting(HybridBlock):
    """Changes the light's colour along ImageNet's principal components, with deviation alpha."""

    def __init__(self, alpha: float):
        super().__init__()
        self._alpha = float(alpha)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return ops.random_lighting(x, alpha=self._alpha)


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("gluon.data.vision.transforms", name, __all__)
