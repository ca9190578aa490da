"""Long operations that do not need each other, as one statement: they run at the same time.

The gradients of a layer for its data and for its weight need the same things and not each other.
One after the other, each is shared among the workers by itself, and at its end all wait for the
slowest; side by side a worker takes each, and whoever is done first helps the others.

>>> from d2lmini import sym
>>> from d2lmini.graph.fusion import statements
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x, y = sym.var("x"), sym.var("y")
>>> z = sym.dot(sym.dot(x, y, name="a"), sym.dot(y, x, name="b"), name="c")
>>> specs = {v._entry[0]: Spec((256, 256), "float32") for v in (x, y)}
>>> _, outputs = infer_types(z._entries, specs, False)
>>> [[node.name for node in step.nodes] for step in side_by_side(statements(outputs))]
[['a', 'b'], ['c']]
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.graph.constant import CONSTANT
from d2lmini.graph.fusion import Statement
from d2lmini.graph.ir import Node, mutated_by
from d2lmini.graph.steps import steps_of
from d2lmini.graph.views import view_text
from d2lmini.ndarray.plan import PRODUCT_FLOPS_PER_US

#: An operation is long if it is predicted to take so many microseconds, ten times a hand-over to a
#: worker and more; a product is cut from there on.
LONG_US = 800.0
#: So many at once, at most: what they need and make has to be there at the same time.
MOST = 4


def side_by_side(found: Sequence[Statement]) -> list[Statement]:
    """The statements, those that can run at the same time as one. Each joins the one right before
    it; views may stand between."""
    changed = mutated_by(node for statement in found for node in statement.nodes)
    ordered: list[Statement] = []
    last: Statement | None = None
    since: set[Node] = set()  # what was computed by `last` and after it
    for statement in found:
        node = statement.nodes[0]
        if statement.shape is None and _is_view(node):
            since.add(node)
            ordered.append(statement)
            continue
        if statement.shape is not None or not _is_long(node, changed):
            last = None
        elif (
            last is None or len(last.nodes) == MOST or any(e and e[0] in since for e in node.inputs)
        ):
            last, since = statement, {node}
        else:
            last.nodes.append(node)
            since.add(node)
            continue
        ordered.append(statement)
    return ordered


def _is_view(node: Node) -> bool:
    return node.op is CONSTANT or view_text(node) is not None


def _is_long(node: Node, changed: set[Node]) -> bool:
    """True if it is one long call, into a given place, and reads nothing that changes meanwhile.
    An elementwise op may be several calls, one after the other, and waits for memory anyway."""
    op = node.op
    assert op is not None
    if not callable(op.flops) or not op.takes_out or steps_of(node) is not None:
        return False
    if any(e[0] in changed for e in node.sources):
        return False
    return node.cost.flops > LONG_US * PRODUCT_FLOPS_PER_US
