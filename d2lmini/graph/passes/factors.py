"""A sign, or a power of two, is multiplied by the smaller factor, and after a sum.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x, r = sym.var("x"), sym.var("r")
>>> with sym.NameManager():
...     y = sym.broadcast_mul(x * 2, r, name="y")
...     t = sym.sum(-x, axis=1, name="t")
>>> before = graph_of(sym.Group([y, t]), x=(3, 4), r=(3, 1))
>>> print(listing(factors(before)))
x                                           # (3, 4) float32
r                                           # (3, 1) float32
y = _mul_scalar(r, scalar=2)                # (3, 1) float32
y_2 = broadcast_mul(x, y)                   # (3, 4) float32
t = sum(x, axis=1)                          # (3,) float32
t_2 = _mul_scalar(t, scalar=-1.0)           # (3,) float32
return y_2, t_2

Gradients of squares and of differences are such products. These factors change the exponent and
the sign of a float alone, so the results are equal to the bit, unless the larger product is beyond
the range of the dtype. Other factors would round in another way, and a sum without a factor below
1 might overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, calls, rewritten, same
from d2lmini.graph.passes.views import SPREADS, reshape, shape_before

rules = Rules()


def factors(outputs: Sequence[Entry]) -> list[Entry]:
    """With such factors where they are cheap."""
    return rewritten(outputs, rules.of)


@rules("elemwise_mul broadcast_mul")
def _(node: Node) -> Replacement:
    """(x * 2) * r is x * (r * 2)."""
    for entry, other in (node.sources, node.sources[::-1]):
        x, number = _apart(entry)
        small = _before_spread(other)
        if number is not None and spec_of(small).size < spec_of(x).size:
            small = call("_mul_scalar", (small,), node, scalar=number)
            return same(node, call("broadcast_mul", (x, small), node))
    return None


@rules("_mul_scalar")
def _(node: Node) -> Replacement:
    """(x * r) * 2 is x * (r * 2)."""
    product, number = _apart((node, 0))
    inner = calls(product, ("broadcast_mul",))
    if number is None or inner is None:
        return None
    x, small = sorted(map(_before_spread, inner.sources), key=lambda e: -spec_of(e).size)
    if spec_of(small).size == spec_of(x).size:
        return None
    small = call("_mul_scalar", (small,), node, scalar=number)
    return same(node, call("broadcast_mul", (x, small), node))


@rules("sum mean _sum_to")
def _(node: Node) -> Replacement:
    """The sum of x * 2, or of (x * 2) * y, is twice the sum without."""
    data, number = _apart(node.sources[0])
    product = calls(data, ("elemwise_mul", "broadcast_mul"))
    if number is None and product is not None:
        (x, number), (y, other) = map(_apart, product.sources)
        if number is None:
            number = other
        elif other is not None:
            y = product.sources[1]
        data = call("broadcast_mul", (x, y), product)
    if number is None:
        return None
    assert node.op is not None
    total = call(node.op, (data,), node, **node.attrs)
    return same(node, call("_mul_scalar", (total,), node, scalar=number))


def _apart(entry: Entry) -> tuple[Entry, float | None]:
    """A value without a factor that only changes sign and exponent, and the factor."""
    node = calls(entry, ("_mul_scalar",))
    if node is None or spec_of(entry).dtype.char not in "efd":
        return entry, None
    number = node.attrs["scalar"]
    is_exact = abs(number) >= 1 and abs(frexp(number)[0]) == 0.5
    return (node.sources[0], number) if is_exact else (entry, None)


def _before_spread(entry: Entry) -> Entry:
    """A value before it was spread out, in as many axes."""
    spread = calls(entry, SPREADS)
    return entry if spread is None else reshape(spread.sources[0], shape_before(spread), spread)
