"""From elements to a batch: the default batchify function, and a fast path to the same result.

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

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import alias
from d2lmini.context import current_context
from d2lmini.gluon.utils import as_default
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.exchange import from_array
from d2lmini.ops.core import DTYPES


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
    """True if fn(batch of images) equals fn on each image. Transforms declare this in
    `_on_batches`; each class declares it itself, because a subclass may differ."""
    says = type(fn).__dict__.get("_on_batches")
    return says is not None and says(fn)
