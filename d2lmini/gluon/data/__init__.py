"""Data sets, loaders and transforms. In reading order:

    sampler     the order of elements, and their batches
    dataset     elements by index, views of datasets, and from elements to a batch
    dataloader  batches in order, prefetched
    vision      images: MNIST and others, transforms

>>> from d2lmini import nd
>>> from d2lmini.gluon import data as gdata
>>> dataset = gdata.ArrayDataset(nd.arange(6).reshape((3, 2)), nd.array([0, 1, 0]))
>>> [(X.shape, y.shape) for X, y in gdata.DataLoader(dataset, batch_size=2, shuffle=True)]
[((2, 2), (2,)), ((1, 2), (1,))]
"""

from typing import NoReturn

from d2lmini.base import missing_attribute

# isort: off
from d2lmini.gluon.data import dataloader, dataset, sampler
from d2lmini.gluon.data.sampler import (
    BatchSampler, RandomSampler, Sampler, SequentialSampler, SplitSampler,
)  # fmt: skip
from d2lmini.gluon.data.dataset import ArrayDataset, Dataset, SimpleDataset
from d2lmini.gluon.data.dataloader import DataLoader
from d2lmini.gluon.data import vision

__all__ = [
    "ArrayDataset", "BatchSampler", "DataLoader", "Dataset", "RandomSampler",
    "Sampler", "SequentialSampler", "SimpleDataset", "SplitSampler", "vision",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("gluon.data", name, __all__)
