"""Reductions that can be in a fusion group: which ops these are, and what they reduce.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of
>>> [(node, _)] = graph_of(sym.mean(sym.var("x"), axis=1, keepdims=True), x=(3, 4))
>>> is_reduction(node), axes_of_reduction(node), aligned((4,), (3, 4))
(True, (1,), (1, 4))
"""

from __future__ import annotations

from d2lmini.graph.ir import Node, spec_of
from d2lmini.ops.core import Shape
from d2lmini.ops.reduce import reduced_axes

#: Their names -> the ufunc that adds up.
REDUCTIONS = {"sum": "add", "mean": "add", "_sum_to": "add", "max": "maximum", "min": "minimum"}


def is_reduction(node: Node) -> bool:
    """True if the node is one of these: all that it reads must be complete before its result."""
    return node.op is not None and node.op.name in REDUCTIONS


def axes_of_reduction(node: Node) -> tuple[int, ...]:
    """The axes that a reduction reduces."""
    shape = spec_of(node.sources[0]).shape
    assert node.op is not None
    if node.op.name != "_sum_to":
        return reduced_axes(node.attrs["axis"], len(shape), node.attrs["exclude"])
    kept = aligned(node.attrs["shape"], shape)
    return tuple(a for a, n in enumerate(kept) if n == 1)


def aligned(shape: Shape, domain: Shape) -> Shape:
    """The shape of an array that broadcasts to a domain, with as many axes."""
    return (1,) * (len(domain) - len(shape)) + shape
