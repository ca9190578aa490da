"""A graph run as it stands, node by node: on arrays each node is an operation like any other, which
autograd records and hooks can watch; on Symbols it is written down again, in another graph.

>>> from d2lmini import nd, sym
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.relu(x * 2, name="y")
>>> values = {x._entry[0]: nd.array([-1, 3])}
>>> def watch(node, inputs, outputs):
...     print(node.name, outputs[0].asnumpy())
>>> (result,) = interpret(y._entries, values, watch)
_mulscalar0 [-2.  6.]
y [0. 6.]
>>> interpret(y._entries, {x._entry[0]: sym.var("z")})[0].list_arguments()
['z']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.ndarray.dispatch import apply
from d2lmini.symbol.node import Entry, Node, topological
from d2lmini.symbol.symbol import Symbol, written

Watch = Callable[[Node, list[Any], list[Any]], Any]


def interpret(
    entries: Sequence[Entry],
    values: Mapping[Node, Any],
    watch: Watch | None = None,
    ctx: Context | None = None,
) -> list[Any]:
    """The values of `entries`, those of the variables given: all NDArrays, or all Symbols.

    watch: called with each node, its inputs and its outputs. ctx: where arrays are made that have
    no inputs. MXNetError for a variable without a value.
    """
    known: dict[Entry, Any] = {}
    symbolic = any(isinstance(value, Symbol) for value in values.values())
    for node in topological(entries):
        if node.op is None:
            if node not in values:
                raise MXNetError(f"variable {node.name!r} has no value")
            known[node, 0] = values[node]
            continue
        inputs = tuple([None if e is None else known[e] for e in node.inputs])
        attrs = {k: v for k, v in node.attrs.items() if k not in node.op.injects}
        result: Any
        if symbolic:
            labels = dict(node.labels)
            result = written(node.op, inputs, attrs, node.name, labels, named=True)
            results = list(result) if len(result) > 1 else [result]
        else:
            result = apply(node.op, inputs, attrs, None, None if inputs else ctx)
            results = result if isinstance(result, list) else [result]
        for i, each in enumerate(results):
            known[node, i] = each
        if watch is not None:
            watch(node, list(inputs), results)
    return [known[entry] for entry in entries]
