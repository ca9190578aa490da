"""Windows that cover the image: each g at all places of its window, for any number of axes."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini.ops import pool
from d2lmini.ops.pool_dense import cover
from d2lmini.ops.windows import Geometry


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    "out, kernel",
    [((5,), (3,)), ((3, 4), (2, 2)), ((3, 4), (1, 3)), ((1, 1), (4, 5)), ((2, 3), (1, 1)),
     ((2, 3), (3, 1)), ((2, 1, 3), (2, 1, 2)), ((0, 2), (2, 2))],
)  # fmt: skip
def test_each_is_repeated_over_its_window(out, kernel, dtype):
    rng = np.random.default_rng(0)
    want = g = rng.normal(size=(4, 3, *out)).astype(dtype)
    for axis, k in enumerate(kernel):
        want = want.repeat(k, axis=axis + 2)
    dx = np.full(want.shape, np.nan, dtype)
    one, zero = (1,) * len(out), (0,) * len(out)
    geo = Geometry(want.shape[2:], kernel, kernel, one, zero, out)
    pool.pooling_spread.compute(np, g, pool=geo, kind=pool.SUM, out=dx)
    np.testing.assert_array_equal(dx, want)


def test_windows_that_overlap_or_leave_places_do_not_cover():
    def covers(size, kernel, stride, pad, out):
        return cover(Geometry(size, kernel, stride, (1, 1), pad, out))

    assert covers((6, 4), (2, 2), (2, 2), (0, 0), (3, 2))
    assert not covers((6, 4), (2, 2), (2, 1), (0, 0), (3, 3))
    assert not covers((7, 4), (2, 2), (2, 2), (0, 0), (3, 2))
    assert not covers((5, 4), (3, 2), (3, 2), (0, 0), (2, 2))  # the last one hangs over the end
    assert not covers((6, 4), (2, 2), (2, 2), (1, 0), (4, 2))
