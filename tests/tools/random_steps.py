"""Random statements done on NDArrays and on NumPy arrays."""

from __future__ import annotations

import random

import numpy as np

from d2lmini import cpu, nd

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
