"""The graph of a whole net: inferred shapes of parameters, and exported files.

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
"""

from __future__ import annotations

from typing import Any

from d2lmini import ndarray as nd
from d2lmini import symbol
from d2lmini.device import files
from d2lmini.gluon.flatten_args import flatten, regroup
from d2lmini.gluon.utils import shape_is_known
from d2lmini.graph.ir import topological
from d2lmini.graph.symbolic_trace import input_names, outside, plain
from d2lmini.ops.rnn import rnn_layer
from d2lmini.symbol import Symbol


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
