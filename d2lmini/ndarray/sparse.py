"""`nd.sparse` for dense arrays: MXNet's sparse arrays are left out.

>>> from d2lmini import nd
>>> nd.sparse.zeros("default", (2, 3)).stype
'default'
>>> nd.sparse.dot(nd.ones((2, 3)), nd.ones((3, 2))).shape
(2, 2)
>>> isinstance(nd.ones(2), nd.sparse.CSRNDArray)
False
>>> nd.sparse.zeros("csr", (2, 3))
Traceback (most recent call last):
d2lmini.base.MXNetError: storage type 'csr' is left out of d2lmini, ...

The namespace also has the ops of `nd`. A program may import the names of the sparse classes and of
the functions that make them; calling them raises NotImplementedError.
"""

from __future__ import annotations

from typing import Any, NoReturn

from d2lmini.context import Context
from d2lmini.ndarray import creation
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ndarray.unsupported import explain
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import registry
from d2lmini.ops.fluent import FUNCTIONS


def zeros(
    stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any
) -> NDArray:
    """`nd.zeros`; stype: only 'default'."""
    check_storage(stype)
    return creation.zeros(shape, ctx, dtype, **kwargs)


def empty(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """`nd.empty`; stype: only 'default'."""
    return creation.empty(shape, ctx, dtype, stype)


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """`nd.array` of a dense source."""
    return creation.array(source_array, ctx, dtype)


def _refuse(name: str) -> NotImplementedError:
    return NotImplementedError(str(explain("nd.sparse", name)))


class BaseSparseNDArray:
    """Left out: no array is an instance of it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise _refuse(cls.__name__)


class CSRNDArray(BaseSparseNDArray):
    """Left out: no array is an instance of it."""


class RowSparseNDArray(BaseSparseNDArray):
    """Left out: no array is an instance of it."""


def csr_matrix(*args: Any, **kwargs: Any) -> NoReturn:
    """Left out: it makes a sparse array."""
    raise _refuse("csr_matrix")


def row_sparse_array(*args: Any, **kwargs: Any) -> NoReturn:
    """Left out: it makes a sparse array."""
    raise _refuse("row_sparse_array")


def retain(*args: Any, **kwargs: Any) -> NoReturn:
    """Left out: it takes a sparse array."""
    raise _refuse("retain")


def __getattr__(name: str) -> Any:
    found = FUNCTIONS.get(name) or registry.get(name)
    if found is None or name.startswith("_"):
        raise explain("nd.sparse", name)
    return found
