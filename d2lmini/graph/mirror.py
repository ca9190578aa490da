"""Mirroring: backward computes cheap values again, so that forward keeps fewer bytes.

`hybridize(backward_do_mirror=True)` asks for it, or MXNET_BACKWARD_DO_MIRROR=1 in the environment.
Convolutions, products, pooling and reductions are never computed again. Everything else may be:
elementwise ops, activations, Dropout with the mask it had, softmax, and the normalizations.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of
>>> from d2lmini.graph.split import residuals
>>> with sym.NameManager():
...     h = sym.dot(sym.var("x"), sym.var("w"), name="h")
...     d = sym.Dropout(sym.relu(h, name="a"), p=0.5, mode="always", name="d")
...     grads = [d * 2, sym.sigmoid(h, name="s") * 3]                      # for instance
>>> found = graph_of(sym.Group([sym.sum(d), *grads]), x=(3, 4), w=(4, 2))
>>> outputs, grads = found[:1], found[1:]
>>> residuals(outputs, grads)
[(<Dropout d>, 0), (<dot h>, 0)]
>>> residuals(outputs, mirror(outputs, grads))
[(<dot h>, 0)]

What to keep is a minimum cut: of all sets of values from which backward can go on by cheap ops
alone, the set with the fewest bytes; of several such sets, the one that leaves least to compute.
Inputs and outputs of the program are there anyway and count nothing. So the bytes kept fall from
the sum over all values that backward reads to the size of the cut. The price is the FLOPs of the
ops between the cut and these values; `Program.cost` of the backward program contains them.

Some values feed a product and lead on to other cheap values too, such as the sum at the end of a
residual block. Other values are not computed from such a value unless it is kept. Otherwise
backward would begin with the sums of all blocks, and hold them all at once.

The results are equal to the bit, because the same ops run on the same values. Backward runs them
late, right before the first op that reads them (`compute_late`).

The minimum cut is that of PyTorch's `min_cut_rematerialization_partition` (H. He); the flag is
MXNet's MXNET_BACKWARD_DO_MIRROR.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from d2lmini.graph.ir import (
    Entry,
    Inputs,
    Node,
    Replacement,
    mutated_by,
    spec_of,
    topological,
    transform,
)
from d2lmini.graph.min_cut import min_cut
from d2lmini.graph.rows import is_reduction
from d2lmini.graph.split import residuals
from d2lmini.ops.core import registry

#: The label of nodes that are computed again.
MIRRORED = "mirrored"


def mirror(
    outputs: Sequence[Entry], grads: Sequence[Entry], everything: bool = True
) -> list[Entry]:
    """The gradients, computed from as few bytes of the forward graph as cheap ops allow.

    Nodes with the label force_mirroring="True" (`AttrScope`) are computed again whatever their op;
    without `everything` only these are. An op that changes variables, other than BatchNorm, never
    is.
    """
    forward = topological(outputs)
    before = set(forward)
    forced = {node for node in forward if node.labels.get("force_mirroring") in ("True", "1")}
    if not everything and not forced:
        return list(grads)
    needed = residuals(outputs, grads)
    again = _repeatable(forward, forced, everything)
    kept = _fewest_bytes(forward, needed, set(outputs), again, forced & again)

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node not in before:
            return None
        if node not in again:
            return node
        repeated = _repeat(node, inputs)
        return [e if e in kept or _is_moment(e) else (repeated, e[1]) for e in node.outputs]

    return transform(grads, rule)


def _is_moment(entry: Entry) -> bool:
    """True for mean and deviation that BatchNorm found in training: small, and always kept."""
    return bool(entry[0].mutated) and entry[1] > 0


def _repeat(node: Node, inputs: Inputs) -> Node:
    """The node for backward; BatchNorm without its moving statistics, which change once."""
    changes: dict[str, Any] = {"name": f"{node.name}_mirror", "labels": {MIRRORED: "True"}}
    if not node.mutated:
        return node.replace(inputs=inputs, attrs=node.attrs, **changes)
    attrs = {name: node.attrs[name] for name in ("eps", "fix_gamma", "axis")}
    assert node.specs is not None
    return node.replace(
        op=registry["_normalized_batch"], inputs=inputs[:3], attrs=attrs, specs=node.specs[:1],
        **changes,
    )  # fmt: skip


def _repeatable(forward: Sequence[Node], forced: set[Node], everything: bool) -> set[Node]:
    """The nodes of the forward graph that backward may compute again."""
    changed = mutated_by(forward)
    found: set[Node] = set()
    for node in forward:
        op = node.op
        if op is None or not (everything or node in forced):
            continue
        # A fixed number of FLOPs an element: no product, no reduction.
        if callable(op.flops) and node not in forced:
            continue
        if node.mutated:
            if op.name == "BatchNorm":
                found.add(node)
        elif not any(e[0] in changed for e in node.sources):
            found.add(node)  # a changed variable may no longer hold what was read
    return found


def _fewest_bytes(
    forward: Sequence[Node], needed: Sequence[Entry], free: set[Entry], again: set[Node],
    forced: set[Node],
) -> set[Entry]:  # fmt: skip
    """The values to keep: the smallest sum of bytes from which nodes `again` lead to `needed`.

    In the network each value is an edge with its bytes as capacity, from "made" to "there". The
    source makes what cannot be computed again; what can be is made of its inputs that are there.
    """
    edges: dict[tuple[Any, Any], float] = {((e, "there"), "sink"): float("inf") for e in needed}
    read_by_products: set[Entry] = set()
    read_again: set[Entry] = set()
    for node in forward:
        if node in again:
            read_again.update(node.sources)
        elif not is_reduction(node):  # which reads a value block by block, as it is made
            read_by_products.update(node.sources)
    ends = set(needed) & read_by_products & read_again
    for node in topological(needed):
        sources = node.sources[:3] if node.mutated else node.sources
        for entry in node.outputs:
            made, there = (entry, "made"), (entry, "there")
            is_free = node.op is None or entry in free
            edges[made, there] = 0.0 if is_free else float(spec_of(entry).nbytes)
            is_end = entry in ends and node not in forced
            if node not in again or is_end or _is_moment(entry):
                edges["source", made] = float("inf")
                continue
            if node in forced:
                edges[made, there] = float("inf")
            for source in sources:
                edges[(source, "there"), made] = float("inf")
    return {made[0] for made, _ in min_cut(edges, "source", "sink")}


def compute_late(order: Sequence[Node], outputs: Collection[Node]) -> list[Node]:
    """A topological order with mirrored nodes, and what is computed from them alone, right before
    the first other node or output that reads them: their results take memory no earlier."""
    waiting: set[Node] = set()
    for node in order:
        computed = [entry[0] for entry in node.sources if entry[0].inputs]
        if MIRRORED in node.labels or (computed and waiting.issuperset(computed)):
            waiting.add(node)
    if not waiting:
        return list(order)
    found: dict[Node, None] = {}
    for node in order:
        if node in waiting and node not in outputs:
            continue
        path = [node]
        while path:
            missing = [e[0] for e in path[-1].sources if e[0] in waiting and e[0] not in found]
            if missing:
                path.append(missing[0])
            else:
                found[path.pop()] = None
    return list(found)
