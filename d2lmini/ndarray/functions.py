"""Functions of `nd` that are not a single op on given arrays, and the namespaces below `nd`.

`boolean_mask` waits, `onehot_encode` writes into an argument, `nd.sparse` has dense arrays only.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2], [3, 4], [5, 6]])
>>> nd.contrib.boolean_mask(x, nd.array([0, 1, 1]))
<BLANKLINE>
[[3. 4.]
 [5. 6.]]
<NDArray 2x2 @cpu(0)>
>>> nd.linalg.gemm2 is nd.linalg_gemm2
True
>>> nd.sparse.zeros("csr", (2, 3))
Traceback (most recent call last):
d2lmini.base.ArgumentValueError: storage type 'csr' is left out of d2lmini, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.engine import waitall
from d2lmini.ndarray import creation
from d2lmini.ndarray.indexing import getitem
from d2lmini.ndarray.namespaces import Namespace
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import invoke, normalize_axis, registry
from d2lmini.ops.fluent import FUNCTIONS
from d2lmini.ops.signature import named

__all__ = [
    "concatenate", "moveaxis", "onehot_encode", "to_dlpack_for_read", "to_dlpack_for_write",
    "waitall",
]  # fmt: skip


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """`concat` of a list along `axis`; ValueError for an empty list."""
    if not arrays:
        raise ValueError("concatenate: expected at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return registry["concat"](*arrays, dim=axis)


def moveaxis(tensor: NDArray, source: Any, destination: Any) -> NDArray:
    """Move axes to new positions; the other axes keep their order."""
    # Axis i of the stand-in has size i, so the shape of NumPy's result is the order of the axes.
    order = np.moveaxis(np.empty(range(tensor.ndim)), source, destination).shape
    return registry["transpose"](tensor, axes=order)


def boolean_mask(data: Any, index: Any, axis: int = 0) -> Any:
    """The slices of `data` along `axis` where `index` is not zero.

    data (A..., n, B...), index (n,) -> (A..., k, B...), where k is the number of nonzero elements
    of index. The shape depends on values, so this function waits for `index` (not for `data`);
    the gradient goes to `data`. MXNetError when index is not (n,). MXNet supports only axis=0.
    """
    axis = normalize_axis(axis, data.ndim, "boolean_mask: axis")
    if index.shape != data.shape[axis : axis + 1]:
        raise MXNetError(
            f"boolean_mask: index is {index.shape}, need {data.shape[axis : axis + 1]}: one "
            f"element for each place along axis {axis} of data {data.shape}"
        )
    places = np.flatnonzero(index._read("boolean_mask"))
    return getitem(data, (slice(None),) * axis + (places,))


def onehot_encode(indices: Any, out: Any) -> Any:
    """Write the one-hot rows of `indices` (N,) into `out` (N, depth); returns out.

    The older form of `one_hot`. A number outside gives a row of zeros. MXNetError when the shapes
    do not fit; unlike in MXNet any dtype is allowed.
    """
    if out.ndim != 2 or indices.shape != out.shape[:1]:
        raise MXNetError(
            f"onehot_encode: indices is {indices.shape}, out {out.shape}, need (N,) and (N, depth)"
        )
    one_hot = registry["one_hot"]
    attrs = {**one_hot.defaults, "depth": out.shape[1], "dtype": out.dtype}
    return invoke(one_hot, (indices,), attrs, out)


def to_dlpack_for_read(data: NDArray) -> Any:
    """A DLPack capsule of the array's memory; waits for pending writes."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> Any:
    """A DLPack capsule of the array's memory; waits for pending writes and reads."""
    return data.to_dlpack_for_write()


# -- namespaces ------------------------------------------------------------------------------------


def _dense(make: Callable[..., Any]) -> Callable[..., Any]:
    """`nd.zeros` as `nd.sparse.zeros`, whose first argument is the storage type."""
    name = make.__name__

    def function(stype: str, *args: Any, **kwargs: Any) -> Any:
        check_storage(stype)
        return make(*args, **kwargs)

    return named(function, "d2lmini.ndarray", f"sparse.{name}", f"`nd.{name}`, for dense arrays.")


op, linalg = Namespace("nd.op"), Namespace("nd.linalg", "linalg_", "_linalg_")
contrib, sparse = Namespace("nd.contrib", "_contrib_"), Namespace("nd.sparse")
vars(contrib).update(boolean_mask=boolean_mask)
vars(sparse).update(
    FUNCTIONS, array=creation.array, empty=_dense(creation.empty), zeros=_dense(creation.zeros)
)
