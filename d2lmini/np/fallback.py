"""Functions of `np` that NumPy computes from copies of the arrays, as in MXNet: they wait for their
arguments and have no gradient.

>>> from d2lmini import np
>>> np.median(np.array([3, 1, 2]))
np.float32(2.0)
>>> np.histogram(np.array([1, 2, 2]), bins=2)[0]
array([1, 2], dtype=int64)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from d2lmini.ndarray.ndarray import NDArray
from d2lmini.np.creation import array
from d2lmini.np.values import read
from d2lmini.ops.core import Value
from d2lmini.ops.signature import named


def by_numpy(function, module="d2lmini.np") -> Callable[..., Any]:
    """`function` of NumPy on copies of arrays, found in `module`. Its arrays of numbers become
    `np.ndarray`s, on the device of the first array given; NumPy's scalars stay."""
    name = function.__name__
    place = f"{module}.{name}".removeprefix("d2lmini.np.")

    def copied(x: Any) -> Any:
        if isinstance(x, Value):
            return read(x, place)
        if isinstance(x, (list, tuple)):
            return type(x)(map(copied, x))
        return x

    def wrapped(result: Any, ctx: Any) -> Any:
        if isinstance(result, onp.ndarray) and result.dtype.kind in "biuf":
            return array(result, ctx=ctx)
        if isinstance(result, (list, tuple)):
            parts = [wrapped(part, ctx) for part in result]
            return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        return result

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*map(copied, args), **{key: copied(x) for key, x in kwargs.items()})
        given = (*args, *kwargs.values())
        return wrapped(result, next((x.ctx for x in given if isinstance(x, NDArray)), None))

    doc = f"numpy.{name} of copies of the arrays: waits, has no gradient."
    return named(call, module, name, doc)


NAMES = """
    allclose argwhere array_equal count_nonzero cumprod histogram interp isclose isin median ndim
    percentile promote_types ptp quantile result_type searchsorted shape size
""".split()

FUNCTIONS: dict[str, Callable[..., Any]] = {name: by_numpy(getattr(onp, name)) for name in NAMES}
