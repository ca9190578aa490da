"""Random shapes and arrays for tests, drawn from NumPy's global generator (`numpy.random.seed`).

>>> from d2lmini.test_utils import rand_ndarray, rand_shape_nd
>>> shape = rand_shape_nd(3, dim=4)
>>> len(shape), max(shape) <= 4, rand_ndarray(shape).shape == shape
(3, True, True)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.compat.test_utils.environment import default_dtype
from d2lmini.context import Context
from d2lmini.ndarray import NDArray, array
from d2lmini.ops.checks import check_storage


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """`num_dim` sizes between 1 (or 0) and `dim`, both included."""
    lowest = 0 if allow_zero_size else 1
    return tuple(int(n) for n in np.random.randint(lowest, dim + 1, size=num_dim))


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, int]:
    """Two sizes, at most dim0 and dim1."""
    (a,), (b,) = (rand_shape_nd(1, dim, allow_zero_size) for dim in (dim0, dim1))
    return a, b


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> tuple[int, int, int]:
    """Three sizes, at most dim0, dim1 and dim2."""
    (a,), (b,), (c,) = (rand_shape_nd(1, dim, allow_zero_size) for dim in (dim0, dim1, dim2))
    return a, b, c


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """A place (x, y) with x_low <= x < x_high and y_low <= y < y_high."""
    return int(np.random.randint(x_low, x_high)), int(np.random.randint(y_low, y_high))


def rand_ndarray(
    shape: tuple[int, ...],
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Context | None = None,
) -> NDArray:
    """An NDArray of standard normal numbers. MXNetError for sparse storage types; the arguments for
    them (density, modifier_func, ...) are ignored."""
    check_storage(stype)
    return array(random_arrays(shape), ctx=ctx, dtype=dtype or default_dtype())


def random_arrays(*shapes: tuple[int, ...]) -> Any:
    """A float32 NumPy array of standard normal numbers for each shape; for one shape the array
    itself. The shape () gives a 0-d array."""
    arrays: list[np.ndarray] = [
        np.array(np.random.randn(*shape), dtype=default_dtype()) for shape in shapes
    ]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: tuple[int, ...], **kwargs: Any) -> list[np.ndarray]:
    """A list of NumPy arrays, uniform between `low` (0) and `high` (1), of `dtype` (float32)."""
    low, high = kwargs.pop("low", 0.0), kwargs.pop("high", 1.0)
    dtype = kwargs.pop("dtype", default_dtype())
    if kwargs:
        raise TypeError(f"random_uniform_arrays: takes low, high, dtype, got {sorted(kwargs)}")
    return [np.random.uniform(low, high, size=shape).astype(dtype) for shape in shapes]


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """k distinct members, in random order."""
    return random.sample(list(population), k)


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """0, 1, ..., size - 1."""
    return array(np.arange(size), dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """A matrix whose row i is filled with i."""
    return array(np.arange(rows).reshape(-1, 1).repeat(columns, axis=1), dtype=dtype)


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """A copy with the function applied to each element."""
    if function is None:
        return np.array(the_input)
    return np.vectorize(function, otypes=[np.asarray(the_input).dtype])(the_input)


def assign_each2(
    input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None
) -> np.ndarray:
    """`function` of both, element by element; without a function, a copy of the first."""
    if function is None:
        return np.array(input1)
    return np.vectorize(function, otypes=[np.asarray(input1).dtype])(input1, input2)


def np_reduce(
    dat: np.ndarray, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]
) -> Any:
    """Reduce over one axis, several, or all (None) by a NumPy function of a single axis."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    axes = sorted({a % dat.ndim for a in axes}, reverse=True)
    result = dat
    for one_axis in axes:
        result = numpy_reduce_func(result, axis=one_axis)
    if keepdims:
        result = np.reshape(result, [1 if i in axes else n for i, n in enumerate(dat.shape)])
    return result


def collapse_sum_like(a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum over the axes that broadcasting from `shape` to the shape of `a` has repeated."""
    extra = a.ndim - len(shape)
    repeated = [extra + i for i, n in enumerate(shape) if n == 1 and a.shape[extra + i] != 1]
    return a.sum(axis=(*range(extra), *repeated)).reshape(shape)


def get_identity_mat(size: int) -> NDArray:
    """The identity matrix, (size, size) float32."""
    return array(np.identity(size))


def get_identity_mat_batch(size: int) -> NDArray:
    """Two identity matrices, (2, size, size) float32."""
    return array(np.stack([np.identity(size)] * 2))


def new_orthonormal_matrix_2d(n: int) -> np.ndarray:
    """An orthonormal (n, n) matrix, float64."""
    q, _ = np.linalg.qr(np.random.normal(size=(n, n)))
    return q


def new_sym_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A symmetric (n, n) matrix, float64; the eigenvalues are between -1 and 1."""
    q = new_orthonormal_matrix_2d(n)
    values = np.random.uniform(-1.0, 1.0, n)
    return (q * values) @ q.T


def new_sym_matrix_with_real_eigvals_nd(shape: tuple[int, ...]) -> np.ndarray:
    """Such symmetric matrices, in the last two axes of `shape`."""
    return _stack_matrices(new_sym_matrix_with_real_eigvals_2d, shape)


def new_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A well-conditioned (n, n) matrix, float64, whose eigenvalues are real, between -1 and 1."""
    # An upper triangle has its diagonal as eigenvalues; a rotation keeps them.
    triangle = np.triu(np.random.uniform(-0.1, 0.1, (n, n)), 1)
    np.fill_diagonal(triangle, np.linspace(-1.0, 1.0, n) if n > 1 else 1.0)
    q = new_orthonormal_matrix_2d(n)
    return q @ triangle @ q.T


def new_matrix_with_real_eigvals_nd(shape: tuple[int, ...]) -> np.ndarray:
    """Such matrices, in the last two axes of `shape`."""
    return _stack_matrices(new_matrix_with_real_eigvals_2d, shape)


def _stack_matrices(make: Callable[[int], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    assert len(shape) > 1 and shape[-1] == shape[-2], f"square matrices, got shape {shape}"
    count = int(np.prod(shape[:-2]))
    return np.array([make(shape[-1]) for _ in range(count)]).reshape(shape)
