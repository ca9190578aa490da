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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.autograd.scopes import scope
from d2lmini.base import MXNetError
from d2lmini.graph.ir import Entry, Node, topological
from d2lmini.ops.core import Spec, registry
from d2lmini.ops.formula import total
from d2lmini.symbol.naming import NameManager, Prefix
from d2lmini.symbol.traced import Traced


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
    for head, g in zip(heads, head_grads, strict=True):
        if g is not None and head[0] in leading:
            parts.setdefault(head, []).append(Traced((g,)))
    with scope(False, True), Prefix("backward_"):
        for node in reversed(order):
            if node.op is None or node not in leading or node.op.rule is None:
                continue
            assert node.specs is not None
            gs = [total(parts.get((node, i))) for i in range(len(node.specs))]
            if all(g is None for g in gs):
                continue
            needs = [e is not None and e[0] in leading for e in node.inputs]
            for entry, needed, g in zip(node.inputs, needs, _ask(node, gs, needs)):
                if needed and g is not None and entry is not None:
                    parts.setdefault(entry, []).append(g)
        results = [total(parts.get(entry)) for entry in wanted]
    return [None if g is None else g._entry for g in results]


def _ask(node: Node, gs: list[Any], needs: list[bool]) -> Sequence[Any]:
    """What the rule of a node says, given the gradients of its outputs."""
    op, specs = node.op, node.specs
    assert op is not None and specs is not None
    outs = [Traced(((node, i),)) for i in range(len(specs))]
    inputs = [None if e is None else Traced((e,)) for e in node.inputs]
    saved = op.saved_of(inputs, outs)
    if len(specs) > 1:
        for i in range(node.n_outputs):
            if gs[i] is None:
                gs[i] = make_filled("_zeros", specs[i])
    try:
        grads = op.gradients(gs if len(specs) > 1 else gs[0], saved, node.attrs, needs)
    except MXNetError as problem:
        raise MXNetError(node.locate(problem)) from None
    # An op of several outputs gives arrays as a list, and here a group.
    if len(grads) == 1 and isinstance(grads[0], Traced):
        return [Traced((entry,)) for entry in grads[0]._entries]
    return grads


def make_filled(name: str, spec: Spec) -> Traced:
    """The result of an op without inputs: `_zeros` or `_ones`."""
    attrs = {"shape": spec.shape, "dtype": spec.dtype}
    node = Node(registry[name], NameManager.current.get(None, name), (), attrs, (spec,))
    return Traced(((node, 0),))
