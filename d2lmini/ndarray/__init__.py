"""`nd`: NDArray and the functions on it, by MXNet's names.

>>> from d2lmini import nd
>>> x = nd.ones((2, 3))
>>> (x * 2).sum().asscalar()
np.float32(12.0)

The namespace has every op under each of its names; `nd.random`, `nd.linalg`, `nd.contrib`,
`nd.sparse`, `nd.op` and `nd._internal` are its sub-namespaces.

An op takes arrays, then attributes, by position or by name, and returns a new NDArray at once, or a
list of NDArrays; with `out=` it writes there. The call raises MXNetError for shapes, dtypes,
contexts and attributes that do not fit, and TypeError for a missing or unknown argument. Errors of
the computation are raised at a wait. `nd.exp.cost(...)` predicts FLOPs and bytes.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import loaders, missing_attribute
from d2lmini.ndarray.creation import (
    arange,
    array,
    concatenate,
    empty,
    eye,
    from_dlpack,
    from_numpy,
    full,
    linspace,
    load,
    load_frombuffer,
    moveaxis,
    ones,
    save,
    to_dlpack_for_read,
    to_dlpack_for_write,
    waitall,
    without_inputs,
    zeros,
)
from d2lmini.ndarray.namespaces import Namespace, public_names
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ndarray.selection import boolean_mask, onehot_encode

from d2lmini.ndarray import random, sparse, updates  # isort: skip
from d2lmini.ops.core import Op

__all__ = [
    "NDArray", "arange", "array", "concatenate", "empty", "eye", "from_dlpack", "from_numpy",
    "full", "linspace", "load", "load_frombuffer", "moveaxis", "ones",
    "onehot_encode", "random", "save", "sparse", "to_dlpack_for_read", "to_dlpack_for_write",
    "waitall", "zeros",
]  # fmt: skip

globals().update(
    {
        name: op if not isinstance(op, Op) or op.input_names else without_inputs(op, name)
        for name, op in public_names().items()
        if name not in globals()
    },
    op=Namespace("nd.op"),
    _internal=Namespace("nd._internal", "_"),
    linalg=Namespace("nd.linalg", "linalg_", "_linalg_"),
    contrib=Namespace("nd.contrib", "_contrib_"),
)
vars(globals()["contrib"]).update(
    boolean_mask=boolean_mask,
    adamw_update=updates.adamw_update,
    mp_adamw_update=updates.mp_adamw_update,
)


def __getattr__(name: str) -> Any:
    if name in ("CachedOp", "np", "npx"):  # defined in a higher layer
        return loaders[name]()
    raise missing_attribute("nd", name, __dir__(), "; dir(nd) lists the names")


def __dir__() -> list[str]:
    return sorted({*__all__, *public_names(), "CachedOp", "contrib", "linalg", "op"})
