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
from d2lmini.ndarray import functions
from d2lmini.ndarray.functions import *  # noqa: F403
from d2lmini.ndarray.functions import Namespace, contrib, linalg, op, public_names, sparse
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import Op

from d2lmini.ndarray import random  # isort: skip

__all__ = ["NDArray", *functions.__all__, "random"]

_internal = Namespace("nd._internal", "_")
globals().update(
    {
        name: functions.without_inputs(f, name) if isinstance(f, Op) and not f.input_names else f
        for name, f in public_names().items()
        if name not in globals()
    }
)


def __getattr__(name: str) -> Any:
    if name in ("CachedOp", "np", "npx"):  # defined in a higher layer
        return loaders[name]()
    raise missing_attribute("nd", name, __dir__(), "; dir(nd) lists the names")


def __dir__() -> list[str]:
    return sorted({*__all__, *public_names(), "CachedOp", "contrib", "linalg", "op", "sparse"})
