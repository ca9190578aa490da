"""What the rows of `ops/binary.py` say is true of what their ops compute, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from d2lmini import sym
from d2lmini.graph.ir import topological
from d2lmini.graph.passes import simplify
from d2lmini.graph.typed import graph_of
from d2lmini.ops.elementwise import FAMILIES, Family

inf, nan = math.inf, math.nan
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 0.5, inf, -inf, nan, 1e-40, 3e38], "float32")
X, Y = (a.copy() for a in np.meshgrid(SPECIAL, SPECIAL))
NUMBERS = [2.0, -1.5, 0.5, 3.0]


def computed(op, *arrays, **attrs) -> np.ndarray:
    with np.errstate(all="ignore"):
        return op.compute(np, *arrays, **attrs)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the bit; nans, which have many, count as one."""
    nans = np.isnan(a)
    return bool((nans == np.isnan(b)).all()) and a[~nans].tobytes() == b[~nans].tobytes()


def each_family(test):
    return pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)(test)


@each_family
def test_a_commutative_function_is_and_others_are_not(family: Family):
    """To the bit: of 0 and -0, maximum and minimum give the second one."""
    swapped = same(computed(family.broadcast, X, Y), computed(family.broadcast, Y, X))
    assert swapped == family.commutative


@each_family
def test_the_identity_leaves_every_number_as_it_is(family: Family):
    if family.identity is None:
        return
    assert same(computed(family.scalar, SPECIAL, scalar=family.identity), SPECIAL)
    whole = np.array([0, 1, -7, 127, -128], "int8")
    assert same(computed(family.scalar, whole, scalar=int(family.identity)), whole)


@each_family
def test_a_number_is_as_an_array_of_it(family: Family):
    """On either side; the pass `canonicalize` exchanges one for the other, but for powers and
    limits, which do not know -0.0."""
    for number in NUMBERS if family.numbers == "clamped_scalars" else [*NUMBERS, 0.0]:
        full = np.full_like(SPECIAL, number)
        left = computed(family.reflected, SPECIAL, scalar=number)
        assert same(left, computed(family.broadcast, full, SPECIAL)), number
        if family.name != "power":
            right = computed(family.scalar, SPECIAL, scalar=number)
            assert same(right, computed(family.broadcast, SPECIAL, full)), number


def names_after(symbol: sym.Symbol, **shapes) -> list[str]:
    nodes = topological(simplify(graph_of(symbol, **shapes)))
    return [node.op.name for node in nodes if node.op]


@each_family
def test_the_compiler_swaps_operands_of_commutative_functions_only(family: Family):
    x, y = sym.var("x"), sym.var("y")
    op = getattr(sym.op, family.broadcast.name)
    names = names_after(sym.Group([op(x, y), op(y, x)]), x=(3,), y=(3,))
    assert names == [family.equal.name] * (1 if family.commutative else 2)
