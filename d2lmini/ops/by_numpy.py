"""NumPy's own functions as an op, for nets with `np`; elsewhere `np.fallback` calls them."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import Spec, as_dtype, op

#: Functions of which the shapes of the arguments decide the shapes of the results.
FIXED = {
    name: getattr(np, name, None) or getattr(np.linalg, name)
    for name in """copysign eig eigvals histogram insert lcm ldexp percentile quantile resize
    unravel_index""".split()
}

#: Stands for an array in the text of the arguments.
ARRAY = "an array"


def _compute(how: str, given: str, arrays: Any) -> list[np.ndarray]:
    args, kwargs = literal_eval(given)
    rest = iter(arrays)
    args = [next(rest) if x == ARRAY else x for x in args]
    found = FIXED[how](*args, **{k: next(rest) if x == ARRAY else x for k, x in kwargs.items()})
    return list(map(np.asarray, found if isinstance(found, tuple) else [found]))


def infer(*inputs: Spec, how: str, given: str, **_: Any) -> list[Spec]:
    """The shapes and dtypes of the results, which are those for zeros."""
    with np.errstate(all="ignore"):
        found = _compute(how, given, [np.zeros(x.shape, x.dtype) for x in inputs])
    return [Spec(x.shape, as_dtype(x.dtype)) for x in found]


@op("_by_numpy", infer=infer, grad=None, outputs=lambda count, **_: count)
def by_numpy(xp, *inputs, how: str, given: str, count: int):
    """The function `how` of `FIXED`; `given` is the text of (args, kwargs)."""
    found = _compute(how, given, inputs if xp is np else [x.get() for x in inputs])
    if any(x.dtype.kind == "c" for x in found):
        raise MXNetError(f"{how}: the results are complex, which arrays in a net cannot be")
    return [xp.asarray(x) for x in found] if count > 1 else xp.asarray(found[0])
