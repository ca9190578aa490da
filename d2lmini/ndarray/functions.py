"""Functions of `nd` that are not a single op on given arrays, and the namespaces below `nd`.

>>> from d2lmini import nd
>>> nd.moveaxis(nd.zeros((2, 3, 4)), 0, 2).shape
(3, 4, 2)
>>> nd.linalg.gemm2 is nd.linalg_gemm2
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.engine import waitall
from d2lmini.ndarray.namespaces import Namespace
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import invoke, registry
from d2lmini.ops.fluent import FUNCTIONS

__all__ = ["concatenate", "moveaxis", "onehot_encode", "waitall"]


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


# -- namespaces ------------------------------------------------------------------------------------


op, linalg = Namespace("nd.op"), Namespace("nd.linalg", "linalg_", "_linalg_")
contrib, sparse = Namespace("nd.contrib", "_contrib_"), Namespace("nd.sparse")
vars(sparse).update(FUNCTIONS)
