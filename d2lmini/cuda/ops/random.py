"""Random numbers on a GPU: every element has a stream of its own (`kernels.random_numbers`)."""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels import random_numbers
from d2lmini.ops.chunking import place
from d2lmini.ops.distributions import draw, standard_uniform
from d2lmini.ops.random_ops import pick, random_randint, shuffle


@standard_uniform.kernel("cuda")
def _(xp: Any, key: Any, piece: int, shape: tuple[int, ...]) -> Any:
    return random_numbers.uniform(xp, key, shape, piece=(piece,))


@draw.kernel("cuda")
def _(xp: Any, name: str, rng: Any, out: Any, parameters: dict[str, Any]) -> Any:
    if out.flags.c_contiguous:
        return random_numbers.fill(xp, name, rng, out, parameters)
    out[...] = random_numbers.fill(xp, name, rng, xp.empty(out.shape, out.dtype), parameters)
    return out


@random_randint.kernel("cuda")
def _(xp, *, low, high, shape=(), dtype="int32", rng):
    return random_numbers.integers(xp, rng, low, high, shape or (1,), dtype)


@pick.kernel("cuda")
def _(xp: Any, upper: Any, count: int, rng: Any) -> Any:
    # One search for all rows: sums and numbers of row n lie from n to n + 1.
    N, K = upper.shape
    row = xp.arange(N)[:, None]
    sums = upper / upper[:, -1:] + row
    uniform = random_numbers.uniform(xp, rng, (N, count), "float64")
    return xp.searchsorted(sums.ravel(), uniform + row, "right") - row * K


@shuffle.kernel("cuda")
def _(xp, data, *, rng, out=None):
    order = random_numbers.permutation(xp, rng, data.shape[0]) if data.ndim else ...
    return place(xp, data[order], data.dtype, out)
