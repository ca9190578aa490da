"""Chains of numbers: `(x * 2) * 3` is `x * 6`.

>>> from d2lmini import sym
>>> from d2lmini.graph.listing import graph_of, listing
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = ((x * 2) * 3) / 0.5 + 1 + 2
>>> before = graph_of(y, x=(3,))
>>> print(listing(scalars(before)))
x                                           # (3,) float32
_divscalar0 = _mul_scalar(x, scalar=12.0)   # (3,) float32
_plusscalar1 = _plus_scalar(_divscalar0, scalar=3.0)  # (3,) float32
return _plusscalar1

Integers wrap around, so for them this is exact. Floating results may differ by a rounding, and by
no more: two factors are joined only if both are at least 1 or both at most 1 in size, so that the
product in between overflows or vanishes only if the result does; two terms only if they have one
sign. So `(x + 8388608) - 8388608`, which rounds x to a whole number, keeps doing it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from d2lmini.bfloat16 import is_float
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.passes.remove_identities import number_of
from d2lmini.graph.passes.rewrite import Replacement, Rules, call, calls, rewritten

rules = Rules()

SUMS = ("_plus_scalar", "_minus_scalar")
PRODUCTS = ("_mul_scalar", "_div_scalar")


def scalars(outputs: Sequence[Entry]) -> list[Entry]:
    """With each chain of terms, or of factors, as one number."""
    return rewritten(outputs, rules.of)


@rules("_plus_scalar _minus_scalar")
def _(node: Node) -> Replacement:
    inner = calls(node.inputs[0], SUMS)
    if inner is None or spec_of((inner, 0)) != spec_of(_source(inner)):
        return None
    a, b = _term(inner), _term(node)
    dtype = spec_of((node, 0)).dtype
    if is_float(dtype) and not (a * b >= 0 and _fits(a + b, dtype)):
        return None
    return call("_plus_scalar", inner.inputs, node, scalar=a + b)


@rules("_mul_scalar _div_scalar")
def _(node: Node) -> Replacement:
    inner = calls(node.inputs[0], PRODUCTS)
    if inner is None or spec_of((inner, 0)) != spec_of(_source(inner)):
        return None
    dtype = spec_of((node, 0)).dtype
    if not is_float(dtype):
        if "_div_scalar" in (node.op.name, inner.op.name):  # type: ignore[union-attr]
            return None
        return call("_mul_scalar", inner.inputs, node, scalar=number_of(inner) * number_of(node))
    a, b = _factor(inner), _factor(node)
    if not (abs(a) >= 1 and abs(b) >= 1) and not (abs(a) <= 1 and abs(b) <= 1):
        return None
    if {node.op.name, inner.op.name} == {"_div_scalar"}:  # type: ignore[union-attr]
        # x / 3 / 2 is x / 6, which is nearer than x * (1 / 6).
        divisor = number_of(inner) * number_of(node)
        if not _fits(divisor, dtype):
            return None
        return call("_div_scalar", inner.inputs, node, scalar=divisor)
    if not _fits(a * b, dtype):
        return None
    return call("_mul_scalar", inner.inputs, node, scalar=a * b)


def _source(node: Node) -> Entry:
    assert node.inputs[0] is not None
    return node.inputs[0]


def _term(node: Node) -> float | int:
    number = number_of(node)
    assert node.op is not None
    return number if node.op.name == "_plus_scalar" else -number


def _factor(node: Node) -> float:
    """By how much the node multiplies; nan for a division by 0."""
    number = number_of(node)
    assert node.op is not None
    if node.op.name == "_mul_scalar":
        return number
    return 1 / number if number else math.nan


def _fits(number: float, dtype: np.dtype) -> bool:
    """True for a finite number that this dtype holds with all its digits, except for -0."""
    limits = np.finfo(dtype)
    return float(limits.smallest_normal) <= abs(number) <= float(limits.max)
