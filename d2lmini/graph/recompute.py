"""What backward computes again, in place of having it kept: views, casts, constants, sums and
products with a number or with one number per row.

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
>>> residuals(outputs, recompute(outputs, [grad]))
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

from d2lmini.graph.ir import Draw, Entry, Inputs, Node, mutated_by, spec_of, topological, transform
from d2lmini.graph.passes.views import SPREADS, TRANSPOSES, is_reshape
from d2lmini.graph.split import residuals

#: An array of so many times fewer elements than another has few.
FEW = 16

PARTS = ("slice", "slice_axis", "_getitem", "reverse", "cast")


def recompute(outputs: Sequence[Entry], grads: Sequence[Entry]) -> list[Entry]:
    """The gradients, with what is cheap computed again from inputs and from what is kept anyway.

    Values that all elements of another can be read from by a view are replaced by that one even if
    it was not to be kept: it is no larger, and there is one of it.
    """
    forward = topological(outputs)
    before = set(forward)
    cheap = _cheap(forward, set(residuals(outputs, grads)))

    def rule(node: Node, inputs: Inputs) -> Node | None:
        if node not in before:
            return None
        return node.replace(inputs=inputs) if node in cheap else node

    return transform(grads, rule)


def _cheap(forward: Sequence[Node], kept: set[Entry]) -> set[Node]:
    """The nodes of the forward graph that backward computes again where it needs their values."""
    changed = mutated_by(forward)
    cheap: set[Node] = set()
    there: set[Entry] = set(kept)  # what backward has anyway, or from such values
    for node in forward:
        op, inputs = node.op, node.sources
        # What a variable that is changed held when it was read, it may hold no more.
        if node in changed or any(e[0] in changed for e in inputs):
            continue
        if op is None:
            there.add((node, 0))
            continue
        if op.random or op.mutates or len(node.specs or ()) != 1:
            continue
        if len(inputs) > 1:  # of a few numbers and an array of many, the few are kept
            most = max(spec_of(e).size for e in inputs)
            inputs = [e for e in inputs if FEW * spec_of(e).size > most]
        if len(inputs) > 1:
            continue
        if any(type(value) is Draw for value in node.attrs.values()):
            continue
        simple = op.name in PARTS or (op.pointwise and not callable(op.flops) and op.flops <= 1)
        if not inputs or _is_view(node) or (simple and inputs[0] in there):
            cheap.add(node)
            if all(e in there for e in inputs):
                there.add((node, 0))
    return cheap


def _is_view(node: Node) -> bool:
    """True if all elements of the result can be read from the input, which is no larger."""
    assert node.op is not None
    name = node.op.name
    return is_reshape(node) or name in TRANSPOSES or name in SPREADS or _widens(node)


def _widens(node: Node) -> bool:
    assert node.op is not None and node.inputs[0] is not None
    narrow, wide = spec_of(node.inputs[0]).dtype, spec_of((node, 0)).dtype
    return node.op.name == "cast" and narrow.itemsize <= wide.itemsize and np.can_cast(narrow, wide)
