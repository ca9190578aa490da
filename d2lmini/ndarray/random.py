"""`nd.random` and `mx.random`: the seed, and random arrays, with numbers or NDArrays as parameters.

>>> from d2lmini import nd
>>> nd.random.uniform(0, 1, shape=(2, 3)).shape
(2, 3)
>>> nd.random.normal(nd.array([0, 100]), nd.array([1, 1]), shape=4).shape     # 4 of each
(2, 4)

`shape` may be a number; without `shape` one number is drawn, or one for each element of the
parameters. All results are float32 on the current context unless `dtype` and `ctx` are given.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import missing_attribute
from d2lmini.context import Context
from d2lmini.ndarray.creation import _make
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import registry
from d2lmini.ops.random_functions import LIKE, functions, op_for
from d2lmini.ops.random_state import seed as seed


def draw(
    name: str, parameters: dict[str, Any], /, shape: Any = None, dtype: Any = "float32",
    ctx: Context | None = None, out: Any = None,
) -> NDArray:  # fmt: skip
    """A draw of the distribution `name` with these parameters, numbers or NDArrays."""
    op = op_for(name, parameters, NDArray)
    if op.arity:
        shape = () if shape is None else shape
        return op(*parameters.values(), shape=shape, dtype=dtype, out=out)
    if out is not None:
        shape, dtype = out.shape, out.dtype
    shape = 1 if shape is None else shape
    return _make(op.name, ctx, out, shape=shape, dtype=dtype, **parameters)


def multinomial(
    data: NDArray, shape: Any = None, get_prob: bool = False, out: Any = None, dtype: Any = "int32"
) -> Any:
    """Indices drawn with the probabilities in the last axis of data; with get_prob also the log
    of each index's probability."""
    shape = () if shape is None else shape
    return registry["_sample_multinomial"](data, shape, get_prob, dtype, out=out)


def shuffle(data: NDArray, out: Any = None) -> NDArray:
    """The rows of data in random order."""
    return registry["_shuffle"](data, out=out)


FUNCTIONS = functions(draw) | LIKE
globals().update(FUNCTIONS)

__all__ = ["multinomial", "shuffle", *FUNCTIONS]


def __getattr__(name: str) -> Any:
    raise missing_attribute("nd.random", name, __all__)
