"""Nodes: what a Symbol is made of.

A node is one call of an op that has not happened: the op, its attributes, where its inputs come
from. A node without an op is a variable, to be filled when the graph runs. Nodes are never changed,
so graphs share them; a pass over a graph makes new ones.

A node may know what its outputs will be like (`specs`): always when its variables do, as in the
graphs that `hybridize` records. Such a *typed* graph is what passes and the code generator work on.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     y = sym.exp(sym.var("x") * 2)
>>> [node.name for node in topological(y._entries)]
['x', '_mulscalar0', 'exp0']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from d2lmini.ops.core import Op
from d2lmini.ops.spec import Spec

#: One value of a graph: a node, and which of its outputs.
Entry = tuple["Node", int]

_NOTHING: Mapping[str, str] = {}


class Node:
    """A variable, or an op to be applied.

    op      None for a variable
    name    of the variable, or of this call of the op
    inputs  where each input of the op comes from; None for one that was left out
    attrs   attributes of the op, checked and converted; those that the op is given at run time are
            here in typed graphs: `training` as True or False, `rng` as a `Draw`
    specs   shape and dtype of each output, hidden ones included; None while unknown
    labels  what users hung on it: {"lr_mult": "2.0", "__shape__": "(2, 3)", ...}
    site    the user's line that made it
    """

    __slots__ = ("attrs", "inputs", "labels", "name", "op", "site", "specs", "__weakref__")

    def __init__(
        self,
        op: Op | None,
        name: str,
        inputs: tuple[Entry | None, ...] = (),
        attrs: dict[str, Any] | None = None,
        specs: tuple[Spec, ...] | None = None,
        labels: Mapping[str, str] = _NOTHING,
        site: Any = None,
    ):
        self.op = op
        self.name = name
        self.inputs = inputs
        self.attrs = attrs or {}
        self.specs = specs
        self.labels = labels
        self.site = site

    @property
    def n_outputs(self) -> int:
        """How many outputs it shows: those that only backward uses are not counted."""
        if self.op is None:
            return 1
        outputs = self.op.outputs
        return outputs(**self.attrs) if callable(outputs) else outputs

    @property
    def mutated(self) -> tuple[Entry, ...]:
        """The inputs that it changes besides: BatchNorm's moving mean and variance."""
        if self.op is None or not self.op.mutates:
            return ()
        positions = self.op.mutates
        if callable(positions):
            positions = positions(len(self.inputs), self.attrs)
        changed = (self.inputs[i] for i in positions)
        return tuple(entry for entry in changed if entry is not None)

    def __repr__(self) -> str:
        if self.op is None:
            return f"<variable {self.name}>"
        return f"<{self.op.name} {self.name}>"


class Draw:
    """Stands for the random key that a call of the graph will draw for one of its nodes."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def __repr__(self) -> str:
        return f"keys[{self.number}]"


def topological(entries: Iterable[Entry]) -> list[Node]:
    """The nodes behind `entries`, inputs before those who use them; left inputs come first, as in
    MXNet, whose order of arguments this fixes. No recursion: a graph may be deep."""
    found: list[Node] = []
    seen: set[Node] = set()
    for head, _ in entries:
        if head in seen:
            continue
        seen.add(head)
        path: list[tuple[Node, Iterator[Entry | None]]] = [(head, iter(head.inputs))]
        while path:
            node, inputs = path[-1]
            for entry in inputs:
                if entry is not None and entry[0] not in seen:
                    seen.add(entry[0])
                    path.append((entry[0], iter(entry[0].inputs)))
                    break
            else:
                found.append(node)
                path.pop()
    return found
