"""`np.linalg`: norms, factors and solutions, after `mxnet.np.linalg`.

>>> from d2lmini import np
>>> np.linalg.norm(np.array([3, 4])), np.linalg.inv(np.array([[2, 0], [0, 4]]))
(array(5.), array([[0.5 , 0.  ],
       [0.  , 0.25]]))
"""

from __future__ import annotations

from typing import Any

import numpy as onp

from d2lmini.np import reductions
from d2lmini.np.binding import Array, functions_of
from d2lmini.np.fallback import by_numpy
from d2lmini.np.products import matmul
from d2lmini.np.selection import where
from d2lmini.np.shapes import expand_dims, moveaxis, ravel, swapaxes
from d2lmini.np.values import as_float, check_array, drop_axes, is_number
from d2lmini.ops.core import normalize_axis, registry


def norm(x: Array, ord=None, axis=None, keepdims=False):
    """The norm over `axis` (all without): 2 by default; ord may be 1, 2, inf, -inf, 0, a number,
    and 'fro', 1, -1, inf, -inf, 'nuc', 2 for matrices (two axes: rows, columns). As in MXNet, inf
    may be the word 'inf'. ValueError for others."""
    x = as_float(x)
    ord = float(ord) if ord in ("inf", "-inf") else ord
    axes = range(x.ndim) if axis is None else [axis] if is_number(axis) else axis
    axes = [normalize_axis(i, x.ndim) for i in axes]
    if len(set(axes)) < len(axes) or (ord is not None and len(axes) not in (1, 2)):
        raise ValueError(f"np.linalg.norm: ord={ord!r} takes 1 axis or 2 that differ, got {axes}")
    if ord in (None, "fro", "f") or (ord == 2 and len(axes) == 1):
        return registry["sqrt"](reductions.sum(x * x, axes, keepdims=keepdims)) if axes else abs(x)
    if len(axes) == 1:
        return _vector_norm(abs(x), ord, axes[0], keepdims)
    if ord in (1, -1, onp.inf, -onp.inf):
        summed, compared = axes if abs(ord) == 1 else axes[::-1]
        lines = reductions.sum(abs(x), summed, keepdims=True)
        extreme = reductions.max if ord > 0 else reductions.min
        found = extreme(lines, compared, keepdims=True)
        return found if keepdims else found.squeeze(axes)
    if ord in (2, -2, "nuc"):
        values = _singular_values(moveaxis(x, axes, (-2, -1)))
        reduction: Any = {2: reductions.max, -2: reductions.min, "nuc": reductions.sum}[ord]
        return expand_dims(reduction(values, -1), axes) if keepdims else reduction(values, -1)
    raise ValueError(f"np.linalg.norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf, -inf; got {ord!r}")


def _singular_values(x):
    return svd(x if x.shape[-2] <= x.shape[-1] else swapaxes(x, -1, -2))[1]


def _vector_norm(absolute, ord, axis, keepdims):
    if isinstance(ord, str):
        raise ValueError(f"np.linalg.norm: ord of vectors is a number, 'inf' or 'fro'; got {ord!r}")
    if abs(ord) == onp.inf:
        extreme = reductions.max if ord > 0 else reductions.min
        return extreme(absolute, axis, keepdims=keepdims)
    if ord == 0:
        return reductions.sum((absolute != 0).astype(absolute.dtype), axis, keepdims=keepdims)
    return reductions.sum(absolute**ord, axis, keepdims=keepdims) ** (1.0 / ord)


def inv(a: Array):
    """The inverse of each matrix."""
    return registry["_linalg_inverse"](as_float(a))


def det(a: Array):
    """The determinant of each matrix."""
    found = registry["_linalg_det"](as_float(a))
    return found if a.ndim != 2 else drop_axes(found)


def slogdet(a: Array):
    """Sign and log of |det| of each matrix."""
    sign, log = registry["_linalg_slogdet"](as_float(a))
    return (sign, log) if a.ndim != 2 else (drop_axes(sign), drop_axes(log))


def svd(a: Array):
    """(U, L, V) with x = U diag(L) V and L descending, of matrices with no
    more rows than columns: (m, m), (m,), (m, n). This is MXNet's form, not NumPy's."""
    return tuple(registry["_svd"](as_float(a)))


def cholesky(a: Array):
    """The lower factor L of each matrix L L^T."""
    return registry["_linalg_potrf"](as_float(a))


def eigh(a: Array, UPLO="L"):
    """Eigenvalues in ascending order and eigenvectors (columns) of symmetric matrices. ValueError
    for an UPLO other than 'L' and 'U'."""
    if UPLO not in ("L", "U"):
        raise ValueError(f"np.linalg.eigh: UPLO is 'L' or 'U', got {UPLO!r}")
    a = as_float(a)
    a = swapaxes(a, -1, -2) if UPLO == "U" else a  # the op reads the lower triangle
    vectors, values = registry["_linalg_syevd"](a)
    return values, swapaxes(vectors, -1, -2)


def eigvalsh(a: Array, UPLO="L"):
    """The eigenvalues of symmetric matrices in ascending order."""
    return eigh(a, UPLO)[0]


def solve(a: Array, b):
    """x with a x = b, for square matrices."""
    a, b = as_float(a), as_float(check_array("linalg.solve", b))
    if b.ndim == a.ndim - 1:
        return matmul(inv(a), expand_dims(b, -1))[..., 0]
    return matmul(inv(a), b)


def pinv(a: Array, rcond=1e-15, hermitian=False):
    """The pseudo-inverse (Moore-Penrose); singular values up to rcond * the largest count as 0.
    `rcond` is a number, or an array with one for each matrix."""
    if a.shape[-2] > a.shape[-1]:
        return swapaxes(pinv(swapaxes(a, -1, -2), rcond, hermitian), -1, -2)
    U, values, V = svd(a)
    rcond = rcond if is_number(rcond) else check_array("linalg.pinv", rcond)[..., None]
    above = values > rcond * values[..., :1]
    inverse = where(above, 1 / where(above, values, 1), 0)
    return matmul(swapaxes(V, -1, -2) * inverse[..., None, :], swapaxes(U, -1, -2))


def tensorinv(a: Array, ind=2):
    """The inverse for `tensordot(a, x, ind)`."""
    shape = tuple(a.shape)
    size = int(onp.prod(shape[:ind]))
    return inv(a.reshape(size, -1)).reshape(shape[ind:] + shape[:ind])


def tensorsolve(a: Array, b, axes=None):
    """x with tensordot(a, x, x.ndim) = b."""
    if axes is not None:
        raise NotImplementedError("np.linalg.tensorsolve: axes is not supported; transpose a first")
    return solve(a.reshape(b.size, b.size), ravel(b)).reshape(a.shape[b.ndim :])


globals().update(functions_of(globals(), __name__))
for _name in """cond eig eigvals lstsq matrix_power matrix_rank multi_dot qr""".split():
    globals()[_name] = by_numpy(getattr(onp.linalg, _name), module=__name__)
