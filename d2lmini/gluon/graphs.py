"""The graph of a whole net: its arguments as a list, inferred shapes of parameters, exported files.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> class Scale(nn.HybridBlock):
...     def __init__(self):
...         super().__init__()
...         self.layer = nn.Dense(3)
...         self.factor = self.params.get("factor", shape=(0, 3), allow_deferred_init=True)
...     def hybrid_forward(self, F, x, factor):
...         return F.elemwise_mul(self.layer(x), factor)
>>> net = Scale()
>>> net.infer_shape(nd.ones((2, 5)))
>>> net.layer.weight.shape, net.factor.shape
((3, 5), (2, 3))

A net's arguments may be nested lists. A graph takes one list; the form describes the nesting: 0 is
a single value, -1 is None, a number n > 0 is a value that has n outputs (a Symbol), and a list is a
list or tuple.

>>> flat, form = flatten([1, (2, None)])
>>> flat, form
([1, 2, None], [0, [0, -1]])
>>> regroup([x and 10 * x for x in flat], form)[0]
[10, [20, None]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini import ndarray as nd
from d2lmini import symbol
from d2lmini.device import files
from d2lmini.gluon.utils import shape_is_known
from d2lmini.graph.ir import topological
from d2lmini.graph.symbolic_trace import input_names, outside, plain
from d2lmini.ops.rnn import rnn_layer
from d2lmini.symbol import Symbol


def flatten(args: Any, what: str = "") -> tuple[list[Any], Any]:
    """All values in order, and the form for `regroup`. (MXNet uses `what`, the kind of values, in
    messages.)"""
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        outputs = len(args._entries) if isinstance(args, Symbol) else 1
        return [args], outputs if outputs > 1 else 0
    flat: list[Any] = []
    form = []
    for arg in args:
        values, part = flatten(arg)
        flat += values
        form.append(part)
    return flat, form


def regroup(flat: Sequence[Any], form: Any) -> tuple[Any, Sequence[Any]]:
    """The values of `flat`, nested by `form`, and the unused rest of `flat`."""
    if isinstance(form, int):
        if form > 0:
            return list(flat[:form]), flat[form:]
        return flat[0], flat[1:]
    groups = []
    for part in form:
        group, flat = regroup(flat, part)
        groups.append(group)
    return groups, flat


def graph_of(block: Any, inputs: tuple) -> tuple[Any, dict[str, Any]]:
    """The net as a Symbol, as MXNet would build it, and the inputs by their variables' names."""
    flat, form = flatten(list(inputs))
    names = input_names(len(flat))
    given = {name: x for name, x in zip(names, flat) if x is not None}
    variables = [symbol.var(name) if name in given else None for name in names]
    with outside():
        result = type(block).forward(block, *regroup(variables, form)[0])
    parts = [part for part in flatten(result)[0] if isinstance(part, Symbol)]
    return Symbol(tuple(entry for part in parts for entry in part._entries)), given


def complete_shapes(block: Any, inputs: tuple) -> None:
    """Set the parameters' shapes that follow from the graph and the inputs' shapes."""
    graph, given = graph_of(block, inputs)
    complete(block.collect_params(), graph, {name: x.shape for name, x in given.items()})


def complete(parameters: Any, graph: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """`complete_shapes` for a graph; MXNetError if shapes contradict each other."""
    arguments, _, auxiliary = graph.infer_shape_partial(**shapes)
    names = [*graph.list_arguments(), *graph.list_auxiliary_states()]
    for name, shape in zip(names, [*arguments, *auxiliary], strict=True):
        if name in parameters and shape_is_known(shape):
            parameters[name].shape = shape


def graph_and_arrays(block: Any, compiled: Any) -> tuple[Symbol, dict[str, nd.NDArray]]:
    """The graph that was traced first, and the arrays of its variables by name."""
    (trace, _), form = next(iter(compiled.traces.values())), compiled.form
    graph: Any = plain(trace.symbol)
    if any(node.op is rnn_layer for node in topological(graph._entries)):
        # The op for all steps of a cell is unknown to MXNet; an untraced graph has single steps.
        graph, _ = graph_of(block, tuple(regroup(trace.inputs, form)[0]))
    return graph, {
        node.name: used if isinstance(used, nd.NDArray) else used._reduce()
        for node, used in trace.uses.items()
    }


def export(block: Any, compiled: Any, path: str, epoch: int, remove_amp_cast: bool = True) -> None:
    """Write the graph that was traced first, and the arrays of its variables."""
    graph: Any
    graph, arrays = graph_and_arrays(block, compiled)
    auxiliary = set(graph.list_auxiliary_states())
    values = {f"{'aux' if name in auxiliary else 'arg'}:{name}": x for name, x in arrays.items()}
    with files.replace_atomically(f"{path}-symbol.json", f"{path}-{epoch:04d}.params") as [
        symbol,
        params,
    ]:
        graph.save(symbol, remove_amp_cast)
        nd.save(params, values)
