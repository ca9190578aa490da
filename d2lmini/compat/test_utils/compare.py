"""Compare two arrays to a tolerance that fits their dtypes, and show where they differ most.

>>> from d2lmini.test_utils import assert_almost_equal
>>> assert_almost_equal([[1.0, 2.0]], [[1.0, 2.5]], rtol=0.1, atol=0, names=("mine", "yours"))
Traceback (most recent call last):
AssertionError: mine and yours differ by more than rtol=0.1, atol=0: 1 of 2 elements (50 %)
  most at (0, 1): mine=2.0, yours=2.5, 2 times the tolerance
mine = array([[1., 2.]])
yours = array([[1. , 2.5]])

Elements a and b are alike when |a - b| <= atol + rtol * |b|. The default tolerance is that of the
coarser dtype: float16 1e-2 (and 1e-1 absolute), float32 1e-4 (1e-3), float64 1e-5 (1e-20), integers
and bool 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.ndarray import NDArray

_FLOATS = {"float16": (1e-2, 1e-1, 1 / 2**6), "float32": (1e-4, 1e-3, 1 / 2**9)}
_FLOATS["float64"] = (1e-5, 1e-20, 1 / 2**14)
_EXACT = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def _by_dtype(column: int) -> dict[np.dtype, float]:
    table: dict[np.dtype, float] = {np.dtype(name): row[column] for name, row in _FLOATS.items()}
    if column < 2:
        table.update({np.dtype(name): 0 for name in _EXACT})
    return table


def default_rtols() -> dict[np.dtype, float]:
    """Relative tolerance by dtype."""
    return _by_dtype(0)


def default_atols() -> dict[np.dtype, float]:
    """Absolute tolerance by dtype."""
    return _by_dtype(1)


def default_numeric_eps() -> dict[np.dtype, float]:
    """Step of numeric gradients by dtype: a power of two, exact in that dtype."""
    return _by_dtype(2)


def effective_dtype(dat: Any) -> np.dtype:
    """The dtype whose precision `dat` was computed with: on the CPU its own dtype."""
    return np.dtype(getattr(dat, "dtype", None) or np.asarray(dat).dtype)


def get_tolerance(dat: Any, tol: Any, default_tol: dict[np.dtype, float]) -> float:
    """`tol`; if it is None (or a dict by dtype), the tolerance for the dtype of `dat`."""
    if isinstance(tol, dict):
        table = {np.dtype(dtype): value for dtype, value in tol.items()}
        return table.get(effective_dtype(dat), 0)
    return default_tol.get(effective_dtype(dat), 0) if tol is None else tol


def get_tols(x: Any, y: Any, rtol: Any, atol: Any) -> tuple[float, float]:
    """(rtol, atol) for comparing x with y: the larger one of the two dtypes'."""
    rtols = [get_tolerance(v, rtol, default_rtols()) for v in (x, y)]
    atols = [get_tolerance(v, atol, default_atols()) for v in (x, y)]
    return max(rtols), max(atols)


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    """`rtol`, or the default of `dtype`."""
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    """`atol`, or the default of `dtype`."""
    return default_atols()[np.dtype(dtype)] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """The fraction of elements that may differ: 0 by default."""
    return 0 if etol is None else etol


def as_numpy(x: Any) -> np.ndarray:
    """An NDArray, list or number as an array of NumPy."""
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


def same(a: Any, b: Any) -> bool:
    """Equal in shape and in every element."""
    return np.array_equal(as_numpy(a), as_numpy(b))


def same_array(array1: Any, array2: Any) -> bool:
    """True if two NDArrays share their elements. Changes the first one for a moment to test."""
    before = array1.copy()
    array1[:] = before + 1
    shared = same(array1, array2)
    array1[:] = before
    return shared and same(before, array2)


def _unlike(a: np.ndarray, b: np.ndarray, rtol: float, atol: float, nan: bool) -> np.ndarray:
    """Where two arrays are not alike. Integers are compared exactly when the tolerance is 0."""
    if rtol == atol == 0 and not nan:
        return a != b
    return ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=nan)


def almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """True if all elements are alike. Without broadcasting: different shapes are not alike."""
    a, b = as_numpy(a), as_numpy(b)
    rtol, atol = get_tols(a, b, rtol, atol)
    return _fits(a, b, use_broadcast) and not _unlike(a, b, rtol, atol, equal_nan).any()


def _fits(a: np.ndarray, b: np.ndarray, use_broadcast: bool) -> bool:
    if a.shape == b.shape:
        return True
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return use_broadcast


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """AssertionError, with the largest error and its place, unless all elements are alike.

    a, b: NDArrays, NumPy arrays, lists or numbers. rtol, atol: None for the dtypes' defaults; or a
    dict by dtype. equal_nan: nan is like nan. `mismatches` is accepted; one place is shown.
    """
    _assert_alike(a, b, rtol, atol, 0, names, equal_nan, use_broadcast)


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    etol: float | None = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Like `assert_almost_equal`, but a fraction `etol` of the elements may differ."""
    _assert_alike(a, b, rtol, atol, get_etol(etol), names, equal_nan, True)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: tuple[str, str] = ("a", "b")
) -> None:
    """Like `assert_almost_equal`, where neither element is nan."""
    a, b = np.broadcast_arrays(as_numpy(a), as_numpy(b))
    both = ~(np.isnan(a) | np.isnan(b))
    assert_almost_equal(np.where(both, a, 0), np.where(both, b, 0), rtol, atol, names)


def assert_allclose(
    a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True
) -> None:
    """Like `assert_almost_equal`, with NumPy's default tolerances."""
    assert_almost_equal(a, b, rtol, atol, equal_nan=equal_nan)


def _assert_alike(
    a: Any, b: Any, rtol: Any, atol: Any, etol: float, names: Any, nan: bool, use_broadcast: bool
) -> None:
    a, b = as_numpy(a), as_numpy(b)
    one, two = names
    if not _fits(a, b, use_broadcast):
        raise AssertionError(f"{one} has shape {a.shape}, {two} has shape {b.shape}")
    rtol, atol = get_tols(a, b, rtol, atol)
    bad = _unlike(a, b, rtol, atol, nan)
    count = int(np.count_nonzero(bad))
    if count <= etol * bad.size:
        return
    places, x, y = np.broadcast_arrays(bad, a, b)
    with np.errstate(all="ignore"):
        wide_x, wide_y = x.astype(float), y.astype(float)
        error = np.abs(wide_x - wide_y) / (atol + rtol * np.abs(wide_y))
        error = np.where(np.isnan(error), np.inf, error)
    index = np.unravel_index(np.argmax(np.where(places, error, -1)), error.shape)
    place = tuple(int(i) for i in index)
    times = "" if np.isinf(error[index]) else f", {error[index]:.4g} times the tolerance"
    raise AssertionError(
        f"{one} and {two} differ by more than rtol={rtol:g}, atol={atol:g}: {count} of {bad.size} "
        f"elements ({100 * count / bad.size:.3g} %)\n"
        f"  most at {place}: {one}={x[index]}, {two}={y[index]}{times}\n"
        f"{one} = {a!r}\n{two} = {b!r}"
    )


def checkShapes(a: Any, b: Any) -> None:
    """AssertionError unless two arrays have the same shape."""
    if a.shape != b.shape:
        raise AssertionError(f"a.shape = {a.shape} and b.shape = {b.shape} are not equal")


def locationError(
    a: Any, b: Any, index: Any, names: tuple[str, str], maxError: bool = False
) -> str:
    """A line about the elements of two arrays at a place."""
    one, two = (f"{name}={x[index]:.8f}" for name, x in zip(names, (a, b)))
    return f"Location of {'maximum ' if maxError else ''}error: {index}, {one}, {two}"
