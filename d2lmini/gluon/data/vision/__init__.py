"""Images: datasets and transforms.

datasets    MNIST, FashionMNIST, CIFAR10, CIFAR100, ImageFolderDataset
transforms  Compose, Resize, ToTensor, Normalize, crops, flips, colours: as Blocks
image_ops   the computations of transforms, as operations of the engine
resize      resizing of images
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
