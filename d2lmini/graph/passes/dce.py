"""Dead code: parts of a result that nobody uses are not made.

A node that no output reaches is not in the graph, so there is nothing to do for it: a graph is what
its outputs reach, and a pass that cuts off a branch has removed it. What is left are ops of several
outputs of which some are unused. A split of which one part is used is a slice:

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.split(x, num_outputs=2, axis=1)[1]
>>> before = graph_of(y, x=(2, 6))
>>> print(listing(dce(before)))
x                                           # (2, 6) float32
split0 = slice_axis(x, axis=1, begin=3, end=6)  # (2, 3) float32
return split0

A node that changes a variable stays as long as any of its outputs is used, and a rewriting that
would cut it off is not done (see `rewrite`). One that no output reaches does not run, as in MXNet:
there too, what a hybrid_forward computes and does not return is not in its Symbol.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.graph.ir import Entry, Node, spec_of, topological
from d2lmini.graph.passes.rewrite import Replacement, call, rewritten
from d2lmini.graph.passes.views import reshape


def dce(outputs: Sequence[Entry]) -> list[Entry]:
    """Without parts that are not used."""
    used = set(outputs)
    for node in topological(outputs):
        used.update(node.sources)
    parts = {
        node: [i for _, i in node.outputs if (node, i) in used]
        for node in topological(outputs)
        if node.op is not None and node.op.name in ("split", "split_v2")
    }
    if not parts:
        return list(outputs)

    def meet(before: Node, now: Node) -> None:
        if before in parts:
            parts[now] = parts[before]

    return rewritten(outputs, lambda node: _only(node, parts), meet)


def _only(node: Node, parts: dict[Node, list[int]]) -> Replacement:
    wanted = parts.get(node, ())
    if len(wanted) != 1 or node.inputs[0] is None:
        return None
    i = wanted[0]
    axis = node.attrs["axis"] % len(spec_of(node.inputs[0]).shape)
    sizes = [1 if node.attrs["squeeze_axis"] else s.shape[axis] for s in node.specs or ()]
    begin = sum(sizes[:i])
    y = call("slice_axis", node.inputs, node, axis=axis, begin=begin, end=begin + sizes[i])
    replaced: list[Entry | None] = [None] * len(node.specs or ())
    shape = spec_of((node, i)).shape
    replaced[i] = y if spec_of(y).shape == shape else reshape(y, shape, node)
    return replaced
