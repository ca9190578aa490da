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

from d2lmini.np.creation import array
from d2lmini.np.selection import read
from d2lmini.ops.core import Value


def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of NumPy on copies of arrays, which returns arrays."""
    name = function.__name__

    def copied(x: Any) -> Any:
        if isinstance(x, Value):
            return read(x, name)
        if isinstance(x, (list, tuple)):
            return type(x)(map(copied, x))
        return x

    def wrapped(result: Any) -> Any:
        if isinstance(result, onp.ndarray):
            return array(result)
        if isinstance(result, (list, tuple)):
            parts = map(wrapped, result)
            return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        return result

    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapped(
            function(*map(copied, args), **{key: copied(x) for key, x in kwargs.items()})
        )

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"numpy.{name} of copies of the arrays: waits, has no gradient."
    return call


NAMES = """
    allclose apply_along_axis apply_over_axes argpartition argwhere array_equal array_equiv
    bitwise_and bitwise_not bitwise_or bitwise_xor blackman choose compress copysign corrcoef
    correlate count_nonzero cov cross cumprod diag_indices_from digitize divmod extract
    flatnonzero float_power frexp gradient hamming hanning heaviside histogram histogram2d
    histogram_bin_edges histogramdd i0 in1d insert interp intersect1d invert isclose isin ix_
    lcm ldexp lexsort median min_scalar_type modf msort nanargmax nanargmin nancumprod nancumsum
    nanmax nanmedian nanmin nanpercentile nanquantile nanstd nanvar ndim packbits partition
    percentile piecewise poly polyadd polydiv polyfit polyint polymul polysub polyval positive
    promote_types ptp quantile real resize result_type rollaxis roots searchsorted select
    setdiff1d setxor1d signbit size spacing trapz tril_indices tril_indices_from trim_zeros
    triu_indices triu_indices_from union1d unpackbits unravel_index unwrap vander
""".split()

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: by_numpy(getattr(onp, name)) for name in NAMES if hasattr(onp, name)
}
