"""`npx.random`: the seed, and draws with a number of samples for each parameter."""

from __future__ import annotations

from math import tanh
from typing import Any

from d2lmini.np import random as np_random
from d2lmini.np.values import as_type, is_array
from d2lmini.ops.core import registry
from d2lmini.random_state import seed as seed


@np_random._draws()
def bernoulli(prob=None, logit=None, size=None, dtype=None, ctx=None, out=None) -> Any:
    """1 with probability `prob`, or sigmoid(logit), else 0. ValueError unless one is given."""
    if (prob is None) == (logit is None):
        raise ValueError("npx.random.bernoulli: give either prob or logit")
    if prob is None:
        prob = registry["sigmoid"](logit) if is_array(logit) else (1 + tanh(logit / 2)) / 2
    prob = np_random._checked("npx.random.bernoulli: prob", "from 0 to 1", prob)
    return as_type(np_random.uniform(0, 1, size, ctx=ctx) < prob, dtype or "float32")


def uniform_n(low=0.0, high=1.0, batch_shape=None, dtype=None, ctx=None) -> Any:
    """`batch_shape` draws for each pair of parameters, in the first axes."""
    return np_random.uniform(low, high, _size(batch_shape, low, high), dtype, ctx)


def normal_n(loc=0.0, scale=1.0, batch_shape=None, dtype=None, ctx=None) -> Any:
    """`batch_shape` draws for each pair of parameters, in the first axes."""
    return np_random.normal(loc, scale, _size(batch_shape, loc, scale), dtype, ctx)


def _size(batch_shape: Any, *parameters: Any) -> tuple[int, ...]:
    batch = () if batch_shape is None else np_random._shape_of(batch_shape)
    return batch + np_random._shape_of(None, *parameters)
