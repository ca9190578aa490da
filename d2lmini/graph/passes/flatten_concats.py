"""A concatenation inside a concatenation: all parts are copied once, into the outer one.

Blocks with branches inside branches write such graphs, as Inception v3 does:

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.concat(sym.concat(x, sym.exp(x), dim=1), sym.sin(x), dim=-1, name="y")
>>> before = graph_of(y, x=(2, 3))
>>> print(listing(flatten_concats(before)))
x                                           # (2, 3) float32
exp0 = exp(x)                               # (2, 3) float32
sin0 = sin(x)                               # (2, 3) float32
y = concat(x, exp0, sin0)                   # (2, 9) float32
return y

An inner concatenation that another node uses too stays: the copy is made anyway, and its parts
would have to live longer. The results are equal to the bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from d2lmini.graph.ir import Entry, Node, spec_of, topological
from d2lmini.graph.passes.rewrite import Replacement, call, calls, rewritten


def flatten_concats(outputs: Sequence[Entry]) -> list[Entry]:
    """With one concatenation in the place of nested ones along the same axis."""
    uses = Counter(entry for node in topological(outputs) for entry in node.inputs)
    uses.update(outputs)

    def rule(node: Node) -> Replacement:
        if calls((node, 0), ("concat",)) is None:
            return None
        parts: list[Entry | None] = []
        for entry in node.inputs:
            inner = calls(entry, ("concat",))
            # A concat that this very walk has replaced is counted in the next round.
            if inner is not None and uses[entry] == 1 and _axis_of(inner) == _axis_of(node):
                parts += inner.inputs
            else:
                parts.append(entry)
        if len(parts) == len(node.inputs):
            return None
        return call("concat", parts, node, dim=_axis_of(node))

    return rewritten(outputs, rule)


def _axis_of(concat: Node) -> int:
    axis: int = concat.attrs["dim"] % len(spec_of((concat, 0)).shape)
    return axis
