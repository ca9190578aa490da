"""Learning-rate schedules: formulas, refusals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2lmini.optimizer.lr_scheduler import (
    CosineScheduler,
    FactorScheduler,
    LRScheduler,
    MultiFactorScheduler,
    PolyScheduler,
)


@given(
    last=st.integers(2, 200), base=st.floats(0.01, 10), final=st.floats(0, 0.01), n=st.data(),
    power=st.floats(0.5, 4),
)  # fmt: skip
def test_poly_and_cosine_follow_their_formulas(last, base, final, n, power):
    n = n.draw(st.integers(0, last))
    poly = PolyScheduler(last, base, power, final)(n)
    cosine = CosineScheduler(last, base, final)(n)
    assert poly == pytest.approx(final + (base - final) * (1 - n / last) ** power)
    assert cosine == pytest.approx(final + (base - final) * (1 + math.cos(math.pi * n / last)) / 2)


@pytest.mark.parametrize(
    ("make", "problem", "says"),
    [
        (lambda: FactorScheduler(0), ValueError, "greater or equal than 1 round"),
        (lambda: FactorScheduler(1, 2), ValueError, "no more than 1"),
        (lambda: MultiFactorScheduler([3, 3]), ValueError, "increasing integer list"),
        (lambda: MultiFactorScheduler([0, 3]), ValueError, "greater or equal than 1 round"),
        (lambda: MultiFactorScheduler([1], 1.5), ValueError, "no more than 1"),
        (lambda: MultiFactorScheduler((1, 3)), AssertionError, "list"),
        (lambda: MultiFactorScheduler([]), AssertionError, "list"),
        (lambda: LRScheduler(0.1, 0, 0.2), ValueError, "higher than warmup_begin_lr"),
        (lambda: LRScheduler(warmup_steps=-1), ValueError, "positive or 0"),
        (lambda: LRScheduler(warmup_steps=1.5), AssertionError, "int"),
        (lambda: LRScheduler(warmup_mode="x"), ValueError, "linear and constant"),
        (lambda: PolyScheduler(0), ValueError, "strictly positive"),
        (lambda: CosineScheduler(1.5), AssertionError, "int"),
        (lambda: LRScheduler()(1), NotImplementedError, "__call__"),
        (lambda: PolyScheduler(9, 1, 2, 0, 0, 0, "constant", 3), TypeError, "positional arguments"),
    ],
)
def test_what_does_not_fit_is_refused(make, problem, says):
    with pytest.raises(problem, match=says):
        make()
