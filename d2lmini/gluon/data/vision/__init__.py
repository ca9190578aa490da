"""Images: datasets and transforms.

datasets    MNIST, FashionMNIST, CIFAR10, ImageFolderDataset
transforms  Compose, Resize, ToTensor, Normalize, crops, flips: as Blocks
"""

from typing import NoReturn

from d2lmini.base import missing_attribute

# isort: off
from d2lmini.gluon.data.vision import datasets, transforms
from d2lmini.gluon.data.vision.datasets import (
    CIFAR10, MNIST, FashionMNIST, ImageFolderDataset,
)  # fmt: skip

__all__ = [
    "CIFAR10", "FashionMNIST", "ImageFolderDataset", "MNIST", "datasets", "transforms",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("gluon.data.vision", name, __all__)
