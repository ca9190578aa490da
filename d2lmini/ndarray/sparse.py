"""`nd.sparse` for dense arrays: MXNet's sparse arrays are left out.

>>> from d2lmini import nd
>>> nd.sparse.zeros("default", (2, 3)).stype
'default'
>>> nd.sparse.dot(nd.ones((2, 3)), nd.ones((3, 2))).shape
(2, 2)
>>> nd.sparse.zeros("csr", (2, 3))
Traceback (most recent call last):
d2lmini.base.MXNetError: storage type 'csr' is left out of d2lmini, ...

The namespace also has the ops of `nd`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import missing_attribute
from d2lmini.context import Context
from d2lmini.ndarray import creation
from d2lmini.ndarray.ndarray import NDArray
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


def __getattr__(name: str) -> Any:
    found = FUNCTIONS.get(name) or registry.get(name)
    if found is None or name.startswith("_"):
        raise missing_attribute("nd.sparse", name, ())
    return found
