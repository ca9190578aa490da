"""What the user wrote, in the pieces that are best to compute: before statements are formed.

- A layer with a bias is a product and an addition: the addition can then join the activation that
  follows, in one loop or in one place.
- The gradient of relu is a mask and a product: the mask may then be small scratch, and the product
  goes in the place of the gradient that came.
- An elementwise op broadcasts by itself: what was spread out for it (`_spread`, `broadcast_to`: the
  gradients of sums and means) is only brought into a shape that fits.
- On a GPU what is computed of a reshaped value is computed before: a reshape parts a kernel in two.
- On a GPU an element picked from a row is the sum of that row with 0 in place of the others: a
  kernel that reduces the row for something else adds it up in the same loop.

All keep the values to the bit, but for the sum of a picked -0.0, which is 0.0.

>>> from d2lmini import sym
>>> from d2lmini.graph.ir import topological
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> x, w, b = sym.var("x"), sym.var("w"), sym.var("b")
>>> y = sym.FullyConnected(x, w, b, num_hidden=4, name="dense0")
>>> shapes = {x: (2, 3), w: (4, 3), b: (4,)}
>>> specs = {v._entry[0]: Spec(shape, "float32") for v, shape in shapes.items()}
>>> _, outputs = infer_types(y._entries, specs, training=True)
>>> [node for node in topological(lower(outputs)) if node.op]
[<FullyConnected dense0>, <broadcast_add dense0>]

**Formulas in graphs**: composed ops (`ops/composed.py`) become the primitives they are made of.

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
from math import prod
from typing import Any

from d2lmini.graph.ir import Entry, Inputs, Node, spec_of, transform, with_order
from d2lmini.graph.passes import simplify
from d2lmini.graph.rewrite import call, calls
from d2lmini.graph.rules import SPREADS, in_shape, reshape, shape_before
from d2lmini.graph.steps import steps_of
from d2lmini.ndarray.plan import infer
from d2lmini.ops.composed import Composed, FormulaValue, results_of
from d2lmini.ops.core import Op, Spec, as_specs, modes, registry, with_axis
from d2lmini.ops.kernels import has_bfloat16, needs_copies, widened
from d2lmini.symbol.naming import next_name, operator_hint


def lower(outputs: Sequence[Entry], on_gpu: bool = False) -> list[Entry]:
    """The graph behind `outputs` in these pieces."""

    def rule(node: Node, inputs: Inputs) -> Node | list[Entry] | None:
        found = (_lower_pick(node, inputs) or _reshape_last(node, inputs)) if on_gpu else None
        return _lower(node, inputs) if found is None else [found]

    return transform(outputs, rule)


def _lower(node: Node, inputs: Inputs) -> Node | None:
    op, attrs = node.op, node.attrs
    if op is None:
        return None
    # Of bfloat16 the layer stays whole: its product and its sum are rounded once.
    if _has_bias(node) and not has_bfloat16(node.specs or ()):
        product = node.replace(inputs=inputs[:2], attrs={**attrs, "no_bias": True}, labels={})
        added = ((product, 0), inputs[2])
        return node.replace(op=registry["broadcast_add"], inputs=added, attrs={})
    if op.name == "_relu_backward":
        # 1 where the relu let pass what came, else 0.
        mask = node.replace(
            op=registry["_greater_scalar"], inputs=inputs[1:2], attrs={"scalar": 0.0}, labels={}
        )
        op, inputs, attrs = registry["broadcast_mul"], ((mask, 0), inputs[0]), {}
    if op.elementwise and any(e and _is_broadcast(e) for e in inputs):
        inputs = _unspread(node, inputs)
    if op is node.op and inputs == node.inputs:
        return node
    return node.replace(op=op, inputs=inputs, attrs=attrs)


def _lower_pick(node: Node, inputs: Inputs) -> Entry | None:
    """An element picked along an axis as a sum; and the gradient, with inputs that broadcast."""
    op, attrs, specs = node.op, node.attrs, node.specs
    if op is None or op.name not in ("pick", "_pick_grad") or attrs["mode"] != "clip":
        return None
    data, index = inputs
    assert data is not None and index is not None and specs is not None
    shape = spec_of(data).shape if op.name == "pick" else specs[0].shape
    if specs[0].dtype.char not in "fd" or not prod(shape):
        return None
    axis = attrs["axis"]
    kept = with_axis(shape, axis, 1)
    where = {"shape": shape, "axis": axis, "mode": "clip"}
    index = in_shape(index, kept, node)
    if op.name == "_pick_grad":
        g = _source(data) if _is_broadcast(data) else in_shape(data, kept, node)
        return call(op, (g, index), node, **where)
    alone = call("_pick_grad", (data, index), node, **where)
    return in_shape(call("sum", (alone,), node, axis=axis, keepdims=True), specs[0].shape, node)


def _reshape_last(node: Node, inputs: Inputs) -> Entry | None:
    """An elementwise op on a value that was computed and then reshaped, done before the reshape."""
    view = calls(inputs[0], ("reshape",)) if len(inputs) == 1 else None
    op = node.op
    if op is None or view is None or view.sources[0][0].op is None:
        return None
    if not op.elementwise or op.mutates or op.injects or "shape" in op.attr_names:
        return None
    value = call(op, view.sources, node, **node.attrs)
    return reshape(value, spec_of((node, 0)).shape, node)


def _has_bias(node: Node) -> bool:
    """True for a layer with a bias."""
    return node.op is not None and node.op.name == "FullyConnected" and len(node.sources) > 2


def _is_broadcast(entry: Entry) -> bool:
    return entry[0].op is not None and entry[0].op.name in SPREADS


def _unspread(node: Node, inputs: Inputs) -> Inputs:
    """The inputs before they were spread out, where another one has the shape of the result."""
    assert node.specs is not None
    if steps_of(node) is None or len(inputs) < 2:
        return inputs
    shape = node.specs[0].shape
    whole = [e for e in inputs if e and spec_of(e).shape == shape and not _is_broadcast(e)]
    if not whole:
        return inputs
    return tuple([_source(e) if e and _is_broadcast(e) else e for e in inputs])


def _source(entry: Entry) -> Entry:
    """What a spread starts from, in as many axes as its result has."""
    return in_shape(entry[0].sources[0], shape_before(entry[0]), entry[0])


# -- formulas --------------------------------------------------------------------------------------


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
