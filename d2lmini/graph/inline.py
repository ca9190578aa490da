"""Formulas in graphs: composed ops (`ops/composed.py`) become the primitives they are made of.

Inside a compiled graph a composed op is replaced by the graph of its formula, so that the passes
simplify it and fusion joins it to what stands before and behind:

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> graph = graph_of(sym.log_softmax(sym.var("x"), name="y"), x=(2, 3))
>>> print(listing(inlined(graph)))
x                                           # (2, 3) float32
y_max0 = max(x, axis=-1, keepdims=True)     # (2, 1) float32
y_minus0 = broadcast_sub(x, y_max0)         # (2, 3) float32
y_exp0 = exp(y_minus0)                      # (2, 3) float32
y_sum0 = sum(y_exp0, axis=-1, keepdims=True)  # (2, 1) float32
y_log0 = log(y_sum0)                        # (2, 1) float32
y = broadcast_sub(y_minus0, y_log0)         # (2, 3) float32
return y

`Program` does so with every graph, hence also with the gradients of composed ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.graph.ir import Entry, Inputs, Node, spec_of, transform, with_order
from d2lmini.graph.passes import simplify
from d2lmini.ndarray.plan import infer
from d2lmini.ops.composed import Composed
from d2lmini.ops.core import Op, Spec, as_specs, modes
from d2lmini.ops.formula import FormulaValue, results_of
from d2lmini.ops.in_float32 import needs_copies, widened
from d2lmini.symbol.naming import next_name, operator_hint


def inlined(outputs: Sequence[Entry], kind: str = "cpu") -> list[Entry]:
    """The graph with the formulas of its composed ops, simplified. kind: of the device; an op that
    has a kernel of its own for the device stays."""

    def is_formula(node: Node) -> bool:
        op = node.op
        return isinstance(op, Composed) and kind not in op.kernels and not node.mutated

    def rule(node: Node, inputs: Inputs) -> list[Entry] | None:
        return expand(node, inputs) if is_formula(node) else None

    found = with_order(outputs)
    if not any(map(is_formula, found.order)):
        return found
    while any(map(is_formula, found.order)):  # formulas call composed ops
        found = with_order(transform(found, rule))
    return simplify(found)


def expand(node: Node, inputs: Inputs, prefix: str | None = None) -> list[Entry]:
    """The outputs of the formula of a node. The new nodes have its line and its labels, and names
    that begin with its own or with `prefix`. Of a node without specs they are what the formula
    gives."""
    prefix = f"{node.name}_" if prefix is None else prefix
    op = node.op
    assert isinstance(op, Composed)
    names: dict[str, int] = {}
    given = [None if e is None else Written(e, names) for e in inputs]
    if needs_copies(op, [*[spec_of(e) for e in inputs if e is not None], *(node.specs or ())]):
        given = [
            x if x is None else x.astype(widened(op, x._spec.dtype), copy=False) for x in given
        ]
    found = results_of(op, given, node.attrs)
    values = found
    if node.specs is not None:
        values = [y.astype(spec.dtype, copy=False) for y, spec in zip(found, node.specs)]
    known = {e[0] for e in inputs if e is not None}
    stack = [y.entry[0] for y in values]
    last = stack[0] if len(values) == 1 and stack[0] not in known else None
    while stack:
        new = stack.pop()
        if new not in known:
            known.add(new)
            new.site, new.labels = node.site, node.labels
            new.name = prefix + new.name.lstrip("_")
            stack.extend(e[0] for e in new.sources)
    if last is not None:
        last.name = node.name
    return [y.entry for y in values]


class Written(FormulaValue):
    """A value of the graph of a formula. `names` counts the names of the graph's nodes by kind."""

    __slots__ = ("entry", "names")

    def __init__(self, entry: Entry, names: dict[str, int]):
        self.entry = entry
        self.names = names

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return spec_of(self.entry)

    def __neg__(self) -> Any:
        return self * -1.0  # type: ignore[operator]  # as a Symbol

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Any:
        names = inputs[0].names
        entries = tuple([None if x is None else x.entry for x in inputs])
        given = [spec_of(e) for e in entries if e is not None]
        specs = tuple(as_specs(infer(op, given, attrs)))
        if "training" in op.injects:
            attrs = {"training": modes.training, **attrs}
        node = Node(op, next_name(names, operator_hint(op.name)), entries, attrs, specs)
        found = [Written((node, i), names) for i in range(node.n_outputs)]
        return found[0] if len(found) == 1 else found
