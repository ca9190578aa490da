"""Random programs on NDArrays against the same programs on NumPy arrays, equal to the bit.

A program works on a few arrays and views of them, small and large, with operators, in-place
writes, assignments, copies between contexts and reductions. Values are small integers in float32,
so every order of exact arithmetic gives the same bits; a wrong order of tasks does not.
"""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_steps import SHAPES, Pair, step

from d2lmini import engine, nd


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 8),
    inline=st.booleans(),
    naive=st.integers(0, 9).map(lambda k: k == 0),
)
def test_ndarray_programs_equal_numpy(seed, workers, inline, naive):
    rng = random.Random(seed)
    options = {} if naive else {"workers": workers, "inline_below": 20.0 if inline else 0.0}
    with engine.use("naive" if naive else "threaded", **options):
        arrays = []
        for i, shape in enumerate(SHAPES):
            values = np.full(shape, i, "float32") + np.arange(shape[1], dtype="float32") % 5
            arrays.append(Pair(nd.array(values), values))
        for _ in range(60):
            step(rng, arrays)
        for pair in arrays:
            assert pair.ours.asnumpy().tobytes() == pair.theirs.tobytes()
