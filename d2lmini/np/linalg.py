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
from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.fallback import by_numpy
from d2lmini.np.products import matmul
from d2lmini.np.selection import where
from d2lmini.np.shapes import expand_dims, moveaxis, ravel, squeeze, swapaxes
from d2lmini.np.values import as_float, check_array, drop_axes, is_number
from d2lmini.ops.core import normalize_axis, registry
from d2lmini.ops.signature import named


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm over `axis` (all without): 2 by default; ord may be 1, 2, inf, -inf, 0, a number,
    and 'fro', 1, -1, inf, -inf, 'nuc', 2 for matrices (two axes: rows, columns). As in MXNet, inf
    may be the word 'inf'. ValueError for others."""
    x = as_float(check_array("linalg.norm", x))
    ord = float(ord) if ord in ("inf", "-inf") else ord
    absolute = ELEMENTWISE["abs"](x)
    if axis is None:
        axis = range(len(x.shape))
    axes = [normalize_axis(i, len(x.shape)) for i in ([axis] if is_number(axis) else axis)]
    if len(set(axes)) < len(axes) or (ord is not None and len(axes) not in (1, 2)):
        raise ValueError(f"np.linalg.norm: ord={ord!r} takes 1 axis or 2 that differ, got {axes}")
    if ord in (None, "fro", "f") or (ord == 2 and len(axes) == 1):
        if not axes:
            return absolute
        total = reductions.sum(x * x, axes, keepdims=keepdims)
        return ELEMENTWISE["sqrt"](total)
    if len(axes) == 1:
        return _vector_norm(absolute, ord, axes[0], keepdims)
    rows, columns = axes
    if ord in (1, -1, onp.inf, -onp.inf):
        first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
        lines = reductions.sum(absolute, first, keepdims=True)
        extreme = reductions.max if ord > 0 else reductions.min
        found = extreme(lines, second, keepdims=True)
        return found if keepdims else squeeze(found, axes)
    if ord in (2, -2, "nuc"):
        values = _singular_values(moveaxis(x, axes, (-2, -1)))
        found = {2: reductions.max, -2: reductions.min, "nuc": reductions.sum}[ord](values, -1)
        return expand_dims(found, axes) if keepdims else found
    raise ValueError(f"np.linalg.norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf, -inf; got {ord!r}")


def _singular_values(x: Any) -> Any:
    return svd(x if x.shape[-2] <= x.shape[-1] else swapaxes(x, -1, -2))[1]


def _vector_norm(absolute: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if ord == onp.inf:
        return reductions.max(absolute, axis, keepdims=keepdims)
    if ord == -onp.inf:
        return reductions.min(absolute, axis, keepdims=keepdims)
    if ord == 0:
        nonzero = (absolute != 0).astype(absolute.dtype)
        return reductions.sum(nonzero, axis, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"np.linalg.norm: ord of vectors is a number, 'inf' or 'fro'; got {ord!r}")
    return reductions.sum(absolute**ord, axis, keepdims=keepdims) ** (1.0 / ord)


def _batched(name: str, op: str, doc: str) -> Any:
    def function(a: Any) -> Any:
        result = registry[op](as_float(check_array(f"linalg.{name}", a)))
        count: Any = registry[op].outputs
        parts = [result] if count == 1 else [result[i] for i in range(count)]
        if name in ("det", "slogdet") and len(a.shape) == 2:
            parts = [drop_axes(x) for x in parts]
        return parts[0] if count == 1 else tuple(parts)

    return named(function, __name__, name, doc)


inv = _batched("inv", "_linalg_inverse", "The inverse of each matrix.")
det = _batched("det", "_linalg_det", "The determinant of each matrix.")
slogdet = _batched("slogdet", "_linalg_slogdet", "Sign and log of |det| of each matrix.")
svd = _batched(
    "svd",
    "_svd",
    """(U, L, V) with x = U diag(L) V and L descending, of matrices with no
    more rows than columns: (m, m), (m,), (m, n). This is MXNet's form, not NumPy's.""",
)
cholesky = _batched("cholesky", "_linalg_potrf", "The lower factor L of each matrix L L^T.")


def eigh(a: Any, UPLO: str = "L") -> tuple[Any, Any]:
    """Eigenvalues in ascending order and eigenvectors (columns) of symmetric matrices. ValueError
    for an UPLO other than 'L' and 'U'."""
    if UPLO not in ("L", "U"):
        raise ValueError(f"np.linalg.eigh: UPLO is 'L' or 'U', got {UPLO!r}")
    a = as_float(check_array("linalg.eigh", a))
    a = swapaxes(a, -1, -2) if UPLO == "U" else a  # the op reads the lower triangle
    vectors, values = registry["_linalg_syevd"](a)
    return values, swapaxes(vectors, -1, -2)


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric matrices in ascending order."""
    return eigh(a, UPLO)[0]


def solve(a: Any, b: Any) -> Any:
    """x with a x = b, for square matrices."""
    a, b = as_float(check_array("linalg.solve", a)), as_float(check_array("linalg.solve", b))
    vector = len(b.shape) == len(a.shape) - 1
    x = matmul(inv(a), expand_dims(b, -1) if vector else b)
    return x[..., 0] if vector else x


def pinv(a: Any, rcond: Any = 1e-15, hermitian: bool = False) -> Any:
    """The pseudo-inverse (Moore-Penrose); singular values up to rcond * the largest count as 0.
    `rcond` is a number, or an array with one for each matrix."""
    if a.shape[-2] > a.shape[-1]:
        return swapaxes(pinv(swapaxes(a, -1, -2), rcond, hermitian), -1, -2)
    U, values, V = svd(a)
    rcond = rcond if is_number(rcond) else check_array("linalg.pinv", rcond)[..., None]
    above = values > rcond * values[..., :1]
    inverse = where(above, 1 / where(above, values, 1), 0)
    return matmul(swapaxes(V, -1, -2) * inverse[..., None, :], swapaxes(U, -1, -2))


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse for `tensordot(a, x, ind)`."""
    shape = tuple(a.shape)
    size = int(onp.prod(shape[:ind]))
    return inv(a.reshape(size, -1)).reshape(shape[ind:] + shape[:ind])


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """x with tensordot(a, x, x.ndim) = b."""
    if axes is not None:
        raise NotImplementedError("np.linalg.tensorsolve: axes is not supported; transpose a first")
    rest = tuple(a.shape[len(b.shape) :])
    size = int(onp.prod(b.shape))
    return solve(a.reshape(size, size), ravel(b)).reshape(rest)


for _name in """cond eig eigvals lstsq matrix_power matrix_rank multi_dot qr""".split():
    globals()[_name] = by_numpy(getattr(onp.linalg, _name), module=__name__)
