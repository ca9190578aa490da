"""What the user wrote, in the pieces that are best to compute: before statements are formed.

- A layer with a bias is a product and an addition: the addition can then join the activation that
  follows, in one loop or in one place.
- The gradient of relu is a mask and a product: the mask may then be small scratch, and the product
  goes in the place of the gradient that came.
- An elementwise op broadcasts by itself: what was spread out for it (`_spread`, `broadcast_to`: the
  gradients of sums and means) is only brought into a shape that fits.

All keep the values to the bit.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import typed
>>> from d2lmini.ops.spec import Spec
>>> x, w, b = sym.var("x"), sym.var("w"), sym.var("b")
>>> y = sym.FullyConnected(x, w, b, num_hidden=4, name="dense0")
>>> shapes = {x: (2, 3), w: (4, 3), b: (4,)}
>>> specs = {v._entry[0]: Spec(shape, "float32") for v, shape in shapes.items()}
>>> _, outputs = typed(y._entries, specs, training=True)
>>> [node for node in topological(lowered(outputs)) if node.op]
[<FullyConnected dense0>, <broadcast_add dense0>]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini.graph.expressions import steps_of
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Spec
from d2lmini.symbol.node import Entry, Node, topological

_SPREADS = frozenset("_spread broadcast_to broadcast_axis broadcast_like".split())


def lowered(outputs: Sequence[Entry]) -> list[Entry]:
    """The graph behind `outputs` in these pieces; nodes that stay are the same objects unless what
    stands before them has changed."""
    made: dict[Node, Node] = {}

    def now(entry: Entry) -> Entry:
        return made.get(entry[0], entry[0]), entry[1]

    for node in topological(outputs):
        if node.op is None:
            continue
        inputs = tuple([e and now(e) for e in node.inputs])
        if node.op.name == "FullyConnected" and len(inputs) > 2 and inputs[2] is not None:
            attrs = {**node.attrs, "no_bias": True}
            product = Node(node.op, node.name, inputs[:2], attrs, node.specs, site=node.site)
            made[node] = Node(
                registry["broadcast_add"], node.name, ((product, 0), inputs[2]), {}, node.specs,
                node.labels, node.site,
            )  # fmt: skip
            continue
        op, attrs = node.op, node.attrs
        if op.name == "_relu_backward":
            op, inputs, attrs = registry["broadcast_mul"], (_mask(node, inputs[1]), inputs[0]), {}
        if op.elementwise and any(e and _is_spread(e) for e in inputs):
            inputs = _unspread(node, inputs)
        if op is not node.op or inputs != node.inputs:
            made[node] = Node(op, node.name, inputs, attrs, node.specs, node.labels, node.site)
    return [now(entry) for entry in outputs]


def _mask(node: Node, output: Entry | None) -> Entry:
    """1 where a relu let pass what came, else 0."""
    op = registry["_greater_scalar"]
    return Node(op, node.name, (output,), {"scalar": 0.0}, node.specs, site=node.site), 0


def _is_spread(entry: Entry) -> bool:
    return entry[0].op is not None and entry[0].op.name in _SPREADS


def _unspread(node: Node, inputs: tuple[Entry | None, ...]) -> tuple[Entry | None, ...]:
    """The inputs before they were spread out, where another one has the shape of the result."""
    assert node.specs is not None
    if steps_of(node) is None or len(inputs) < 2:
        return inputs
    shape = node.specs[0].shape
    whole = [e for e in inputs if e and spec_of(e).shape == shape and not _is_spread(e)]
    if not whole:
        return inputs
    return tuple([_source(e) if e and _is_spread(e) else e for e in inputs])


def _source(entry: Entry) -> Entry:
    """What a spread starts from, in as many axes as its result has."""
    spread = entry[0]
    source = spread.inputs[0]
    assert source is not None
    spec = spec_of(source)
    axes = len(spec_of(entry).shape)
    kept = spread.attrs.get("kept", (1,) * (axes - len(spec.shape)) + spec.shape)
    if kept == spec.shape:
        return source
    assert prod(kept) == spec.size
    attrs = {"shape": kept, "reverse": False}
    return (
        Node(registry["_spread"], spread.name, (source,), {"kept": kept, "shape": kept},
             (Spec(kept, spec.dtype),), site=spread.site), 0,
    ) if 0 in kept else (
        Node(registry["reshape"], spread.name, (source,), attrs, (Spec(kept, spec.dtype),),
             site=spread.site), 0,
    )  # fmt: skip


def spec_of(entry: Entry) -> Spec:
    """Shape and dtype of a value of a typed graph."""
    assert entry[0].specs is not None
    return entry[0].specs[entry[1]]
