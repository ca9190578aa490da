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

from d2lmini import cpu, engine, nd

SHAPES = ((3, 4), (40, 30), (512, 600))


class Pair:
    """One array in both worlds; `view` keeps them sharing memory with their base."""

    def __init__(self, ours: nd.NDArray, theirs: np.ndarray):
        self.ours, self.theirs = ours, theirs


def wrapped(values: np.ndarray) -> np.ndarray:
    """Kept small, so that sums and products stay exact in float32."""
    return np.mod(values, 17)


def step(rng: random.Random, arrays: list[Pair]) -> None:
    """One random statement, done in both worlds."""
    x = rng.choice(arrays)
    same = [a for a in arrays if a.theirs.shape == x.theirs.shape]
    y = rng.choice(same)
    kind = rng.randrange(9)
    k = rng.randrange(1, 9)
    if kind == 0:
        arrays.append(Pair((x.ours + y.ours) % 17, wrapped(x.theirs + y.theirs)))
    elif kind == 1:
        arrays.append(Pair((x.ours * k + 1) % 17, wrapped(x.theirs * k + 1)))
    elif kind == 2:
        x.ours += y.ours
        x.theirs += y.theirs
        x.ours %= 17
        np.mod(x.theirs, 17, out=x.theirs)
    elif kind == 3:
        x.ours[:] = k
        x.theirs[...] = k
    elif kind == 4 and len(x.theirs) > 1:
        i, j = sorted(rng.sample(range(len(x.theirs) + 1), 2))
        arrays.append(Pair(x.ours[i:j], x.theirs[i:j]))  # shares memory
    elif kind == 5 and len(x.theirs):
        i = rng.randrange(len(x.theirs))
        x.ours[i] = k
        x.theirs[i] = k
    elif kind == 6:
        arrays.append(Pair(x.ours.as_in_context(cpu(1)).copyto(cpu(0)), x.theirs.copy()))
    elif kind == 7:
        arrays.append(Pair(nd.maximum(x.ours, y.ours), np.maximum(x.theirs, y.theirs)))
    elif kind == 8:
        flat = Pair(x.ours.reshape((-1,)), x.theirs.reshape(-1))
        assert np.shares_memory(flat.theirs, x.theirs)
        arrays.append(flat)
    if len(arrays) > 12:
        arrays.pop(rng.randrange(len(arrays)))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 8),
    inline=st.booleans(),
    bulk=st.sampled_from([0, 5]),
    naive=st.integers(0, 9).map(lambda k: k == 0),
)
def test_ndarray_programs_equal_numpy(seed, workers, inline, bulk, naive):
    rng = random.Random(seed)
    options = {} if naive else {"workers": workers, "inline_below": 20.0 if inline else 0.0}
    with engine.use("naive" if naive else "threaded", **options), engine.bulk(bulk):
        arrays = []
        for i, shape in enumerate(SHAPES):
            values = np.full(shape, i, "float32") + np.arange(shape[1], dtype="float32") % 5
            arrays.append(Pair(nd.array(values), values))
        for _ in range(60):
            step(rng, arrays)
        for pair in arrays:
            assert pair.ours.asnumpy().tobytes() == pair.theirs.tobytes()
