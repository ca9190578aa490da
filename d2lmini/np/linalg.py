"""`np.linalg`: norms, and what NumPy computes from copies: factors and solutions.

>>> from d2lmini import np
>>> np.linalg.norm(np.array([3, 4])), np.linalg.inv(np.array([[2, 0], [0, 4]]))
(array(5.), array([[0.5 , 0.  ],
       [0.  , 0.25]]))
"""

from __future__ import annotations

import numpy as onp

from d2lmini.np import reductions
from d2lmini.np.fallback import by_numpy
from d2lmini.np.values import Array, as_float, functions_of, is_number
from d2lmini.ops.core import normalize_axis, registry


def norm(x: Array, ord=None, axis=None, keepdims=False):
    """The norm over `axis` (all without): 2 by default; of vectors ord may also be inf, -inf, 0 or
    a number. ValueError for others."""
    x = as_float(x)
    axes = range(x.ndim) if axis is None else [axis] if is_number(axis) else axis
    axes = [normalize_axis(i, x.ndim) for i in axes]
    if ord in (None, "fro") or (ord == 2 and len(axes) == 1):
        return registry["sqrt"](reductions.sum(x * x, axes, keepdims=keepdims)) if axes else abs(x)
    if len(axes) != 1 or isinstance(ord, str):
        raise ValueError(
            f"np.linalg.norm: ord={ord!r} over axes {axes}: of matrices there is only 'fro'; "
            "numpy.linalg.norm(x.asnumpy(), ...) has the others"
        )
    if abs(ord) == onp.inf:
        extreme = reductions.max if ord > 0 else reductions.min
        return extreme(abs(x), axes[0], keepdims=keepdims)
    if ord == 0:
        return reductions.sum((x != 0).astype(x.dtype), axes, keepdims=keepdims)
    return reductions.sum(abs(x) ** ord, axes, keepdims=keepdims) ** (1.0 / ord)


globals().update(functions_of(globals(), __name__))
for _name in """
    cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_power matrix_rank multi_dot
    pinv qr slogdet solve svd tensorinv tensorsolve
""".split():
    globals()[_name] = by_numpy(getattr(onp.linalg, _name), module=__name__)
