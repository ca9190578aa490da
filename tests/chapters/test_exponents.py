"""How large the numbers of arrays are, and what a dtype of 16 bits makes of them."""

from __future__ import annotations

from labs.memory_and_precision import count_exponents, find_lost

from d2lmini import nd


def test_what_a_dtype_loses():
    values = nd.array([0, 2.0**-26, 2.0**-20, 1, -3, 70000])
    assert count_exponents(values) == {-26: 1, -20: 1, 0: 1, 1: 1, 16: 1}
    assert find_lost(values) == (0.2, 0.2, 0.2)
    assert find_lost([values], scale=2.0**10) == (0, 0.2, 0.2)
    assert find_lost(values, "bfloat16") == (0, 0, 0)
    assert find_lost(nd.zeros(3)) == (0, 0, 0)
