"""The walk back: gradients of what came last first, each pushed like any operation.

>>> from d2lmini import autograd, nd
>>> x = nd.array([3])
>>> x.attach_grad()
>>> with autograd.record():
...     y = x ** 3
...     dy, = autograd.grad(y, [x], create_graph=True)      # 3 x^2, recorded too
>>> dy.backward()
>>> x.grad.asscalar()                                       # 6 x
18.0
"""

from __future__ import annotations

from typing import Any

from d2lmini import callsite
from d2lmini.autograd import tape
from d2lmini.autograd.scopes import scope
from d2lmini.autograd.tape import Entry, Leaf, Node, total
from d2lmini.base import MXNetError
from d2lmini.ops.core import Value, registry


def backward(
    heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Compute the gradients of the sum of `heads` for all arrays with `attach_grad` behind them,
    and write them into their `grad`.

    heads: an NDArray or a list. head_grads: gradients of some later quantity for each head, of its
    shape; None means ones. retain_graph: keep the tape, so that it can be walked once more.
    train_mode: the mode in which gradient rules run. Returns at once, the engine computes.

    MXNetError for a head without history, or whose tape an earlier backward has used up.
    """
    heads, head_grads = _lists(heads, head_grads)
    with scope(False, train_mode):
        leaves = _walk(heads, head_grads, retain_graph, graph=False)
    if leaves == 0:
        raise MXNetError(
            "backward: no array behind the heads has a gradient attached; call x.attach_grad() "
            "before recording"
        )


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[Any]:
    """The gradients of the sum of `heads` for `variables`, as new arrays in a list; no `.grad` is
    written.

    create_graph: record the computation of the gradients too, to differentiate them again.
    retain_graph: as in `backward`; None means the same as create_graph. A variable may be any array
    on the tape (MXNet takes only those with attach_grad).

    MXNetError as in `backward`, and when a variable has no history or the heads don't depend on it.
    """
    heads, head_grads = _lists(heads, head_grads)
    variables = [variables] if isinstance(variables, Value) else list(variables)
    targets: dict[Entry, Any] = {}
    for i, x in enumerate(variables):
        if x._node is None:
            raise MXNetError(
                f"grad: variable {i} of shape {x.shape} is not on the tape; call attach_grad() on "
                "it before recording"
            )
        targets[x._node] = None
    retain = create_graph if retain_graph is None else retain_graph
    with scope(create_graph, train_mode):
        _walk(heads, head_grads, retain, create_graph, targets)
    for i, x in enumerate(variables):
        if targets[x._node] is None:
            raise MXNetError(
                f"grad: variable {i} of shape {x.shape} is unreachable: the heads do not depend on "
                "it"
            )
    return [targets[x._node] for x in variables]


def mark_variables(variables: Any, gradients: Any, grad_reqs: Any = "write") -> None:
    """Let `gradients` be where backward puts the gradients of `variables`; see `attach_grad`.

    grad_reqs: 'write', 'add' or 'null', one for all or one for each."""
    if isinstance(variables, Value):
        variables, gradients = [variables], [gradients]
    if isinstance(grad_reqs, str):
        grad_reqs = [grad_reqs] * len(variables)
    for x, g, req in zip(variables, gradients, grad_reqs, strict=True):
        if req not in ("write", "add", "null"):
            raise ValueError(f"grad_req is 'write', 'add' or 'null', got {req!r}")
        if g._spec != x._spec:
            raise MXNetError(f"the gradient of {x._spec} must be like it, got {g._spec}")
        x._node = None if req == "null" else (Leaf(g, req), 0)


def _lists(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(heads, Value):
        heads = [heads]
        head_grads = None if head_grads is None else [head_grads]
    heads = list(heads)
    if isinstance(head_grads, Value):
        head_grads = [head_grads]
    head_grads = [None] * len(heads) if head_grads is None else list(head_grads)
    if len(heads) != len(head_grads):
        raise ValueError(f"{len(heads)} heads and {len(head_grads)} head gradients; need as many")
    for head, g in zip(heads, head_grads, strict=True):
        node = head._node
        if node is None or node[0].released:
            why = (
                "its graph was used up by an earlier backward; pass retain_graph=True to the first"
                if node
                else "it was not computed inside autograd.record() from arrays with attach_grad()"
            )
            raise MXNetError(
                "Cannot differentiate node because it is not in a computational graph: "
                f"the head of shape {head.shape}: {why}"
            )
        if g is not None and g.shape != head.shape:
            raise MXNetError(f"the head has shape {head.shape}, its gradient {g.shape}")
    return heads, head_grads


def _walk(
    heads: list[Any],
    head_grads: list[Any],
    retain: bool,
    graph: bool,
    targets: dict[Entry, Any] | None = None,
) -> int:
    """Push the gradient of every node behind the heads, last recorded first. Leaves are written as
    soon as all parts of their gradient are there; with `targets` nothing is written, and they are
    filled in instead. How many leaves were met."""
    nodes = _behind([head._node[0] for head in heads])
    uses: dict[Node, int] = {}  # of each leaf, by nodes not visited yet
    for node in nodes:
        for parent in node.parents:
            if parent is not None and type(parent[0]) is Leaf:
                uses[parent[0]] = uses.get(parent[0], 0) + 1
    parts: dict[Entry, list[Any]] = {}  # the gradients known so far, to be summed
    for head, g in zip(heads, head_grads, strict=True):
        g = registry["ones_like"](head) if g is None else g
        parts.setdefault(head._node, []).append(g)
    for node in nodes:
        gs = [total(parts.pop((node, i), None)) for i in range(len(node.outputs))]
        if targets is not None:
            for i, g in enumerate(gs):
                if (node, i) in targets:
                    targets[node, i] = g
        if type(node) is Leaf:
            if targets is None and gs[0] is not None:
                node.store([gs[0]])
            continue
        grads = node.gradients(gs, graph) if any(g is not None for g in gs) else ()
        parents = node.parents
        if not retain:
            node.release()
        for parent, g in zip(parents, grads, strict=False):
            if parent is not None and g is not None:
                parts.setdefault(parent, []).append(g)
        if targets is None:
            for parent in parents:
                if parent is not None and parent[0] in uses:
                    uses[parent[0]] -= 1
                    if uses[parent[0]] == 0:
                        _store(parent, parts)
    return sum(type(node) is Leaf for node in nodes)


def _store(entry: Entry, parts: dict[Entry, list[Any]]) -> None:
    """All parts of a leaf's gradient are there: write it, zeros if nothing depends on it."""
    leaf: Any = entry[0]
    leaf.store(parts.pop(entry, None) or [tape.zeros(leaf.outputs[0], leaf.ctx)])


def _behind(heads: list[Node]) -> list[Node]:
    """All nodes that `heads` were computed from, themselves included; the last recorded first."""
    seen = set(heads)
    todo = list(seen)
    while todo:
        for parent in todo.pop().parents:
            if parent is not None and parent[0] not in seen:
                seen.add(parent[0])
                todo.append(parent[0])
    for node in seen:
        if node.released:
            raise MXNetError(
                f"{node.name}: an earlier backward has used up this part of the graph; pass "
                "retain_graph=True to it\n"
                f"  recorded at  {callsite.describe(node.site)}"
            )
    return sorted(seen, key=lambda node: -node.order)
