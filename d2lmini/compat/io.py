"""`mx.io`: iterators over batches, as programs from before Gluon use them.

>>> import numpy as np
>>> from d2lmini import io
>>> batches = io.NDArrayIter(np.arange(10).reshape(5, 2), np.arange(5), batch_size=2)
>>> batches.provide_data
[DataDesc[data,(2, 2),<class 'numpy.float32'>,NCHW]]
>>> for batch in batches:
...     print(batch.label[0].asnumpy(), batch.pad)
[0. 1.] 0
[2. 3.] 0
[4. 0.] 1

An iterator gives `DataBatch`es until the epoch is over, and begins again after `reset()`. MXNet's
file readers (CSVIter, ImageRecordIter, ...) and its base class for others are left out; use
`gluon.data`.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import missing_attribute
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.exchange import from_array

__all__ = ["DataBatch", "DataDesc", "NDArrayIter"]


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name, shape, dtype and layout of an input; as a tuple it is (name, shape)."""

    dtype: Any
    layout: str

    def __new__(
        cls, name: str, shape: Any, dtype: Any = np.float32, layout: str = "NCHW"
    ) -> DataDesc:
        self = super().__new__(cls, name, shape)
        self.dtype = dtype
        self.layout = layout
        return self

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"


@dataclass(eq=False, repr=False)
class DataBatch:
    """One batch: lists of NDArrays, and the number of padding elements at its end."""

    data: Any
    label: Any = None
    pad: int | None = None
    index: Any = None

    def __post_init__(self) -> None:
        for name, value in (("data", self.data), ("label", self.label)):
            if value is not None and not isinstance(value, (list, tuple)):
                raise TypeError(f"DataBatch: {name} must be a list of NDArrays, got {value!r}")

    def __str__(self) -> str:
        shapes = [x.shape for x in self.data]
        labels = self.label and [x.shape for x in self.label]
        return f"{type(self).__name__}: data shapes: {shapes} label shapes: {labels}"


class NDArrayIter:
    """Batches of arrays in memory.

    data, label: an NDArray or NumPy array, a list of them, or a dict by name; NDArrays keep their
    dtype, others become float32. A single array is called `data_name`, several in a list
    `_0_data`, `_1_data`, ...; those of a dict are sorted by name.
    shuffle: a new order in each epoch (`numpy.random.seed` repeats it).
    last_batch_handle: a shorter last batch is filled up from the beginning ('pad'; `pad` of the
    batch says by how many) or dropped ('discard'). (MXNet also lets it begin the next epoch.)

    ValueError for different lengths, an invalid batch_size or last_batch_handle; TypeError for
    other kinds of data.
    """

    def __init__(
        self, data: Any, label: Any = None, batch_size: int = 1, shuffle: bool = False,
        last_batch_handle: str = "pad", data_name: str = "data",
        label_name: str = "softmax_label", layout: str = "NCHW",
    ):  # fmt: skip
        self.batch_size = batch_size
        if batch_size < 1:
            raise ValueError(f"NDArrayIter: batch_size must be at least 1, got {batch_size}")
        if last_batch_handle not in ("pad", "discard"):
            raise ValueError(
                "NDArrayIter: last_batch_handle must be 'pad' or 'discard' ('roll_over' is left "
                f"out of d2lmini), got {last_batch_handle!r}"
            )
        self.data = _name_arrays(data, data_name)
        self.label = _name_arrays(label, label_name)
        self.num_source = len(self.data) + len(self.label)
        if not self.data:
            raise ValueError("NDArrayIter: expected at least one array of data, got none")
        self.num_data = self.data[0][1].shape[0]
        for name, array in self.data + self.label:
            if array.shape[0] != self.num_data:
                raise ValueError(
                    f"NDArrayIter: {self.data[0][0]} has {self.num_data} elements, {name} has "
                    f"{array.shape[0]}"
                )
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.layout = layout
        self.idx = np.arange(self.num_data)
        self._order = self.idx.copy()  # the order of this epoch
        self.reset()

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of the arrays that `getdata` gives."""
        return self._describe(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of the arrays that `getlabel` gives."""
        return self._describe(self.label)

    def _describe(self, arrays: list[tuple[str, NDArray]]) -> list[DataDesc]:
        return [
            DataDesc(name, (self.batch_size, *array.shape[1:]), array.dtype, self.layout)
            for name, array in arrays
        ]

    def reset(self) -> None:
        """Begin the next epoch."""
        self.cursor = -self.batch_size
        # As in MXNet, shuffle the indices, and then the data in place by these: the same seed gives
        # the same epochs.
        if self.shuffle:
            np.random.shuffle(self.idx)
            self._order = self._order[self.idx]

    hard_reset = reset

    def __iter__(self) -> NDArrayIter:
        return self

    def next(self) -> DataBatch:
        """The next batch; StopIteration at the end of the epoch. Its `pad` counts the elements that
        are from the beginning of the epoch."""
        self.cursor += self.batch_size
        pad = max(self.cursor + self.batch_size - self.num_data, 0)
        if pad and (self.last_batch_handle == "discard" or self.cursor >= self.num_data):
            raise StopIteration
        return DataBatch(self._batch(self.data), self._batch(self.label), pad)

    def __next__(self) -> DataBatch:
        return self.next()

    def _batch(self, arrays: list[tuple[str, NDArray]]) -> list[NDArray]:
        places = np.arange(self.cursor, self.cursor + self.batch_size)
        places = np.take(self._order, places, mode="wrap")
        return [nd.take(array, from_array(places, array.context)) for _, array in arrays]


def _name_arrays(data: Any, name: str) -> list[tuple[str, NDArray]]:
    """(name, NDArray) pairs of the user's data."""
    if data is None or (isinstance(data, (list, dict)) and not data):
        return []
    if isinstance(data, (NDArray, np.ndarray)):
        data = {name: data}
    elif isinstance(data, (list, tuple)):
        names = [name] if len(data) == 1 else [f"_{i}_{name}" for i in range(len(data))]
        data = dict(zip(names, data))
    if not isinstance(data, dict):
        raise TypeError(
            "NDArrayIter: expected an NDArray, a NumPy array, a list of them or a dict of them by "
            f"name, got {type(data).__name__}"
        )
    return [(k, v if isinstance(v, NDArray) else nd.array(v)) for k, v in sorted(data.items())]


def __getattr__(name: str) -> Any:
    raise missing_attribute("io", name, __all__)
