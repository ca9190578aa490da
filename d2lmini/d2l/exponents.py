"""How large the numbers of some arrays are, and what a dtype of 16 bits would make of them.

>>> import numpy as np
>>> grads = np.array([0, 1e-9, 1e-6, 0.75, 1.5, 3, 1e5])
>>> count_exponents(grads)
{-30: 1, -20: 1, -1: 1, 0: 1, 1: 1, 16: 1}
>>> find_lost(grads, "float16")
Lost(zero=0.1666..., subnormal=0.1666..., inf=0.1666...)
>>> find_lost(grads, "float16", scale=1024)      # the scale saves small numbers, not large ones
Lost(zero=0.0, subnormal=0.1666..., inf=0.1666...)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from d2lmini.bfloat16 import finfo
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import as_dtype


class Lost(NamedTuple):
    """Shares, from 0 to 1, of the numbers that are not 0.

    zero        too small for the dtype: rounded to 0
    subnormal   kept, but with fewer digits than the dtype has
    inf         too large for the dtype, or inf or nan before
    """

    zero: float
    subnormal: float
    inf: float


def count_exponents(arrays: Any) -> dict[int, int]:
    """How many numbers have which binary exponent: e counts 2**e <= |x| < 2**(e+1). Without zeros,
    inf and nan. arrays: an NDArray, a NumPy array, or several; waits."""
    values = _nonzero(arrays)
    exponents = np.frexp(values[np.isfinite(values)])[1] - 1
    found, counts = np.unique(exponents, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def find_lost(arrays: Any, dtype: Any = "float16", scale: float = 1.0) -> Lost:
    """Which numbers, multiplied by `scale`, the dtype cannot hold. All shares are 0 if there is no
    number except 0. arrays: as for `count_exponents`; waits."""
    dtype = as_dtype(dtype)
    values = _nonzero(arrays) * scale
    with np.errstate(over="ignore", under="ignore"):
        kept = np.abs(values.astype(dtype).astype(np.float64))
    least = float(finfo(dtype).tiny)
    held = [kept == 0, (kept > 0) & (kept < least), ~np.isfinite(kept)]
    return Lost(*[float(part.mean()) if values.size else 0.0 for part in held])


def _nonzero(arrays: Any) -> np.ndarray:
    """All numbers except 0 as one vector of float64."""
    several: Iterable[Any] = [arrays] if isinstance(arrays, (NDArray, np.ndarray)) else arrays
    flat = [np.asarray(x.asnumpy() if isinstance(x, NDArray) else x).ravel() for x in several]
    values = np.concatenate([x.astype(np.float64) for x in flat]) if flat else np.zeros(0)
    return values[values != 0]
