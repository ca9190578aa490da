"""Run a graph op by op: `s.eval(x=..., w=...)`, and what SymbolBlocks run.

Nothing is compiled: on arrays each node is an operation of its own, pushed as if the program had
called the op, recorded by autograd. On Symbols the nodes are copied into
another graph. `bind` and hybridized nets run a graph as one task.

>>> from d2lmini import nd, sym
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.relu(x * 2, name="y")
>>> evaluate(y._entries, {x._entry[0]: nd.array([-1, 3])})[0].asnumpy()
array([0., 6.], dtype=float32)
>>> evaluate(y._entries, {x._entry[0]: sym.var("z")})[0].list_arguments()
['z']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from d2lmini.autograd.scopes import scope
from d2lmini.base import MXNetError
from d2lmini.context import Context, current_context
from d2lmini.graph.ir import Entry, Node, interpret, variables_of
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops import random_state
from d2lmini.ops.core import without_casts
from d2lmini.symbol.infer import complete_shapes, shapes_of
from d2lmini.symbol.symbol import Symbol, apply_op


def evaluate(
    entries: Sequence[Entry],
    values: Mapping[Node, Any],
    ctx: Context | None = None,
    keys: Sequence[Any] = (),
) -> list[Any]:
    """The values of `entries`, given those of the variables: all NDArrays, or all Symbols.

    ctx: the context of arrays made without inputs. keys: what the nodes of a trace draw with.
    MXNetError for a variable without a value.
    """
    symbolic = any(isinstance(value, Symbol) for value in values.values())

    def call(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
        if node.op is None:
            if node not in values:
                raise MXNetError(f"variable {node.name!r} has no value")
            return [values[node]]
        if symbolic:
            labels = dict(node.labels)
            y = apply_op(node.op, tuple(inputs), node.own_attrs, node.name, labels, node.given)
            return list(y) if len(y._entries) > 1 else [y]
        draw = node.attrs.get("rng") if keys else None
        with nullcontext() if draw is None else random_state.use_key(keys[draw.number]):
            result = apply(node.op, tuple(inputs), node.own_attrs, None, None if inputs else ctx)
        return result if isinstance(result, list) else [result]

    with without_casts() if symbolic else nullcontext():
        return interpret(entries, call)


def _eval(self: Symbol, ctx: Context | None = None, **kwargs: NDArray) -> list[NDArray]:
    """The outputs as a list of NDArrays on `ctx`, given an array for each variable by name. Runs in
    prediction mode and unrecorded.

    ValueError for a variable without an array; MXNetError for shapes that do not fit, with the node
    and its line.
    """
    ctx = ctx or current_context()
    values = {}
    for node in variables_of(self._entries):
        array = kwargs.get(node.name)
        if not isinstance(array, NDArray):
            kind = ValueError if array is None else TypeError
            raise kind(
                f"eval: {node.name} must be an NDArray, got {type(array).__name__}; give one for "
                f"each of {self.list_inputs()}"
            )
        values[node] = array.as_in_context(ctx)
    shapes = {node: array.shape for node, array in values.items()}
    try:
        with scope(False, False):
            return evaluate(complete_shapes(self._entries, shapes), values, ctx=ctx)
    except (MXNetError, ValueError):
        shapes_of(self._entries, shapes)  # shapes that do not fit: it names the node
        raise


Symbol.eval = _eval  # type: ignore[attr-defined]
