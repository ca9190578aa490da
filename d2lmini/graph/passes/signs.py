"""Signs of small arrays are changed, not of large ones: after a sum, and of the smaller factor.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x, r = sym.var("x"), sym.var("r")
>>> with sym.NameManager():
...     y = -sym.broadcast_mul(x, r, name="y")
...     t = sym.sum(-x, axis=1, name="t")
>>> before = graph_of(sym.Group([y, t]), x=(3, 4), r=(3, 1))
>>> print(listing(signs(before)))
x                                           # (3, 4) float32
r                                           # (3, 1) float32
_mulscalar0 = _mul_scalar(r, scalar=-1.0)   # (3, 1) float32
_mulscalar0_2 = broadcast_mul(x, _mulscalar0)  # (3, 4) float32
t = sum(x, axis=1)                          # (3,) float32
t_2 = _rminus_scalar(t, scalar=0.0)         # (3,) float32
return _mulscalar0_2, t_2

Gradients of differences and of quotients are such sums. The results are equal to the bit: a sum
that is zero is 0.0, whatever the signs of its zeros, and 0.0 - 0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, calls, rewritten, same
from d2lmini.graph.passes.views import SPREADS, reshape, shape_before

rules = Rules()


def signs(outputs: Sequence[Entry]) -> list[Entry]:
    """With changes of sign where they are cheap."""
    return rewritten(outputs, rules.of, is_local=True)


@rules("_mul_scalar negative")
def _(node: Node) -> Replacement:
    """-(x * r) is x * -r."""
    product = calls(_negated((node, 0)), ("broadcast_mul", "elemwise_mul"))
    if product is None:
        return None
    x, small = sorted(map(_before_spread, product.sources), key=lambda e: -spec_of(e).size)
    if spec_of(small).size == spec_of(x).size:
        return None
    small = call("_mul_scalar", (small,), node, scalar=-1.0)
    return same(node, call("broadcast_mul", (x, small), node))


@rules("sum mean _sum_to")
def _(node: Node) -> Replacement:
    """The sum of -x is 0 less the sum of x."""
    data = _negated(node.sources[0])
    if data is None or spec_of(data).size == spec_of((node, 0)).size:
        return None
    assert node.op is not None
    total = call(node.op, (data,), node, **node.attrs)
    return same(node, call("_rminus_scalar", (total,), node, scalar=0.0))


def _negated(entry: Entry) -> Entry | None:
    """The value of which this is the negative, among floats."""
    node = calls(entry, ("_mul_scalar", "negative"))
    if node is None or node.attrs.get("scalar", -1) != -1:
        return None
    return node.sources[0] if spec_of(entry).dtype.char in "efd" else None


def _before_spread(entry: Entry) -> Entry:
    """A value before it was spread out, in as many axes."""
    spread = calls(entry, SPREADS)
    return entry if spread is None else reshape(spread.sources[0], shape_before(spread), spread)
