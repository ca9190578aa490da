"""Sums: a factor that all terms share comes out, and the same sum is taken once.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> from d2lmini.graph.passes.cse import cse
>>> x, c = sym.var("x"), sym.var("c")
>>> with sym.NameManager():
...     y = sym.sum(x * c, axis=1) + sym.mean(x, axis=1)
>>> before = graph_of(y, x=(2, 1000), c=(2, 1))
>>> print(listing(cse(factor_sums(factor_sums(before)))))
x                                           # (2, 1000) float32
sum0 = sum(x, axis=(1,), keepdims=True)     # (2, 1) float32
c                                           # (2, 1) float32
sum0_2 = broadcast_mul(sum0, c)             # (2, 1) float32
sum0_3 = reshape(sum0_2, shape=(2,))        # (2,) float32
mean0 = _div_scalar(sum0, scalar=1000.0)    # (2, 1) float32
mean0_2 = reshape(mean0, shape=(2,))        # (2,) float32
_plus0 = broadcast_add(sum0_3, mean0_2)     # (2,) float32
return _plus0

So the product is of 2 numbers, not of 2000, and x is added up once. This is what makes the gradient
of a normalization cheap: its rule, written as the formula, takes the mean of g gamma and of
g gamma h and the sum of g and of g h, which are two sums and not four. And the gradient of a bias
before a max pooling is the sum of what comes to the pooling, a number for each window.

The results differ by roundings from those before. float16 is left alone: there a sum may overflow
where one of smaller terms does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from d2lmini.graph.ir import Entry, Node, spec_of, topological
from d2lmini.graph.passes.rewrite import Replacement, call, calls, rewritten, same
from d2lmini.graph.passes.views import reshape
from d2lmini.ops.core import Shape
from d2lmini.ops.reduce import kept_shape, reduced_axes

SUMS = ("sum", "mean", "_sum_to")
PRODUCTS = ("broadcast_mul", "elemwise_mul")

#: What is added up, and over which axes (those of size 1 apart).
Sum = tuple[Entry, Shape]


def factor_sums(outputs: Sequence[Entry]) -> list[Entry]:
    """With factors outside of sums, and sums of the same in one form."""
    met: dict[Sum, list[Node]] = {}
    for node in topological(outputs):
        taken = sum_of(node)
        if taken is not None:
            met.setdefault(taken, []).append(node)
    shared = {node for nodes in met.values() if len(nodes) > 1 for node in nodes}

    def meet(before: Node, now: Node) -> None:
        if before in shared:
            shared.add(now)

    def rule(node: Node) -> Replacement:
        taken = sum_of(node)
        if taken is None:
            return None
        found = _factor_out(node, *taken) or _skip_pool_gradient(node, *taken)
        return _plain(node, *taken) if found is None and node in shared else found

    return rewritten(outputs, rule, meet)


def sum_of(node: Node) -> Sum | None:
    """What a node adds up, if it is a sum or a mean of floating numbers."""
    if calls((node, 0), SUMS) is None or node.inputs[0] is None:
        return None
    shape, dtype = spec_of(node.inputs[0])
    if dtype not in ("float32", "float64") or 0 in shape:
        return None
    axes = tuple(a for a in axes_of(node, shape) if shape[a] != 1)
    return (node.inputs[0], axes) if axes else None


def axes_of(node: Node, shape: Shape) -> tuple[int, ...]:
    """The axes over which a sum, mean or `_sum_to` of an array of this shape adds up."""
    assert node.op is not None
    if node.op.name != "_sum_to":
        return reduced_axes(node.attrs["axis"], len(shape), node.attrs["exclude"])
    target = node.attrs["shape"]
    kept = (1,) * (len(shape) - len(target)) + tuple(target)
    return tuple(a for a, n in enumerate(kept) if n == 1)


def _factor_out(node: Node, x: Entry, axes: Shape) -> Entry | None:
    """The sum of p times c, where c is the same along the axes, as the sum of p, times c."""
    product = calls(x, PRODUCTS)
    if product is None:
        return None
    ndim = len(spec_of(x).shape)
    for p, c in _both(product):
        if _same_along(c, axes, ndim) and spec_of(p) == spec_of(x):
            return _times(node, p, axes, c)
    for p, other in _both(product):
        # (q c) b: c comes out of the product first.
        inner = calls(p, PRODUCTS)
        for q, c in _both(inner) if inner else ():
            if _same_along(c, axes, ndim) and spec_of(q) == spec_of(x):
                return _times(node, call("broadcast_mul", (q, other), inner or node), axes, c)
    return None


def _skip_pool_gradient(node: Node, x: Entry, axes: Shape) -> Entry | None:
    """The sum over images of the gradient of a max pooling, as that of what it gives to the winners
    of its windows: every number goes to one place."""
    pooling = calls(x, ("_max_pooling_backward",))
    shape = spec_of(x).shape
    whole = all(a in axes or shape[a] == 1 for a in range(2, len(shape)))
    if pooling is None or not whole or node.op is None or node.op.name == "mean":
        return None
    y = call("sum", pooling.inputs[:1], node, axis=axes, keepdims=True)
    return same(node, reshape(y, spec_of((node, 0)).shape, node))


def _both(product: Node) -> list[tuple[Entry, Entry]]:
    a, b = product.inputs
    assert a is not None and b is not None
    return [(a, b), (b, a)]


def _same_along(c: Entry, axes: Shape, ndim: int) -> bool:
    """True if one c is the same at all places along these axes."""
    shape = spec_of(c).shape
    shape = (1,) * (ndim - len(shape)) + shape
    return all(shape[a] == 1 for a in axes)


def _times(node: Node, p: Entry, axes: Shape, c: Entry) -> Entry | None:
    assert node.op is not None
    name = "mean" if node.op.name == "mean" else "sum"
    y = call(name, (p,), node, axis=axes, keepdims=True)
    y = call("broadcast_mul", (_factor_out(y[0], p, axes) or y, c), node)
    return same(node, reshape(y, spec_of((node, 0)).shape, node))


def _plain(node: Node, x: Entry, axes: Shape) -> Entry | None:
    """In the form in which all that add up the same are one: a sum that keeps its axes."""
    shape = spec_of(x).shape
    y = call("sum", (x,), node, axis=axes, keepdims=True)
    assert node.op is not None and spec_of(y).shape == kept_shape(shape, axes)
    if node.op.name == "sum" and y[0].attrs == node.attrs:
        return None
    if node.op.name == "mean":
        y = call("_div_scalar", (y,), node, scalar=float(prod(shape[a] for a in axes)))
    return same(node, reshape(y, spec_of((node, 0)).shape, node))
