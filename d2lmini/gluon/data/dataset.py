"""Datasets: elements by index, and views of datasets.

A dataset has `len` and `[i]`. `transform` returns a view of it:

>>> squares = SimpleDataset([1, 2, 3]).transform(lambda x: x * x)
>>> list(squares)
[1, 4, 9]

A loader takes some elements, or a part for each process, by their indices: `DataLoader(data,
batch_size, sampler=range(100))`.

`transform` is lazy: the function runs when an element is accessed, in the worker that accesses it.

`_whole_batch` is a private fast path of the DataLoader. It returns many elements at once, already
batched, where the result equals that of single accesses (arrays, or transforms that take batches);
it is many times faster. A dataset without a fast path returns None. See `batchify.gather`.

From elements to a batch: the default batchify function, and a fast path to the same result.

>>> import numpy as np
>>> images, labels = default_batchify_fn([(np.zeros((2, 2)), 3), (np.ones((2, 2)), 4)])
>>> images.shape, labels
((2, 2, 2),
[3 4]
<NDArray 2 @cpu(0)>)

`gather` takes many elements of an array at once. The result is bitwise equal to indexing and
joining single elements, with the interpreter's cost for one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import LeftOut, alias
from d2lmini.context import current_context
from d2lmini.gluon.utils import as_default
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.exchange import from_array
from d2lmini.ops.signature import DTYPES


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Join elements along a new first axis.

    NDArrays are stacked. Tuples are joined position by position into a list. Other elements go
    through NumPy and keep NumPy's dtype: Python ints give int64, floats float64. Raises TypeError
    when the elements cannot be joined: different shapes, or no numbers.
    """
    first = data[0]
    if isinstance(first, NDArray):
        if not all(isinstance(x, NDArray) for x in data):
            kinds = sorted({type(x).__name__ for x in data})
            raise TypeError(f"a batch of {' and '.join(kinds)} cannot be joined: give one kind")
        return nd.stack(*data)
    if isinstance(first, tuple):
        return [default_batchify_fn(part) for part in zip(*data)]
    try:
        values = np.asarray(data)
    except ValueError as problem:
        raise TypeError(
            f"the elements of a batch have different shapes ({problem}); bring them to one shape "
            "with a transform, or join them with a batchify_fn of your own"
        ) from None
    if values.dtype.name not in DTYPES:
        raise TypeError(
            f"a batch of {type(first).__name__} becomes a NumPy array of {values.dtype}, which is "
            "no NDArray; make numbers of the elements, or join them with a batchify_fn of your own"
        )
    return as_default(from_array(values, current_context()))


#: In MXNet, the batchify function of worker processes, which puts batches into shared memory.
default_mp_batchify_fn = default_batchify_fn


def gather(data: Any, indices: Sequence[int]) -> Any:
    """default_batchify_fn([data[i] for i in indices]) at once; None without a fast path.

    The fast path exists for NumPy arrays, for `np.ndarray`s, for NDArrays with two or more axes,
    and for datasets whose class defines both `_whole_batch` and `__getitem__` (a subclass that
    overrides only `__getitem__` changes the elements).
    """
    if isinstance(data, NDArray):
        return _rows(data, indices)
    if type(data) in (np.ndarray, alias.array):
        if data.ndim == 0 or data.dtype.name not in DTYPES:
            return None
        rows = data[np.asarray(indices, dtype=np.int64)]
        return as_default(from_array(rows, current_context(), adopt=True))
    for base in type(data).__mro__:
        if "__getitem__" in base.__dict__:
            return data._whole_batch(indices) if "_whole_batch" in base.__dict__ else None
    return None


def _rows(data: NDArray, indices: Sequence[int]) -> Any:
    """Rows of an array as a copy. (Not of an NDArray of one axis, where x[i] has shape (1,).)"""
    places = np.array(indices, dtype=np.int64)  # a copy: a sampler may reuse its list
    n = data.shape[0] if data.ndim > 1 or data.is_np else 0
    if n == 0 or places.size == 0 or places.min() < 0 or places.max() >= n:
        return None  # the path for single elements raises the error
    return nd.take(data, from_array(places, data.context, adopt=True))


def same_as_one_by_one(fn: Any) -> bool:
    """True if fn(batch of images) equals fn on each image. Transforms declare this by
    `_takes_batches`; each class declares it itself, because a subclass may differ."""
    return (
        "_takes_batches" in vars(type(fn))
        and not (fn._forward_hooks or fn._forward_pre_hooks)
        and all(map(same_as_one_by_one, fn._children.values()))
    )


__all__ = ["ArrayDataset", "Dataset", "SimpleDataset"]


class Dataset:
    """Base class of datasets; subclasses define `__getitem__(i)` and `__len__()`."""

    def __getitem__(self, idx: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Apply fn(*element) to tuples, else fn(element): at each access if `lazy`, otherwise once,
        immediately."""
        return _LazyTransformDataset(self, fn).loaded(not lazy)

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Apply `fn` to the first part of each element (the image); keep the other parts."""
        return _LazyTransformDataset(self, fn, first=True).loaded(not lazy)

    filter, sample, shard, take = LeftOut(), LeftOut(), LeftOut(), LeftOut()


class SimpleDataset(Dataset):
    """A list or array as a dataset."""

    def __init__(self, data: Any):
        self._data = data

    def __getitem__(self, idx: Any) -> Any:
        return self._data[idx]

    def __len__(self) -> int:
        return len(self._data)

    def _whole_batch(self, indices: Sequence[int]) -> Any:
        return gather(self._data, indices)


class ArrayDataset(Dataset):
    """Several arrays (NDArray, NumPy, lists, datasets) of one length; elements are tuples.

    With a single array the elements are not wrapped in tuples. An NDArray with one axis is kept as
    a NumPy array, so that its elements are numbers. Raises ValueError if the lengths differ or
    without arrays.
    """

    def __init__(self, *args: Any):
        if not args:
            raise ValueError("ArrayDataset: needs at least 1 array")
        self._length = len(args[0])
        self._data: list[Any] = []
        for i, data in enumerate(args):
            if len(data) != self._length:
                raise ValueError(
                    "ArrayDataset: all arrays must have the same length; "
                    f"array 0 has {self._length}, array {i} has {len(data)}"
                )
            one_axis = isinstance(data, NDArray) and data.ndim == 1
            self._data.append(data.asnumpy() if one_axis else data)

    def __getitem__(self, idx: Any) -> Any:
        if len(self._data) == 1:
            return self._data[0][idx]
        return tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length

    def _whole_batch(self, indices: Sequence[int]) -> Any:
        if len(self._data) == 1:
            return gather(self._data[0], indices)
        batch = [gather(data, indices) for data in self._data]
        return None if any(part is None for part in batch) else batch


class _LazyTransformDataset(Dataset):
    """Applies a function to another dataset's elements, or to their first parts."""

    def __init__(self, data: Dataset, fn: Callable[..., Any], first: bool = False):
        self._data, self._fn, self._first = data, fn, first

    def __getitem__(self, idx: Any) -> Any:
        item = self._data[idx]
        parts = item if isinstance(item, tuple) else (item,)
        if self._first and len(parts) > 1:
            return (self._fn(parts[0]), *parts[1:])
        return self._fn(*parts)

    def loaded(self, now: bool) -> Dataset:
        """This dataset; `now`: its elements, computed at once."""
        return SimpleDataset([self[i] for i in range(len(self))]) if now else self

    def __len__(self) -> int:
        return len(self._data)

    def _whole_batch(self, indices: Sequence[int]) -> Any:
        """All elements at once, for a transform that gives the same result on a batch of images."""
        fn = self._fn
        if not (self._first and same_as_one_by_one(fn)):
            return None
        batch = gather(self._data, indices)
        first = batch[0] if isinstance(batch, list) else batch
        if not isinstance(first, NDArray) or first.ndim != 4:  # (N, H, W, C)
            return None
        return [fn(first), *batch[1:]] if isinstance(batch, list) else fn(first)
