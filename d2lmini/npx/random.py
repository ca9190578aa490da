"""`npx.random`: the seed, and draws with a number of samples for each parameter."""

from __future__ import annotations

from math import tanh
from typing import Any

from d2lmini.np import random as np_random
from d2lmini.np.values import as_type, fill, is_array
from d2lmini.ops.core import registry
from d2lmini.random_state import seed as seed


def bernoulli(
    prob: Any = None, logit: Any = None, size: Any = None, dtype: Any = None, ctx: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """1 with probability `prob`, or sigmoid(logit), else 0. ValueError unless one is given."""
    if (prob is None) == (logit is None):
        raise ValueError("npx.random.bernoulli: give either prob or logit")
    if prob is None:
        prob = registry["sigmoid"](logit) if is_array(logit) else (1 + tanh(logit / 2)) / 2
    prob = np_random.checked("npx.random.bernoulli: prob", "from 0 to 1", prob)
    if size is None and is_array(prob):
        size, ctx = prob.shape, ctx or prob.ctx
    drawn = np_random.uniform(0, 1, size, ctx=ctx) < prob
    return fill(out, as_type(drawn, dtype or "float32"))


def uniform_n(
    low: Any = 0.0, high: Any = 1.0, batch_shape: Any = None, dtype: Any = None, ctx: Any = None
) -> Any:
    """`batch_shape` draws for each pair of parameters, in the first axes."""
    return np_random.uniform(low, high, _size(batch_shape, low, high), dtype, ctx)


def normal_n(
    loc: Any = 0.0, scale: Any = 1.0, batch_shape: Any = None, dtype: Any = None, ctx: Any = None
) -> Any:
    """`batch_shape` draws for each pair of parameters, in the first axes."""
    return np_random.normal(loc, scale, _size(batch_shape, loc, scale), dtype, ctx)


def _size(batch_shape: Any, *parameters: Any) -> Any:
    shapes = [tuple(x.shape) for x in parameters if hasattr(x, "shape")]
    rest = max(shapes, key=len) if shapes else ()
    if batch_shape is None:
        return rest
    return (*((batch_shape,) if isinstance(batch_shape, int) else batch_shape), *rest)
