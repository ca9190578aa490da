"""Pictures: datasets, and transforms on the way to the network.

datasets    MNIST, FashionMNIST, CIFAR10, CIFAR100, ImageFolderDataset
transforms  Compose, Resize, ToTensor, Normalize, crops, flips, colours: Blocks
image_ops   what transforms compute, as operations of the engine
resize      images in other sizes
idx         the file formats
"""

# isort: off
from d2lmini.gluon.data.vision import datasets, transforms
from d2lmini.gluon.data.vision.datasets import (
    CIFAR10, CIFAR100, MNIST, FashionMNIST, ImageFolderDataset, ImageRecordDataset,
)  # fmt: skip

__all__ = [
    "CIFAR10", "CIFAR100", "FashionMNIST", "ImageFolderDataset", "ImageRecordDataset", "MNIST",
    "datasets", "transforms",
]  # fmt: skip
