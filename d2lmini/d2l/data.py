"""Data for the book's programs: batches of arrays, Fashion-MNIST, files that must be fetched first.

>>> from d2lmini import d2l, nd
>>> features, labels = nd.arange(6).reshape((3, 2)), nd.arange(3)
>>> [X.shape for X, y in d2l.data_iter(2, features, labels)]
[(2, 2), (1, 2)]

Without a network: `d2l.load_data_digits()` needs none.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.ndarray import NDArray

#: Files that the book's programs read: their names and where they come from.
SOURCES = {
    "airfoil_self_noise.dat": "the NASA data set 'Airfoil Self-Noise' (UCI repository, number 291)",
    "jaychou_lyrics.txt.zip": "the folder `data` of the book's repository",
}

_FASHION_MNIST = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip


def data_iter(
    batch_size: int, features: NDArray, labels: NDArray
) -> Iterator[tuple[NDArray, NDArray]]:
    """Batches of examples in random order (Python's `random`); the last may be smaller."""
    order = list(range(len(features)))
    random.shuffle(order)
    for start in range(0, len(order), batch_size):
        chosen = nd.array(order[start : start + batch_size])
        yield features.take(chosen), labels.take(chosen)


def data_file(name: str) -> Path:
    """The file of that name in `../data` or `data`, as in the book's programs, or in the folder
    that the environment variable D2L_DATA names. FileNotFoundError names the file's source."""
    folders = ["../data", "data", *filter(None, [os.environ.get("D2L_DATA")])]
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return path
    looked = ", ".join(str(Path(folder).resolve()) for folder in folders)
    raise FileNotFoundError(
        f"{name} is not here; it is part of {SOURCES.get(name, 'no data set known')} and is not "
        f"fetched by itself. Put it into one of {looked}, or let D2L_DATA name its folder"
    )


def get_data_ch7() -> tuple[NDArray, NDArray]:
    """1500 measurements of airfoil noise: features (1500, 5), labels (1500,), each column with mean
    0 and standard deviation 1. Read from `airfoil_self_noise.dat` (see `data_file`); MXNetError if
    the file does not hold rows of equally many numbers."""
    path = data_file("airfoil_self_noise.dat")
    try:
        data = np.loadtxt(path, delimiter="\t", ndmin=2)
    except (ValueError, OverflowError) as problem:
        raise MXNetError(f"{path}: {str(problem)[:300]}") from None
    if len(data) < 2:
        raise MXNetError(f"{path}: expected rows of numbers between tabs, got {len(data)} of them")
    data = (data - data.mean(axis=0)) / data.std(axis=0)
    return nd.array(data[:1500, :-1]), nd.array(data[:1500, -1])


def get_fashion_mnist_labels(labels: Iterable[Any]) -> list[str]:
    """The names of the classes 0 to 9."""
    return [_FASHION_MNIST[int(i)] for i in labels]


def load_data_fashion_mnist(
    batch_size: int, resize: int | None = None, root: str = "~/.mxnet/datasets/fashion-mnist"
) -> tuple[Any, Any]:
    """Training and test DataLoader of Fashion-MNIST: batches (N, 1, 28, 28) between 0 and 1.

    resize: side length of the images, if another is wanted. root: the folder with the four `.gz`
    files; missing files are downloaded, and an error offline names the files.
    """
    from d2lmini.gluon import data as gdata

    steps: list[Any] = [gdata.vision.transforms.ToTensor()]
    if resize:
        steps.insert(0, gdata.vision.transforms.Resize(resize))
    transform = gdata.vision.transforms.Compose(steps)
    workers = 0 if sys.platform.startswith("win32") else 4
    loaders = []
    for train in (True, False):
        images = gdata.vision.FashionMNIST(root=os.path.expanduser(root), train=train)
        loaders.append(
            gdata.DataLoader(
                images.transform_first(transform), batch_size, shuffle=train, num_workers=workers
            )
        )
    return loaders[0], loaders[1]
