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
from d2lmini.np.shapes import expand_dims, ravel, swapaxes
from d2lmini.np.values import as_float, check_array, drop_axes
from d2lmini.ops.core import registry


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm over `axis` (all without): 2 by default; ord may be 1, 2, inf, -inf, 0, a number,
    and 'fro', 1, -1, inf, -inf, 'nuc', 2 for matrices. ValueError for others."""
    x = as_float(check_array("linalg.norm", x))
    absolute = ELEMENTWISE["abs"](x)
    if axis is None and ord is None:
        axis = tuple(range(len(x.shape)))
    elif axis is None:
        axis = tuple(range(len(x.shape)))
        if len(axis) > 2:
            raise ValueError("Improper number of dimensions to norm.")
    axes = reductions.normalized(axis, len(x.shape))
    if ord in (None, "fro") or (ord == 2 and len(axes) == 1):
        if not axes:
            return absolute
        total = reductions.sum(x * x, axes, keepdims=keepdims)
        return ELEMENTWISE["sqrt"](total)
    if len(axes) == 1:
        return _vector_norm(absolute, ord, axes, keepdims)
    rows, columns = axes
    if ord in (1, -1, onp.inf, -onp.inf):
        first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
        lines = reductions.sum(absolute, first, keepdims=True)
        extreme = reductions.max if ord > 0 else reductions.min
        found = extreme(lines, second, keepdims=True)
        return found if keepdims else _without(found, axes)
    if ord in (2, -2, "nuc"):
        return by_numpy(onp.linalg.norm)(x, ord, axes, keepdims)
    raise ValueError(f"Invalid norm order {ord!r} for matrices")


def _without(x: Any, axes: tuple[int, ...]) -> Any:
    from d2lmini.np.shapes import squeeze

    return squeeze(x, axes)


def _vector_norm(absolute: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord == onp.inf:
        return reductions.max(absolute, axes, keepdims=keepdims)
    if ord == -onp.inf:
        return reductions.min(absolute, axes, keepdims=keepdims)
    if ord == 0:
        nonzero = (absolute != 0).astype(absolute.dtype)
        return reductions.sum(nonzero, axes, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order {ord!r} for vectors")
    return reductions.sum(absolute**ord, axes, keepdims=keepdims) ** (1.0 / ord)


def _batched(name: str, op: str, doc: str) -> Any:
    def function(a: Any) -> Any:
        result = registry[op](as_float(check_array(f"linalg.{name}", a)))
        parts = result if isinstance(result, list) else [result]
        scalars = name in ("det", "slogdet") and len(a.shape) == 2
        parts = [drop_axes(x) for x in parts] if scalars else parts
        return tuple(parts) if isinstance(result, list) else parts[0]

    function.__name__ = name
    function.__doc__ = doc
    return function


inv = _batched("inv", "_linalg_inverse", "The inverse of each matrix.")
det = _batched("det", "_linalg_det", "The determinant of each matrix.")
slogdet = _batched("slogdet", "_linalg_slogdet", "Sign and log of |det| of each matrix.")
cholesky = _batched("cholesky", "_linalg_potrf", "The lower factor L of each matrix L L^T.")


def eigh(a: Any, UPLO: str = "L") -> tuple[Any, Any]:
    """Eigenvalues in ascending order and eigenvectors (columns) of symmetric matrices."""
    if UPLO not in ("L", "U"):
        raise ValueError(f"np.linalg.eigh: UPLO is 'L' or 'U', got {UPLO!r}")
    a = as_float(check_array("linalg.eigh", a))
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


def pinv(a: Any, rcond: float = 1e-15, hermitian: bool = False) -> Any:
    """The pseudo-inverse (Moore-Penrose)."""
    return by_numpy(onp.linalg.pinv)(as_float(a), rcond, hermitian)


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


for _name in """cond eig eigvals lstsq matrix_power matrix_rank multi_dot qr svd""".split():
    globals()[_name] = by_numpy(getattr(onp.linalg, _name))
