"""Small factors are multiplied with each other, and after a sum: not with every element before.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x, g, r = sym.var("x"), sym.var("g"), sym.var("r")
>>> with sym.NameManager():
...     y = sym.broadcast_mul(x * 2, r, name="y")
...     t = sym.sum(sym.broadcast_mul(g, r) * x, axis=1, keepdims=True, name="t")
>>> before = graph_of(sym.Group([y, t]), x=(3, 4), g=(3, 4), r=(3, 1))
>>> print(listing(factors(before)))
x                                           # (3, 4) float32
r                                           # (3, 1) float32
y = _mul_scalar(r, scalar=2)                # (3, 1) float32
y_2 = broadcast_mul(x, y)                   # (3, 4) float32
g                                           # (3, 4) float32
t = broadcast_mul(g, x)                     # (3, 4) float32
t_2 = sum(t, axis=1, keepdims=True)         # (3, 1) float32
t_3 = broadcast_mul(t_2, r)                 # (3, 1) float32
return y_2, t_3

The gradient of a normalization has the sum of g x with two factors, one of them gamma; by this it
is one sum. The results are equal to a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, calls, rewritten, same
from d2lmini.graph.passes.views import SPREADS, reshape, shape_before
from d2lmini.graph.reductions import aligned, axes_of_reduction
from d2lmini.ops.core import Shape

rules = Rules()

#: An array or a number.
Factor = Entry | float

PRODUCTS = ("elemwise_mul", "broadcast_mul", "_mul_scalar")

#: So many products of products are looked through.
DEEPEST = 8


def factors(outputs: Sequence[Entry]) -> list[Entry]:
    """With small factors multiplied first, or last."""
    return rewritten(outputs, rules.of)


@rules(" ".join(PRODUCTS))
def _(node: Node) -> Replacement:
    """(x * r) * s is x * (r * s)."""
    shape, dtype = spec_of((node, 0))
    if dtype.char not in "fd":
        return None
    for product, s in _both_ways(_factors_of((node, 0))):
        for x, r in _both_ways(_factors_of(product)):
            if _shape(x) == shape and (_shape(r) or _shape(s)):
                small = _times(r, s, node)
                if prod(_shape(small)) < prod(shape):
                    return same(node, _times(x, small, node))
    return None


@rules("sum mean _sum_to")
def _(node: Node) -> Replacement:
    """The sum of x * r along an axis on which r does not depend is the sum of x, times r."""
    data = node.sources[0]
    shape, dtype = spec_of(data)
    if dtype.char not in "fd":
        return None
    axes = axes_of_reduction(node)
    outside: list[Factor] = []
    inside = _without(data, shape, axes, outside, node)
    if not outside or inside is None or _shape(inside) != shape:
        return None
    assert node.op is not None
    value = call(node.op, (inside,), node, **node.attrs)
    for factor in outside:
        value = _times(value, factor, node)
    return same(node, value)


def _without(
    factor: Factor, shape: Shape, axes: tuple[int, ...], found: list[Factor], like: Node,
    depth: int = DEEPEST,
) -> Factor | None:  # fmt: skip
    """The factor without the factors in it that are equal along `axes`, which are `found`; None if
    nothing is left."""
    sizes = aligned(_shape(factor), shape)
    if prod(sizes) < prod(shape) and all(sizes[a] == 1 for a in axes):
        found.append(factor)
        return None
    parts = _factors_of(factor) if depth else []
    before = len(found)
    left = [_without(part, shape, axes, found, like, depth - 1) for part in parts]
    if len(found) == before:
        return factor
    rest = [part for part in left if part is not None]
    return _times(*rest, like) if len(rest) == 2 else (rest or [None])[0]


def _factors_of(factor: Factor) -> list[Factor]:
    """The two factors of a product, before they were spread out; none of anything else."""
    node = calls(factor, PRODUCTS) if isinstance(factor, tuple) else None
    if node is None:
        return []
    number = [node.attrs["scalar"]] if "scalar" in node.attrs else []
    return [*map(_before_spread, node.sources), *number]


def _before_spread(entry: Entry) -> Entry:
    spread = calls(entry, SPREADS)
    return entry if spread is None else reshape(spread.sources[0], shape_before(spread), spread)


def _both_ways(pair: list[Factor]) -> list[tuple[Factor, Factor]]:
    return [(pair[0], pair[1]), (pair[1], pair[0])] if pair else []


def _shape(factor: Factor) -> Shape:
    """The shape of an array; () of a number."""
    return spec_of(factor).shape if isinstance(factor, tuple) else ()


def _times(a: Factor, b: Factor, like: Node) -> Entry:
    """The product of two factors, of which one is an array at least."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return call("broadcast_mul", (a, b), like)
    array, number = (a, b) if isinstance(a, tuple) else (b, a)
    return call("_mul_scalar", (array,), like, scalar=number)
