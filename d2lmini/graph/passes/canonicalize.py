"""The same by simpler means: `x + ones` is `x + 1`, `x * x` a square, `a + (-b)` is `a - b`.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.Activation(x, act_type="relu") + sym.ones((3,))
...     y = sym.elemwise_mul(y, y, name="y")
>>> before = graph_of(y, x=(3,))
>>> print(listing(canonicalize(before)))
x                                           # (3,) float32
activation0 = relu(x)                       # (3,) float32
_plus0 = _plus_scalar(activation0, scalar=1.0)  # (3,) float32
y = square(_plus0)                          # (3,) float32
return y

Where a form is replaced by another, it is by one that passes after this one know more of: equal
shapes say `elemwise_add`, a number says `_plus_scalar`. All results are equal to the bit, but for
sums over copies of one number (`sum(broadcast_to(x))`), which become products.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini.bfloat16 import is_float
from d2lmini.graph.constant import uniform
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.factor_sums import axes_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, calls, rewritten, same
from d2lmini.graph.passes.views import SPREADS, reshape, shape_before
from d2lmini.ops.binary import add, power, sub
from d2lmini.ops.elementwise import FAMILIES

rules = Rules()


def canonicalize(outputs: Sequence[Entry]) -> list[Entry]:
    """With simpler ops in the place of general ones."""
    return rewritten(outputs, rules.of)


@rules(" ".join(op.name for f in FAMILIES.values() for op in (f.broadcast, f.equal)))
def _(node: Node) -> Replacement:
    """By the op of the family beside a number, or for equal shapes."""
    assert node.op is not None
    family = node.op.family
    a, b = node.inputs
    assert a is not None and b is not None
    for x, number, op in ((a, uniform(b), family.scalar), (b, uniform(a), family.reflected)):
        # A power with a number is computed in another way, which rounds otherwise.
        if number is not None and spec_of(x) == spec_of((node, 0)) and family is not power:
            return same(node, call(op, (x,), node, scalar=number))
    if spec_of(a).shape == spec_of(b).shape and node.op is not family.equal:
        return same(node, call(family.equal, (a, b), node))
    return None


@rules("elemwise_add broadcast_add")
def _(node: Node) -> Replacement:
    a, b = node.inputs
    for x, y in ((a, b), (b, a)):
        minus = calls(y, ("negative",))
        if minus is not None:
            return call(
                sub.equal if node.op is add.equal else sub.broadcast, (x, minus.inputs[0]), node
            )
    return None


@rules("elemwise_sub broadcast_sub")
def _(node: Node) -> Replacement:
    a, b = node.inputs
    minus = calls(b, ("negative",))
    if minus is None:
        return None
    return call(add.equal if node.op is sub.equal else add.broadcast, (a, minus.inputs[0]), node)


@rules("elemwise_mul broadcast_mul")
def _(node: Node) -> Replacement:
    return call("square", node.inputs[:1], node) if node.inputs[0] == node.inputs[1] else None


@rules("_mul_scalar")
def _(node: Node) -> Replacement:
    assert node.inputs[0] is not None
    floating = is_float(spec_of(node.inputs[0]).dtype)
    return call("negative", node.inputs, node) if floating and node.attrs["scalar"] == -1 else None


@rules("_power_scalar")
def _(node: Node) -> Replacement:
    assert node.inputs[0] is not None
    if not is_float(spec_of(node.inputs[0]).dtype) or node.attrs["scalar"] not in (2, 0.5):
        return None
    return call("square" if node.attrs["scalar"] == 2 else "sqrt", node.inputs, node)


@rules("Activation")
def _(node: Node) -> Replacement:
    kind = node.attrs["act_type"]
    return call(kind, node.inputs, node) if kind in ("relu", "sigmoid", "tanh") else None


@rules("broadcast_mul elemwise_mul")
def _(node: Node) -> Replacement:
    """Two signs turned are none."""
    a, b = (calls(e, ("negative",)) for e in node.inputs)
    if a is None or b is None or node.op is None:
        return None
    return call(node.op, (a.inputs[0], b.inputs[0]), node)


@rules("sum _sum_to")
def _(node: Node) -> Replacement:
    """A sum over copies: the number times how many there are."""
    inner = calls(node.inputs[0], SPREADS)
    if inner is None or inner.inputs[0] is None:
        return None
    source, wide = inner.inputs[0], spec_of((inner, 0)).shape
    kept = shape_before(inner)
    axes = tuple(a for a in axes_of(node, wide) if wide[a] != 1)
    count = prod(wide[a] for a in axes)
    copies = all(kept[a] == 1 for a in axes)
    dtype = spec_of((node, 0)).dtype
    if (
        not copies
        or not axes
        or count == 0
        or dtype != spec_of(source).dtype
        or not is_float(dtype)
    ):
        return None
    y = call("_mul_scalar", (source,), node, scalar=float(count))
    y = reshape(y, kept, node)
    target = tuple(1 if a in axes else n for a, n in enumerate(wide))
    if target != kept:
        y = call("broadcast_to", (y,), node, shape=target)
    return same(node, reshape(y, spec_of((node, 0)).shape, node))
