"""The walk back: gradients in reverse order of recording, each pushed like any operation.

>>> from d2lmini import autograd, nd
>>> x = nd.array([3])
>>> x.attach_grad()
>>> with autograd.record():
...     y = x ** 3
...     dy, = autograd.grad(y, [x], create_graph=True)      # 3 x^2, recorded too
>>> dy.backward()
>>> x.grad.item()                                           # 6 x
18.0
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from d2lmini.autograd import tape
from d2lmini.autograd.scopes import refuse_in_trace, scope
from d2lmini.autograd.tape import Entry, Leaf, Node, NullLeaf, total
from d2lmini.base import MXNetError, callsite
from d2lmini.device import roles
from d2lmini.ops.core import NOWHERE, Value
from d2lmini.ops.create import ones_like, zeros_like

#: MXNet's message for a head without history.
NO_GRAPH = (
    "Cannot differentiate node because it is not in a computational graph. You need to set "
    "is_recording to true or use autograd.record() to save computational graphs for backward. "
    "If you want to differentiate the same graph twice, you need to pass retain_graph=True to "
    "backward."
)

#: The gradients that have arrived at each entry, in order; their sum is the entry's gradient.
Parts = dict[Entry, list[Any]]

#: Most parts of one gradient that are kept before they are summed.
MOST_PARTS = 8


def backward(
    heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Compute the gradients of the sum of `heads` for all arrays with `attach_grad` that they
    depend on, and write the gradients into `grad`.

    heads: an NDArray or a list; a head that stands there twice counts once, with its last head
    gradient. head_grads: the gradient of a later quantity with respect to each head, of the head's
    dtype and as many elements; None means ones. retain_graph: keep the tape for another backward.
    train_mode: the mode in which gradient rules run. Returns at once; the engine computes.

    Without retain_graph the tape of the heads is used up: arrays that were computed there are
    constants afterwards, as in MXNet. MXNetError for a head without history, for a head that an
    earlier backward has used up, and if nothing is left to compute. (If only a part of the tape is
    used up, MXNet refuses too.)
    """
    refuse_in_trace("backward")
    heads, head_grads = _lists(heads, head_grads)
    with scope(False, train_mode):
        callsite.call_remembering_site(_walk, heads, head_grads, retain_graph, graph=False)


def grad(
    heads: Any, variables: Any, head_grads: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, train_mode: bool = True,
) -> list[Any]:  # fmt: skip
    """The gradients of the sum of `heads` for `variables`, as new arrays in a list; no `.grad` is
    written.

    create_graph: record the computation of the gradients too, to differentiate them again.
    retain_graph: as in `backward`; None means the same as create_graph. A variable may be any array
    on the tape (MXNet takes only those with attach_grad).

    Zeros where the heads depend on a variable only through operations without a gradient.
    MXNetError as in `backward`, and when a variable has no history or the heads don't depend on it.
    AssertionError for no variables.
    """
    refuse_in_trace("autograd.grad")
    heads, head_grads = _lists(heads, head_grads)
    variables = [variables] if isinstance(variables, Value) else list(variables)
    if not variables:
        raise AssertionError("grad: variables cannot be an empty list; name at least one array")
    for i, x in enumerate(variables):
        entry = tape.history(x)
        if entry is None or type(entry[0]) is NullLeaf:
            raise MXNetError(
                f"grad: variable {i} of shape {x.shape} is not on the tape; call attach_grad() on "
                "it before recording"
            )
    retain = create_graph if retain_graph is None else retain_graph
    return grad_or_none(heads, variables, head_grads, retain, create_graph, train_mode, True)


def grad_or_none(
    heads: list[Any], variables: list[Any], head_grads: list[Any], retain: bool, graph: bool,
    train_mode: bool, strict: bool = False,
) -> list[Any]:  # fmt: skip
    """Like `grad`, but unless `strict`, None for a variable that the heads don't depend on."""
    targets: dict[Entry, Any] = {x._node: None for x in variables}
    with scope(graph, train_mode):
        callsite.call_remembering_site(_walk, heads, head_grads, retain, graph, targets, strict)
        results = []
        seen = {g._chunk for g in head_grads if g is not None}
        for x in variables:
            g = targets[x._node]
            if g is not None:
                # A write of the caller into one result must not change another, or head_grads.
                g = g.copy() if g._chunk in seen else g
                seen.add(g._chunk)
                g = g.as_np_ndarray() if x.is_np else g
            results.append(g)
    return results


def mark_variables(variables: Any, gradients: Any, grad_reqs: Any = "write") -> None:
    """Set `gradients` as the arrays where backward stores the gradients of `variables`; see
    `attach_grad`.

    grad_reqs: 'write', 'add' or 'null', one for all or one for each; ValueError for any other.
    MXNetError if a gradient's shape or dtype differs from its variable's."""
    refuse_in_trace("attach_grad")
    if isinstance(variables, Value):
        variables, gradients = [variables], [gradients]
    if isinstance(grad_reqs, str):
        grad_reqs = [grad_reqs] * len(variables)
    rows = list(zip(variables, gradients, grad_reqs, strict=True))
    for x, g, req in rows:
        if req not in ("write", "add", "null"):
            raise ValueError(f"grad_req is 'write', 'add' or 'null', got {req!r}")
        if g._spec != x._spec:
            raise MXNetError(f"the gradient of {x._spec} must be like it, got {g._spec}")
    for x, g, req in rows:
        x._node = (NullLeaf if req == "null" else Leaf)(g, req), 0
        if req != "null":
            roles.note("weights", (x,))
            roles.note("gradients", (g,))


def _lists(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(heads, Value):
        heads = [heads]
    heads = list(heads)
    if isinstance(head_grads, Value):
        head_grads = [head_grads]
    head_grads = [None] * len(heads) if head_grads is None else list(head_grads)
    if len(heads) != len(head_grads):
        raise ValueError(f"{len(heads)} heads and {len(head_grads)} head gradients; need as many")
    for head, g in zip(heads, head_grads):
        node = head._node
        if node is None or node[0].parents is None:
            why = (
                "its graph was used up by an earlier backward; pass retain_graph=True to the first"
                if node
                else "it was not computed inside autograd.record() from arrays with attach_grad()"
            )
            raise MXNetError(f"{NO_GRAPH}\n  the head of shape {head.shape}: {why}")
        if g is not None and (g.size, g.dtype) != (head.size, head.dtype):
            raise MXNetError(f"a head gradient is like its head, {head._spec}; got {g._spec}")
    return heads, head_grads


def _walk(
    heads: list[Any], head_grads: list[Any], retain: bool, graph: bool,
    targets: dict[Entry, Any] | None = None, strict: bool = False,
) -> None:  # fmt: skip
    """Push the gradient of every node behind the heads, last recorded first. A leaf is written as
    soon as all parts of its gradient are there. With `targets` no leaf is written: only nodes that
    lead to a target are visited, and `targets` gets their gradients. MXNetError, and nothing has
    changed, if there is no leaf, or if `strict` and a target is not behind the heads."""
    nodes, uses, rest = nodes_behind([head._node[0] for head in heads], targets, retain)
    if targets is None and not any(type(node) is Leaf for node in reversed(nodes)):
        raise MXNetError(
            "There are no inputs in computation graph that require gradients: no array behind the "
            "heads has a gradient attached, or an earlier backward has used up what led to it; "
            "call x.attach_grad() before recording, or pass retain_graph=True to that backward"
        )
    for i, (node, which) in enumerate(targets or ()):
        if strict and node not in uses:
            raise MXNetError(
                f"grad: variable {i} of shape {node.outputs[which].shape} is unreachable from the "
                "outputs: the heads do not depend on it"
            )
    parts: Parts = {}  # parts of gradients so far, to be summed
    written: set[Any] = set()
    for head, g in zip(heads, head_grads):
        if head._node[0] in uses:
            if g is None:
                g = head._apply(ones_like, (head,), ones_like.defaults)
            elif targets is None:  # y.backward(x.grad): keep g although x.grad is overwritten
                written = written or {node.grad._chunk for node in nodes if type(node) is Leaf}
                g = g.copy() if g._chunk in written else g
            g = g.as_nd_ndarray() if g.is_np else g  # gradient rules use NDArray's operators
            g = g if g.shape == head.shape else g.reshape(head.shape)
            parts[head._node] = [g]  # the same head again: the last one counts, as in MXNet
    _visit(nodes, uses, parts, retain, graph, targets)
    if targets is not None:
        for (node, i), g in targets.items():
            if g is None and node in uses:  # only operations without a gradient lead there
                zero = tape.zeros(node.outputs[i], node.ctx)
                if graph:  # zeros that depend on the target, so that their own gradient is 0
                    zero = zeros_like(zero._alias((node, i)))
                targets[node, i] = zero
    for node in rest:
        node.release()


def walk_between(
    parts: Parts, heads: Iterable[Entry], ends: set[Node], places: dict[Entry, Any], graph: bool
) -> None:
    """Walk from `heads`, whose gradients are in `parts`, back to the nodes `ends`, and add what
    arrives there to `parts`. Nodes before `ends` are released, unless `graph`.

    places: the entries of `ends` that need a gradient, each with an array to compute it into, or
    None."""
    nodes, uses, rest = nodes_behind([node for node, _ in heads], dict(places), graph, ends)
    inner = [node for node in nodes if node not in ends]
    _visit(inner, uses, parts, graph, graph, {}, places)
    for node in rest:
        node.release()


def _visit(
    nodes: Sequence[Node], uses: dict[Node, int], parts: Parts, retain: bool, graph: bool,
    targets: dict[Entry, Any] | None, given: dict[Entry, Any] | None = None,
) -> None:  # fmt: skip
    """Ask the nodes for their gradients, one after the other; see `_walk`. given: the places where
    gradients may be computed (`walk_between`)."""
    for node in nodes:
        if targets is None and type(node) is Leaf:
            if (node, 0) in parts:  # the leaf is a head itself
                node.store(parts.pop((node, 0)))
            continue
        if len(node.outputs) == 1:  # nearly every node: avoid the loops
            gs = parts.pop((node, 0), [None])
            gs = gs if len(gs) == 1 else [total(gs)]
            arrived = gs[0] is not None
        else:
            gs = [total(parts.pop((node, i), None)) for i in range(len(node.outputs))]
            arrived = any(g is not None for g in gs)
        if targets is not None:
            targets.update({(node, i): g for i, g in enumerate(gs) if (node, i) in targets})
        parents = node.parents or ()
        placing = node.placing and (targets is None or given is not None)
        needs, places = _wanted(node, uses, parts, given, placing=placing)
        grads: Sequence[Any] = ()
        if arrived and True in needs:
            if node.walk is not None:
                node.walk(parts, gs, graph, needs, places)
            else:
                grads = node.gradients(gs, graph, needs, places)
        if not retain:
            node.release()
        _add(parts, parents, needs, grads)
        if targets is None:
            for parent in parents:
                if parent is not None and type(parent[0]) is Leaf:
                    leaf = parent[0]
                    uses[leaf] -= 1
                    if uses[leaf] == 0:  # if no part arrived, the gradient is zero
                        part = parts.pop(parent, [])
                        leaf.store(part or [tape.zeros(leaf.outputs[0], leaf.ctx)])


def _wanted(
    node: Node, uses: dict[Node, int], parts: Parts, given: dict[Entry, Any] | None, *,
    placing: bool,
) -> tuple[list[bool], Any]:  # fmt: skip
    """Which inputs of a node need a gradient and, if `placing`, the arrays to compute the gradients
    into: the `grad` of a leaf, if `grad` is to be overwritten and only `node` uses the leaf. Places
    that are `given` are used alone."""
    needs, places = [], []
    for parent in node.parents or ():
        needed = parent is not None and parent[0] in uses
        place = None
        if placing and needed and type(parent[0]) is Leaf:
            leaf = parent[0]
            alone = uses[leaf] == 1 and parent not in parts
            if alone and given is not None:
                place = given.get(parent)
            elif alone and leaf.req == "write" and leaf.ctx is node.ctx:
                place = leaf.grad
        needs.append(needed)
        places.append(place)
    return needs, places if placing else NOWHERE


def _add(parts: Parts, entries: Iterable[Any], needs: Iterable[bool], grads: Iterable) -> None:
    """Add to each gradient that is needed the part that there is. Every MOST_PARTS parts are
    summed: a weight that every time step uses must not keep a gradient for each step until the
    end."""
    for entry, needed, g in zip(entries, needs, grads):
        if not needed or g is None:
            continue
        g = g.as_nd_ndarray() if g.is_np else g
        known = parts.get(entry)
        if known is None:
            parts[entry] = [g]
        else:
            known.append(g)
            if len(known) >= MOST_PARTS:
                known[:] = [total(known)]


def nodes_behind(
    heads: Iterable[Node], targets: dict[Entry, Any] | None, retain: bool,
    ends: Collection[Node] = (),
) -> tuple[list[Node], dict[Node, int], list[Node]]:  # fmt: skip
    """The nodes that `heads` were computed from, themselves included, last recorded first; with
    `targets` only those that lead to a target, and only as far back as to `ends`. Also how often
    each node is used and, unless the graph is retained, the other nodes, which are used up too."""
    lowest = min(node.order for node, _ in targets) if targets and retain else 0
    uses: dict[Node, int] = dict.fromkeys(heads, 0)
    todo = list(uses)
    rest: list[Node] = []
    used_up: Node | None = None
    while todo:
        for parent in todo.pop().parents or ():
            if parent is not None:
                node = parent[0]
                if node in uses:
                    uses[node] += 1
                elif node.parents is None:
                    used_up = node
                elif node.order >= lowest:  # parents are older than their children
                    uses[node] = 1
                    if node not in ends:
                        todo.append(node)
    if used_up is not None:
        tape.tell_of_end(used_up)
    nodes = sorted(uses, key=attrgetter("order"), reverse=True)
    if targets is not None:
        leading = {node for node, _ in targets}
        for node in reversed(nodes):
            if node not in ends and any(p is not None and p[0] in leading for p in node.parents):
                leading.add(node)
        rest = [node for node in nodes if not (node in leading or node in ends or retain)]
        nodes = [node for node in nodes if node in leading]
        uses = {node: uses[node] for node in nodes}
    return nodes, uses, rest
