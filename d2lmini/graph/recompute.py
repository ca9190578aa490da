"""What backward computes again, in place of having it kept: views, casts, constants.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of
>>> from d2lmini.graph.split import residuals
>>> with sym.NameManager():
...     a = sym.transpose(sym.var("x")) * 2
...     grad = sym.dot(a, sym.var("g"), name="grad")     # for instance
>>> [grad] = graph_of(grad, x=(3, 2), g=(3, 4))
>>> outputs = [grad[0].inputs[0]]
>>> residuals(outputs, [grad])
[(<_mul_scalar _mulscalar0>, 0)]
>>> residuals(outputs, recomputed(outputs, [grad]))
[]

Here backward reads x, which is an input and there anyway, and turns and doubles it itself. A kept
value costs its memory from its making to the end of backward, and once to be written and once to be
read; a view costs nothing, and what is done to each element while it is read very little.

The price: backward reads the variable itself, so whoever writes into it in between gets the error
that every write into a saved value gets, where a kept copy would have borne it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from d2lmini.graph.passes.rewrite import spec_of
from d2lmini.graph.passes.views import TRANSPOSES, is_reshape
from d2lmini.graph.split import residuals
from d2lmini.symbol.node import Draw, Entry, Node, topological

#: Their input is no larger than their output.
SPREADS = ("_spread", "broadcast_to", "broadcast_axis", "broadcast_like")
PARTS = ("slice", "slice_axis", "_getitem", "reverse", "cast")


def recomputed(outputs: Sequence[Entry], grads: Sequence[Entry]) -> list[Entry]:
    """The gradients, with what is cheap computed again from inputs and from what is kept anyway.

    Values that all elements of another can be read from by a view are replaced by that one even if
    it was not to be kept: it is no larger, and there is one of it.
    """
    forward = topological(outputs)
    choice = _Choice(forward, residuals(outputs, grads))
    before = set(forward)
    made: dict[Node, Node] = {}

    def now(entry: Entry) -> Entry:
        if entry[0] in before:
            return choice.again(entry)
        return made.get(entry[0], entry[0]), entry[1]

    for node in topological(grads):
        if node not in before:
            inputs = tuple([e and now(e) for e in node.inputs])
            if inputs != node.inputs:
                made[node] = _copy(node, inputs)
    return [now(entry) for entry in grads]


class _Choice:
    """Which values of the forward graph are computed again, and the nodes that do it."""

    def __init__(self, forward: Sequence[Node], kept: Sequence[Entry]):
        changed = {entry[0] for node in forward for entry in node.mutated}
        # What such a variable held when it was read, it may hold no more.
        self.fixed = {n for n in forward if any(e and e[0] in changed for e in n.inputs)} | changed
        self.kept = set(kept)
        self.made: dict[Node, Node] = {}

    def again(self, entry: Entry) -> Entry:
        """The value as backward gets it: the same entry if it is kept or a variable."""
        node = entry[0]
        if not self._cheap(node):
            return entry
        if node not in self.made:
            self.made[node] = _copy(node, tuple([e and self.again(e) for e in node.inputs]))
        return self.made[node], entry[1]

    def _cheap(self, node: Node) -> bool:
        op = node.op
        if op is None or node in self.fixed or op.random or op.mutates:
            return False
        if len(node.specs or ()) != 1 or any(type(v) is Draw for v in node.attrs.values()):
            return False
        inputs = [e for e in node.inputs if e is not None]
        if not inputs:
            return True
        if len(inputs) > 1:
            return False
        if is_reshape(node) or op.name in TRANSPOSES or op.name in SPREADS or _widens(node):
            return True
        simple = op.name in PARTS or (op.pointwise and not callable(op.flops) and op.flops <= 1)
        return simple and self._there(inputs[0])

    def _there(self, entry: Entry) -> bool:
        """Does backward have this value anyway?"""
        node = entry[0]
        if node.op is None:
            return node not in self.fixed
        if entry in self.kept:
            return True
        return self._cheap(node) and all(e is None or self._there(e) for e in node.inputs)


def _widens(node: Node) -> bool:
    assert node.op is not None and node.inputs[0] is not None
    narrow, wide = spec_of(node.inputs[0]).dtype, spec_of((node, 0)).dtype
    return node.op.name == "cast" and narrow.itemsize <= wide.itemsize and np.can_cast(narrow, wide)


def _copy(node: Node, inputs: tuple[Entry | None, ...]) -> Node:
    return Node(node.op, node.name, inputs, node.attrs, node.specs, node.labels, node.site)
