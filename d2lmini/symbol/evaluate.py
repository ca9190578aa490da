"""Symbols on arrays, one operation after the other: `s.eval(x=..., w=...)`.

>>> from d2lmini import nd, sym
>>> product = sym.dot(sym.var("a"), sym.var("b"))
>>> product.eval(a=nd.array([[1, 2]]), b=nd.array([[3], [4]]))
[
[[11.]]
<NDArray 1x1 @cpu(0)>]

Nothing is compiled and nothing is recorded: each node is an operation of its own, pushed as if a
program had written it. `bind` and hybridized nets run a graph as one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from d2lmini.autograd.scopes import scope
from d2lmini.base import MXNetError
from d2lmini.context import Context, current_context
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.symbol.infer import completed
from d2lmini.symbol.lists import variables
from d2lmini.symbol.node import Entry, topological
from d2lmini.symbol.symbol import Symbol


def evaluated(symbol: Symbol, ctx: Context, arrays: Mapping[str, NDArray]) -> list[NDArray]:
    """The outputs of `symbol` in prediction mode, for an array for each variable by name.

    ValueError for a variable without an array; what an operation says of shapes, dtypes and
    contexts that do not fit, with the name of its node.
    """
    values: dict[Entry, NDArray] = {}
    given = {
        node: arrays[node.name].shape
        for node in variables(symbol._entries)
        if isinstance(arrays.get(node.name), NDArray)
    }
    entries = completed(symbol._entries, given)
    with scope(False, False):
        for node in topological(entries):
            if node.op is None:
                if node.name not in arrays:
                    raise ValueError(
                        f"eval: variable {node.name!r} has no array; give one for each of "
                        f"{symbol.list_inputs()}"
                    )
                values[node, 0] = _checked(node.name, arrays[node.name], ctx)
                continue
            inputs = tuple([entry and values[entry] for entry in node.inputs])
            attrs = {k: v for k, v in node.attrs.items() if k in node.op.attr_set}
            try:
                results = apply(node.op, inputs, attrs, None, ctx)
            except (MXNetError, ValueError) as problem:
                raise type(problem)(f"eval: node {node.name!r}: {problem}") from None
            for i, y in enumerate([results] if isinstance(results, NDArray) else results):
                values[node, i] = y
    return [values[entry] for entry in entries]


def _checked(name: str, array: Any, ctx: Context) -> NDArray:
    if not isinstance(array, NDArray):
        raise TypeError(
            f"eval: {name} must be an NDArray, got {type(array).__name__}; make one with nd.array"
        )
    return array.as_in_context(ctx)


def _eval(self: Symbol, ctx: Context | None = None, **kwargs: NDArray) -> list[NDArray]:
    """Its outputs as a list of NDArrays on `ctx`, given an array for each variable by name; see
    `symbol.evaluate`."""
    return evaluated(self, ctx or current_context(), kwargs)


Symbol.eval = _eval  # type: ignore[attr-defined]
