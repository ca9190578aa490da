"""The backward graph: the gradient rules, asked for Symbols instead of arrays.

The rules of `ops` are written in operations on values, so what the tape does with arrays works on
traced values as well; what comes out is a graph, which is compiled like any other.

>>> from d2lmini import sym
>>> from d2lmini.graph.ir import Node, topological
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> variables, heads = infer_types((x ** 2)._entries, {x._entry[0]: Spec((3,), "float32")}, True)
>>> g = Node(None, "g", specs=(Spec((3,), "float32"),))
>>> dx, = gradients(heads, [(g, 0)], [(variables[x._entry[0]], 0)])
>>> [node.op.name for node in topological([dx]) if node.op]
['_mul_scalar', 'broadcast_mul']

**Residuals**: what backward keeps of the forward pass, and what it computes again.

A graph is cut in two, what runs forward and what runs backward; `residuals` are the values that the
one keeps for the other:

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = x.exp()
...     dx = y * 2                       # for instance
>>> kept = residuals(y._entries, dx._entries)
>>> kept == [y._entry]
True
>>> variables, (dx,) = cut_graph(dx._entries, kept)
>>> variables, dx[0].inputs
([<variable kept_exp0>], ((<variable kept_exp0>, 0),))

**Recomputing.** Backward computes again, in place of having it kept: views, casts, constants, sums
and products with a number or with one number per row.

>>> from d2lmini.graph.typed import graph_of
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

**Mirroring.** Backward computes cheap values again, so that forward keeps fewer bytes.
`hybridize(backward_do_mirror=True)` asks for it, or MXNET_BACKWARD_DO_MIRROR=1 in the environment.
Convolutions, products, pooling and reductions are never computed again. Everything else may be:
elementwise ops, activations, Dropout with the mask it had, softmax, and the normalizations.

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

In place of a value that backward reads, forward keeps what that is computed from by cheap ops
alone, if these are fewer bytes. Inputs and outputs of the program are there anyway and count
nothing. The price is the FLOPs of the ops in between; `Program.cost` of the backward program
contains them.

Some values feed a product and lead on to other cheap values too, such as the sum at the end of a
residual block. Other values are not computed from such a value unless it is kept. Otherwise
backward would begin with the sums of all blocks, and hold them all at once.

Results are equal to the bit: the same ops run on the same values, right before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.autograd.scopes import scope
from d2lmini.base import MXNetError
from d2lmini.graph.fusion import MIRRORED, is_reduction
from d2lmini.graph.ir import (
    Draw,
    Entry,
    Inputs,
    Node,
    Replacement,
    mutated_by,
    spec_of,
    topological,
    transform,
)
from d2lmini.graph.lower import CallMaker, Written, call_maker
from d2lmini.graph.passes import SPREADS, TRANSPOSES, is_reshape
from d2lmini.ops.composed import total
from d2lmini.ops.core import registry


def gradients(
    heads: Sequence[Entry], head_grads: Sequence[Entry | None], wanted: Sequence[Entry]
) -> list[Entry | None]:
    """Gradients of the sum of `heads`, weighted by `head_grads` (None: this head does not count),
    for `wanted`, as entries of a typed graph; None where the heads do not depend on one."""
    order = topological(heads)
    leading = {node for node, _ in wanted}
    for node in order:
        if any(e is not None and e[0] in leading for e in node.inputs):
            leading.add(node)
    parts: dict[Entry, list[Any]] = {}
    counts: dict[str, int] = {}
    for head, g in zip(heads, head_grads, strict=True):
        if g is not None and head[0] in leading:
            parts.setdefault(head, []).append(Written(g, call_maker("backward_", head[0], counts)))
    with scope(False, True):
        for node in reversed(order):
            if node.op is None or node not in leading or node.op.rule is None:
                continue
            gs = [total(parts.get((node, i))) for i in range(len(node.specs))]
            if all(g is None for g in gs):
                continue
            needs = [e is not None and e[0] in leading for e in node.inputs]
            grads = _ask(node, gs, needs, call_maker("backward_", node, counts))
            for entry, needed, g in zip(node.inputs, needs, grads):
                if needed and g is not None and entry is not None:
                    parts.setdefault(entry, []).append(g)
        results = [total(parts.get(entry)) for entry in wanted]
    return [None if g is None else g.entry for g in results]


def _ask(node: Node, gs: list[Any], needs: list[bool], call_of: CallMaker) -> Sequence[Any]:
    """What the rule of a node says, given the gradients of its outputs."""
    op, specs = node.op, node.specs
    outs = [Written(entry, call_of) for entry in node.outputs]
    inputs = [None if e is None else Written(e, call_of) for e in node.inputs]
    if len(specs) > 1:
        for i in range(node.n_outputs):
            if gs[i] is None:
                attrs = {"shape": specs[i].shape, "dtype": specs[i].dtype}
                gs[i] = Written((call_of(registry["_zeros"], (), attrs), 0), call_of)
    try:
        saved = op.saved_of(inputs, outs)
        return op.gradients(gs if len(specs) > 1 else gs[0], saved, node.attrs, needs)  # type: ignore[no-any-return]
    except MXNetError as problem:
        raise MXNetError(node.locate(problem)) from None


# -- a graph in two --------------------------------------------------------------------------------


def residuals(forward: Sequence[Entry], backward: Sequence[Entry]) -> list[Entry]:
    """The values of the forward graph that the backward graph uses, variables apart, in the order
    in which they are computed."""
    before = set(topological(forward))
    used = dict.fromkeys(e for e in backward if e[0] in before)
    for node in topological(backward):
        if node not in before:
            used.update(dict.fromkeys(e for e in node.sources if e[0] in before))
    return [entry for entry in used if entry[0].op is not None]


def cut_graph(entries: Sequence[Entry], at: Sequence[Entry]) -> tuple[list[Node], list[Entry]]:
    """The graph behind `entries` with variables in the place of the values `at`; the variables."""
    replaced: dict[Entry, Entry] = {}
    variables = []
    names: set[str] = set()
    for node, i in at:
        name = f"kept_{node.name}" + (f"_{i}" if len(node.specs or ()) > 1 else "")
        while name in names:  # a layer that is called twice gives two nodes of its name
            name += "_"
        names.add(name)
        specs = None if node.specs is None else (node.specs[i],)
        variable = Node(None, name, specs=specs, site=node.site)
        variables.append(variable)
        replaced[node, i] = (variable, 0)
    return variables, transform(entries, given=replaced)


# -- what backward computes again ------------------------------------------------------------------


def recompute(outputs: Sequence[Entry], grads: Sequence[Entry]) -> list[Entry]:
    """The gradients, with what is cheap computed again from inputs and from what is kept anyway.

    Values that all elements of another can be read from by a view are replaced by that one even if
    it was not to be kept: it is no larger, and there is one of it.
    """
    return _compute_again(outputs, grads, _is_cheap)


def mirror(outputs: Sequence[Entry], grads: Sequence[Entry]) -> list[Entry]:
    """The gradients, computed from as few bytes of the forward graph as cheap ops allow. An op that
    changes variables, other than BatchNorm, is never computed again."""
    return _compute_again(outputs, grads, _is_repeatable, _repeat, outputs)


def _compute_again(
    outputs: Sequence[Entry], grads: Sequence[Entry], is_cheap: Callable[[Node], bool],
    repeat: Callable[[Node, Inputs], Node] | None = None, free: Sequence[Entry] = (),
) -> list[Entry]:  # fmt: skip
    """The gradients, with the values of nodes that are cheap computed again where that keeps fewer
    bytes. repeat: makes the node for backward, of what it is then computed from; free: values that
    are kept anyway."""
    forward = topological(outputs)
    before, changed = set(forward), mutated_by(forward)
    again = {
        node
        for node in forward
        # What a variable that is changed held when it was read, it may hold no more.
        if node.op is not None and is_cheap(node)
        and (node.mutated or not any([e[0] in changed for e in node.sources]))
    }  # fmt: skip
    kept = _fewest_bytes(forward, residuals(outputs, grads), set(free), again)

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node not in before:
            return None
        if node not in again:
            return node
        repeated = repeat(node, inputs) if repeat else node.replace(inputs=inputs)
        return [e if e in kept or _is_moment(e) else (repeated, e[1]) for e in node.outputs]

    return transform(grads, rule)


#: An array of so many times fewer elements than another has few.
FEW = 16

PARTS = ("slice", "slice_axis", "_getitem", "reverse", "cast")


def _is_cheap(node: Node) -> bool:
    """True for a view, and for an op that does little to each element of one array."""
    op, inputs = node.op, node.sources
    if op.random or op.mutates or len(node.specs or ()) != 1:
        return False
    if any(type(value) is Draw for value in node.attrs.values()):
        return False
    if len(inputs) > 1:  # of a few numbers and an array of many, the few are kept
        most = max(spec_of(e).size for e in inputs)
        if sum(FEW * spec_of(e).size > most for e in inputs) > 1:
            return False
    simple = op.name in PARTS or (op.pointwise and not callable(op.flops) and op.flops <= 1)
    return simple or not inputs or _is_view(node)


def _is_view(node: Node) -> bool:
    """True if all elements of the result can be read from the input, which is no larger."""
    if node.op.name == "cast":
        narrow, wide = spec_of(node.inputs[0]).dtype, spec_of((node, 0)).dtype
        return narrow.itemsize <= wide.itemsize and np.can_cast(narrow, wide)
    return is_reshape(node) or node.op.name in (*TRANSPOSES, *SPREADS)


def _is_repeatable(node: Node) -> bool:
    """True for a fixed number of FLOPs an element: no product, no reduction."""
    return not callable(node.op.flops) and (not node.mutated or node.op.name == "BatchNorm")


def _is_moment(entry: Entry) -> bool:
    """True for mean and deviation that BatchNorm found in training: small, and always kept."""
    return bool(entry[0].mutated) and entry[1] > 0


def _repeat(node: Node, inputs: Inputs) -> Node:
    """The node for backward; BatchNorm without its moving statistics, which change once."""
    changes: dict[str, Any] = {"name": f"{node.name}_mirror", "labels": {MIRRORED: "True"}}
    if not node.mutated:
        return node.replace(inputs=inputs, attrs=node.attrs, **changes)
    attrs = {name: node.attrs[name] for name in ("eps", "fix_gamma", "axis")}
    return node.replace(
        op=registry["_normalized_batch"], inputs=inputs[:3], attrs=attrs, specs=node.specs[:1],
        **changes,
    )  # fmt: skip


def _fewest_bytes(
    forward: Sequence[Node], needed: Sequence[Entry], free: set[Entry], again: set[Node]
) -> set[Entry]:
    """The values to keep: as few bytes as nodes `again` can compute `needed` from.

    Each needed value is kept, or in its place what it is computed from, if that is less: of what is
    not kept anyway.
    """
    read_by_products: set[Entry] = set()
    read_again: set[Entry] = set()
    for node in forward if free else ():  # where much may be computed again: see this module
        if node in again:
            read_again.update(node.sources)
        elif not is_reduction(node):  # which reads a value block by block, as it is made
            read_by_products.update(node.sources)
    ends = read_by_products & read_again
    kept = free | {e for e in needed if e[0] not in again or e in ends or _is_moment(e)}
    origins: dict[Entry, set[Entry]] = {}  # of each value, what to keep for it

    def nbytes(entries: set[Entry]) -> int:
        return sum(spec_of(e).nbytes for e in entries if e not in kept)

    wanted = set(needed)
    for node in topological(needed):
        sources = node.sources[:3] if node.mutated else node.sources
        for entry in node.outputs:
            origins[entry] = set() if node.op is None else {entry}
            if node in again and entry not in kept:
                before = set().union(*[origins[e] for e in sources])
                if nbytes(before) < nbytes(origins[entry]) or _is_view(node):
                    origins[entry] = before
            if entry in wanted:
                kept |= origins[entry]
    return kept
