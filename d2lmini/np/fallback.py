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


def by_numpy(function, name="", module="d2lmini.np", arrays_only=False) -> Callable[..., Any]:
    """`function` of NumPy on copies of arrays, found as `name` in `module`. Its arrays of numbers
    become `np.ndarray`s, on the device of the first array given. NumPy's scalars stay, or become
    arrays of shape () if `arrays_only` and an array is given: these are ops in MXNet."""
    name = name or function.__name__
    place = f"{module}.{name}".removeprefix("d2lmini.np.")

    def copied(x: Any) -> Any:
        if isinstance(x, Value):
            return read(x, place)
        if isinstance(x, (list, tuple)):
            return type(x)(map(copied, x))
        return x

    def wrapped(result: Any, ctx: Any) -> Any:
        if arrays_only and ctx and isinstance(result, onp.generic):
            result = onp.asarray(result)
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
    allclose apply_along_axis apply_over_axes argpartition argwhere array_equal array_equiv choose
    compress corrcoef correlate count_nonzero cov cross cumprod diag_indices_from digitize divmod
    extract flatnonzero float_power frexp gradient heaviside histogram histogram2d
    histogram_bin_edges histogramdd i0 insert interp intersect1d isclose isin ix_ lexsort median
    min_scalar_type modf nanargmax nanargmin nancumprod nancumsum nanmax nanmedian nanmin
    nanpercentile nanquantile nanstd nanvar ndim packbits partition piecewise poly polyadd polydiv
    polyfit polyint polymul polysub positive promote_types ptp real resize result_type rollaxis
    roots searchsorted select setdiff1d setxor1d signbit size spacing tril_indices tril_indices_from
    trim_zeros triu_indices triu_indices_from union1d unpackbits unwrap vander
""".split()

#: MXNet has ops of these, which give arrays of shape () for such arrays.
OPS = "copysign lcm ldexp percentile quantile unravel_index".split()


def _in1d(ar1, ar2, assume_unique=False, invert=False):
    return onp.isin(onp.ravel(ar1), ar2, assume_unique, invert)


def _msort(a):
    return onp.sort(a, axis=0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: by_numpy(getattr(onp, name)) for name in NAMES},
    **{name: by_numpy(getattr(onp, name), arrays_only=True) for name in OPS},
    # NumPy 2 has these under other names.
    "in1d": by_numpy(_in1d, "in1d"), "msort": by_numpy(_msort, "msort"),
    "trapz": by_numpy(onp.trapezoid, "trapz"),
}  # fmt: skip
