"""A Program: a typed graph as a Python function, whose source can be read.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import typed
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.relu(x * 2, name="y")
>>> variables, outputs = typed(y._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> program = Program("net", list(variables.values()), outputs)
>>> import numpy as np
>>> program.run([np.array([-1, 0, 1], np.float32)], [None], [])
[array([0., 0., 2.], dtype=float32)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.ndarray.plan import plan_of
from d2lmini.symbol.node import Draw, Entry, Node, topological


class Program:
    """A typed graph, compiled.

    name          what it is called in its source and in messages
    inputs        its variables, in the order of the arrays that `run` takes
    outputs       what it computes
    specs         shape and dtype of each output
    mutated       positions of the inputs that it changes besides
    draws         how many random keys a call needs
    source        the function as text
    predicted_us  predicted run time
    """

    def __init__(self, name: str, inputs: Sequence[Node], outputs: Sequence[Entry]):
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        nodes = [node for node in topological(outputs) if node.op is not None]
        self.specs = [node.specs[i] for node, i in outputs]  # type: ignore[index]
        changed = {entry[0] for node in nodes for entry in node.mutated}
        self.mutated = [i for i, node in enumerate(self.inputs) if node in changed]
        self.draws = sum(any(type(v) is Draw for v in node.attrs.values()) for node in nodes)
        self.predicted_us = sum(_predicted_us(node) for node in nodes)
        self.nodes = nodes
        self.source = ""

    def run(
        self, arrays: Sequence[np.ndarray], places: Sequence[np.ndarray | None], keys: Sequence[Any]
    ) -> list[np.ndarray]:
        """Compute the outputs: where there is a place into it, else into new memory. No result
        shares memory with an input or another result."""
        values: dict[Entry, Any] = {(v, 0): a for v, a in zip(self.inputs, arrays, strict=True)}
        for node in self.nodes:
            attrs = {k: keys[v.number] if type(v) is Draw else v for k, v in node.attrs.items()}
            given = [None if e is None else values[e] for e in node.inputs]
            results = node.op.compute(np, *given, **attrs)  # type: ignore[union-attr]
            for i, y in enumerate(results if type(results) in (tuple, list) else (results,)):
                values[node, i] = y
        finished = []
        for entry, place in zip(self.outputs, places, strict=True):
            if place is None:
                place = np.empty_like(values[entry])
            np.copyto(place, values[entry])
            finished.append(place)
        return finished

    def __str__(self) -> str:
        return self.source


def _predicted_us(node: Node) -> float:
    specs = [e[0].specs[e[1]] for e in node.inputs if e is not None]  # type: ignore[index]
    assert node.op is not None
    return plan_of(node.op, specs, node.attrs).predicted_us
