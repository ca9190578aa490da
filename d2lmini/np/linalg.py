"""`np.linalg`: norms, and what NumPy computes from copies: factors and solutions.

>>> from d2lmini import np
>>> np.linalg.norm(np.array([3, 4])), np.linalg.inv(np.array([[2, 0], [0, 4]]))
(array(5.), array([[0.5 , 0.  ],
       [0.  , 0.25]]))
"""

from __future__ import annotations

import numpy as onp

from d2lmini.np import reductions
from d2lmini.np.binding import Array, functions_of
from d2lmini.np.fallback import by_numpy
from d2lmini.np.values import as_float, is_number
from d2lmini.ops.core import normalize_axis, registry


def norm(x: Array, ord=None, axis=None, keepdims=False):
    """The norm over `axis` (all without): 2 by default; ord may be 1, 2, inf, -inf, 0 or a number,
    and 'fro', 1, -1, inf, -inf for matrices (two axes: rows, columns). As in MXNet, inf may be the
    word 'inf'. ValueError for others."""
    x = as_float(x)
    ord = float(ord) if ord in ("inf", "-inf") else ord
    axes = range(x.ndim) if axis is None else [axis] if is_number(axis) else axis
    axes = [normalize_axis(i, x.ndim) for i in axes]
    if len(set(axes)) < len(axes) or (ord is not None and len(axes) not in (1, 2)):
        raise ValueError(f"np.linalg.norm: ord={ord!r} takes 1 axis or 2 that differ, got {axes}")
    if ord in (None, "fro", "f") or (ord == 2 and len(axes) == 1):
        return registry["sqrt"](reductions.sum(x * x, axes, keepdims=keepdims)) if axes else abs(x)
    if len(axes) == 1 and not isinstance(ord, str):
        return _vector_norm(abs(x), ord, axes[0], keepdims)
    if ord in (1, -1, onp.inf, -onp.inf):
        summed, compared = axes if abs(ord) == 1 else axes[::-1]
        lines = reductions.sum(abs(x), summed, keepdims=True)
        extreme = reductions.max if ord > 0 else reductions.min
        found = extreme(lines, compared, keepdims=True)
        return found if keepdims else found.squeeze(axes)
    raise ValueError(f"np.linalg.norm: ord is 'fro', 1, -1, inf or -inf of matrices; got {ord!r}")


def _vector_norm(absolute, ord, axis, keepdims):
    if abs(ord) == onp.inf:
        extreme = reductions.max if ord > 0 else reductions.min
        return extreme(absolute, axis, keepdims=keepdims)
    if ord == 0:
        return reductions.sum((absolute != 0).astype(absolute.dtype), axis, keepdims=keepdims)
    return reductions.sum(absolute**ord, axis, keepdims=keepdims) ** (1.0 / ord)


globals().update(functions_of(globals(), __name__))
for _name in """
    cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_power matrix_rank multi_dot
    pinv qr slogdet solve svd tensorinv tensorsolve
""".split():
    globals()[_name] = by_numpy(getattr(onp.linalg, _name), module=__name__)
