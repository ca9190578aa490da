"""`sym.random`: nodes that draw new random numbers at each run of the graph.

>>> from d2lmini import sym
>>> noise = sym.random.normal(0, 0.1, shape=(2, 3))
>>> noise.infer_shape()
([], [(2, 3)], [])
>>> sym.random.uniform(sym.var("low"), sym.var("high"), shape=4).list_arguments()  # 4 of each
['low', 'high']

The functions and their arguments are those of `nd.random`; parameters are numbers, or all Symbols.
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.core import registry
from d2lmini.ops.random_functions import LIKE, functions, op_for
from d2lmini.symbol.compose import compose
from d2lmini.symbol.namespaces import function_of
from d2lmini.symbol.symbol import Symbol, tracer


def draw(
    name: str, parameters: dict[str, Any], /, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """A draw of the distribution `name` with these parameters, numbers or Symbols."""
    op = op_for(name, parameters, Symbol)
    kwargs.pop("ctx", None)
    if shape is not None:
        kwargs["shape"] = shape
    elif tracer.capture is not None and not op.arity:
        kwargs["shape"] = 1  # a net that is traced draws one number, as nd.random does
    if dtype is not ...:
        kwargs["dtype"] = dtype
    if op.arity:
        return compose(op, tuple(parameters.values()), kwargs)
    return compose(op, (), {**kwargs, **parameters})


def multinomial(
    data: Symbol, shape: Any = None, get_prob: bool = True, dtype: Any = "int32", **kwargs: Any
) -> Symbol:
    """Indices drawn with the probabilities in the last axis of data; with get_prob (the default
    here, as in MXNet) also the log of each index's probability, as a second output."""
    attrs = {"shape": () if shape is None else shape, "get_prob": get_prob, "dtype": dtype}
    return compose(registry["_sample_multinomial"], (data,), {**attrs, **kwargs})


shuffle = function_of(registry["_shuffle"], "_shuffle", "random.")
shuffle.__qualname__ = "random.shuffle"

FUNCTIONS = functions(draw) | {name: function_of(op, name, "random.") for name, op in LIKE.items()}
globals().update(FUNCTIONS)

__all__ = ["multinomial", "shuffle", *FUNCTIONS]
