"""Arithmetic beyond the table of rows: kinks, errors, numbers beside arrays, writing in place."""

from __future__ import annotations

import math

import numpy as np
import pytest
from op_rows import binary, elemwise
from op_rows.case import draw

from d2lmini import MXNetError, nd
from d2lmini.ops.core import Op, registry
from d2lmini.ops.unary import BLOCK

inf, nan = math.inf, math.nan
ROWS = elemwise.ROWS + binary.ROWS


def f32(*numbers):
    return nd.array(numbers, dtype="float32")


def rule(name: str, *saved, g=None, **attrs) -> list:
    """The gradient rule of an op on NDArrays, as lists."""
    if g is None:
        g = nd.ones(saved[0].shape)
    result = registry[name].rule(g, *saved, **attrs)
    result = result if isinstance(result, (list, tuple)) else [result]
    return [None if r is None else r.asnumpy().tolist() for r in result]


# -- gradients where a function has a kink: as MXNet 1.9.1 gives them ------------------------------


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (lambda: rule("abs", f32(-1, 0, 2)), [[-1, 0, 1]]),
        (lambda: rule("relu", f32(0, 0, 2)), [[0, 0, 1]]),
        (lambda: rule("clip", f32(-1, 0, 0.5, 1, 2), a_min=0, a_max=1), [[0, 1, 1, 1, 0]]),
        (lambda: rule("broadcast_maximum", f32(1, 2, 3), f32(2, 2, 2)), [[0, 1, 1], [1, 0, 0]]),
        (lambda: rule("broadcast_minimum", f32(1, 2, 3), f32(2, 2, 2)), [[1, 1, 0], [0, 0, 1]]),
        (lambda: rule("_maximum_scalar", f32(1, 2, 3), scalar=2), [[0, 1, 1]]),
        (lambda: rule("_minimum_scalar", f32(1, 2, 3), scalar=2), [[1, 1, 0]]),
        (lambda: rule("smooth_l1", f32(0.25, -0.25, 2, 0), scalar=2.0), [[1, -1, 1, 0]]),
        (lambda: rule("_power_scalar", f32(0, 1, -3), scalar=2), [[0, 2, -6]]),
        (lambda: rule("_power_scalar", f32(0, 1, -3), scalar=0), [[0, 0, 0]]),
        (lambda: rule("_power_scalar", f32(0, 1, -3), scalar=1), [[1, 1, 1]]),
        (lambda: rule("broadcast_mod", f32(7, -7), f32(3, 3)), [[1, 1], [-2, 3]]),
        (lambda: rule("_rpower_scalar", f32(4), scalar=2), [[pytest.approx(4 * math.log(2))]]),
        (lambda: rule("make_loss", g=f32(5, 5)), [[1, 1]]),
        (lambda: rule("where", f32(1, 0), g=f32(7, 8)), [None, [7, 0], [0, 8]]),
        (lambda: rule("add_n", [(2,), (2,)], g=f32(7, 8)), [[7, 8], [7, 8]]),
        (lambda: rule("_identity_with_attr_like_rhs", g=f32(7)), [[7], None]),
    ],
)
def test_gradient_at_kinks(got, want):
    assert got() == want


# -- errors rise at the call, and say what to do ---------------------------------------------------

INT, FLOAT, BOOL = nd.array([1, 2], dtype="int32"), nd.ones((2,)), nd.array([1, 0], dtype="bool")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: INT + FLOAT, r"broadcast_add.*differ: int32, float32.*astype\('float32'\)"),
        (lambda: nd.ones((2, 3)) + nd.ones((2,)), r"lhs is \(2, 3\), rhs is \(2,\)"),
        (
            lambda: nd.elemwise_add(nd.ones((3,)), nd.ones((1,))),
            r"elemwise_add.*shapes differ",
        ),
        (lambda: BOOL + BOOL, r"got bool; convert with .astype\('int32'\)"),
        (lambda: INT + nan, "nan is not a number of int32"),
        (lambda: nd.arctan2(INT, INT), "needs floating point, got int32"),
        (lambda: nd.where(nd.ones((3,)), FLOAT, FLOAT), r"condition is \(3,\), need x's shape"),
        (lambda: nd.add_n(FLOAT, nd.ones((3,))), r"input 0 is \(2,\), input 1 is \(3,\)"),
        (lambda: nd.cast(FLOAT, dtype="complex64"), "complex64"),
        (lambda: FLOAT + 10**400, "_plus_scalar: int too large"),
        (lambda: nd.clip(FLOAT, 0, 10**400), "clip: attribute a_max=.* does not fit"),
    ],
)
def test_error_at_the_call(call, says):
    with pytest.raises(MXNetError, match=says):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: FLOAT + 1j,
        lambda: FLOAT + None,
        lambda: nd.add(FLOAT, "a"),
        lambda: nd.maximum(FLOAT, [1, 2]),
        lambda: nd.clip(FLOAT),
    ],
)
def test_what_is_no_number_is_a_type_error(call):
    with pytest.raises(TypeError):
        call()


def test_two_numbers_give_a_number():
    assert (nd.add(3, 4), nd.maximum(3, 4), nd.power(2, 10), nd.modulo(7, 4)) == (7, 4, 1024, 3)
    assert (nd.equal(3, 3), nd.lesser(2, 1), nd.logical_xor(1, 0)) == (1.0, 0.0, 1.0)


# -- numbers beside arrays -------------------------------------------------------------------------


def test_zeros_of_both_signs_stay_apart_in_later_calls():
    x = nd.array([3, -2])
    for zero, first in ((0.0, inf), (-0.0, -inf), (0.0, inf)):
        assert (zero**x).asnumpy().tolist() == [0, abs(first)]
        assert (1 / nd.full((1,), zero)).asscalar() == first
        assert bool(nd.arctan2(x * x * 0, zero)[1] == 0) == (first > 0)


# -- in place, and in pieces -----------------------------------------------------------------------


def pointwise(case) -> bool:
    op = registry.get(case.op)
    arrays = all(isinstance(i, np.ndarray) for i in case.inputs)
    return isinstance(op, Op) and op.elementwise and op.takes_out and arrays


POINTWISE = [case for case in ROWS if pointwise(case)]


def computed(case, inputs, **options):
    op = registry[case.op]
    _, attrs = op.bind(tuple(nd.zeros((1,)) for _ in inputs), dict(case.attrs))
    with np.errstate(all="ignore"):
        return np.asarray(op.compute(np, *inputs, **attrs, **options))


def test_result_may_be_written_over_an_input():
    """`x += y` gives compute its own input as `out`; so may the executor."""
    for case in POINTWISE:
        want = computed(case, case.inputs)
        for i, x in enumerate(case.inputs):
            if x.shape == want.shape and x.dtype == want.dtype:
                inputs = [a.copy() for a in case.inputs]
                computed(case, inputs, out=inputs[i])
                assert inputs[i].tobytes() == want.tobytes(), case.id


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_functions_of_many_elements_go_block_by_block(dtype):
    x = draw((3, BLOCK + 5), 0.5, 3, dtype)
    for name, function in (("erf", math.erf), ("gamma", math.gamma)):
        op = registry[name]
        want = np.vectorize(function, otypes=[np.float64])(x).astype(dtype)
        got = op.compute(np, x)
        np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "float32" else 1e-14)
        place = np.empty_like(x)
        assert op.compute(np, x, out=place) is place
        np.testing.assert_array_equal(place, got)
        np.testing.assert_array_equal(op.compute(np, x.T), got.T)
