"""Numbers that are equal but differ do not share what is kept for later calls."""

from __future__ import annotations

import pytest
from generators.equal_numbers import check, ops_with_a_number

from d2lmini import cpu

CALLS = [
    (op, name, dtype)
    for op, name in ops_with_a_number()
    for dtype in ("float32", "int32")
    if "float" in dtype or "arctan2" not in op.name
]


@pytest.mark.parametrize(
    ("op", "name", "dtype"), CALLS, ids=[f"{op.name} {name} {dtype}" for op, name, dtype in CALLS]
)
def test_a_number_gets_nothing_of_an_equal_one(op, name, dtype):
    check(op, name, cpu(), dtype)
