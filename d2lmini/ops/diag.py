"""diag: a matrix from its diagonal, or the diagonals of a batch of matrices.

>>> from d2lmini import nd
>>> nd.diag(nd.array([1, 2]), k=1)
<BLANKLINE>
[[0. 1. 0.]
 [0. 0. 2.]
 [0. 0. 0.]]
<NDArray 3x3 @cpu(0)>
>>> nd.diag(nd.array([[1, 2], [3, 4]]))
<BLANKLINE>
[1. 4.]
<NDArray 2 @cpu(0)>
"""

from __future__ import annotations

from d2lmini.base import MXNetError
from d2lmini.ops.core import Shape, normalize_axis, op, shape_rule
from d2lmini.ops.places import adjoint


def _diagonal_shape(shape: Shape, k: int, axis1: int, axis2: int) -> Shape:
    rows, columns = (normalize_axis(a, len(shape)) for a in (axis1, axis2))
    if rows == columns:
        raise MXNetError(f"axis1={axis1} and axis2={axis2} are the same axis of {shape}")
    length = min(shape[rows] + min(k, 0), shape[columns] - max(k, 0))
    if length < 0:
        raise MXNetError(
            f"k={k} is not a diagonal of {shape[rows]} x {shape[columns]} matrices; need "
            f"{-shape[rows]} <= k <= {shape[columns]}"
        )
    return (*(n for a, n in enumerate(shape) if a not in (rows, columns)), length)


def _diag_shape(shape: Shape, k: int = 0, axis1: int = 0, axis2: int = 1) -> Shape:
    if not shape:
        raise MXNetError("data is (), need one axis or more")
    return (shape[0] + abs(k),) * 2 if len(shape) == 1 else _diagonal_shape(shape, k, axis1, axis2)


@op(infer=shape_rule(_diag_shape), flops=0)
def diag(xp, data, *, k: int = 0, axis1: int = 0, axis2: int = 1):
    """Diagonal number k: of zeros filled with a vector, or taken from matrices.

    (n,) -> (n + |k|, n + |k|). With two axes or more: axis1 and axis2 hold the matrices; one last
    axis with the diagonals replaces both, as in numpy.diagonal. dtype kept.
    MXNetError at the call for a diagonal that does not exist.
    """
    return xp.diag(data, k) if data.ndim == 1 else xp.diagonal(data, k, axis1, axis2)


@adjoint(diag, "_undiag", flops=0)
def undiag(xp, data, *, shape: Shape, k: int, axis1: int, axis2: int):
    """Zeros of `shape` with `data` at the diagonal that `diag` reads; for a vector, which `diag`
    writes into a matrix, the diagonal of this matrix."""
    if len(shape) == 1:
        return xp.diagonal(data, k)
    result = xp.zeros(shape, data.dtype)
    matrices = xp.moveaxis(result, (axis1, axis2), (-2, -1))
    row, column = max(0, -k), max(0, k)
    place = xp.arange(data.shape[-1])
    matrices[..., place + row, place + column] = data
    return result
