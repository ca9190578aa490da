"""The module `cupy` begins: its dtypes, which are NumPy's, and its universal functions.

Tests import it from `cupy_module`, where it is whole.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fakes.cupy_arrays import launch, ndarray

cupy = types.ModuleType("cupy", __doc__)
cupy.__version__ = "14.2.0"
cupy.ndarray = ndarray


def _public(function: Callable) -> Callable:
    setattr(cupy, function.__name__, function)
    return function


def _array(value: Any, name: str) -> ndarray:
    if not isinstance(value, ndarray):
        raise TypeError(f"{name}: expected a cupy.ndarray, got {type(value)}")
    return value


# -- constants and dtypes, which CuPy takes from NumPy -------------------------------------------

for _name in (
    "inf nan pi e newaxis float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 "
    "uint64 bool_ dtype finfo iinfo promote_types broadcast_shapes can_cast issubdtype floating "
    "integer"
).split():
    setattr(cupy, _name, getattr(np, _name))


@_public
def result_type(*arrays_and_dtypes):
    return np.result_type(*(a.raw if isinstance(a, ndarray) else a for a in arrays_and_dtypes))


# -- universal functions -------------------------------------------------------------------------


def _fmod(lhs: Any, rhs: Any, **options: Any) -> Any:
    """Of integers, by way of float64."""
    y = np.fmod(lhs, rhs, **options)
    if y.dtype.kind == "f":
        return y
    by_zero = np.broadcast_to(np.equal(rhs, 0), y.shape)
    wide = np.fmod(np.asarray(lhs, float), np.where(np.equal(rhs, 0), 1, np.asarray(rhs, float)))
    return np.where(by_zero, 0, wide).astype(y.dtype)


def _mod(lhs: Any, rhs: Any, **options: Any) -> Any:
    """Of floats, by way of the quotient: nan beside infinities."""
    y = np.mod(lhs, rhs, **options)
    if y.dtype.kind != "f":
        return y
    return (lhs - np.floor_divide(lhs, rhs) * rhs).astype(y.dtype)


class ufunc:  # its name in CuPy
    """`cupy.ufunc`: no `where`, and `reduce` for two of them only."""

    def __init__(self, name: str):
        self.__name__ = name
        self._numpy = {"fmod": _fmod, "mod": _mod, "remainder": _mod}.get(name, getattr(np, name))
        numpy = np.trunc if name == "fix" else getattr(np, name)
        self.nin, self.nout = numpy.nin, numpy.nout

    def __call__(self, *args, out=None, dtype=None, casting="same_kind"):
        n = self.nin
        if len(args) > n and out is None:
            args, out = args[:n], args[n]
        if len(args) != n:
            raise TypeError(f"Wrong number of arguments for cupy.{self.__name__}: {len(args)}")
        if not any(isinstance(a, ndarray) for a in args) and not all(map(np.isscalar, args)):
            raise TypeError(f"cupy.{self.__name__}: unsupported types {[type(a) for a in args]}")
        if isinstance(out, tuple):
            (out,) = out
        options = {} if dtype is None else {"dtype": dtype, "casting": casting}
        if out is None:
            return launch(self.__name__, self._numpy, *args, **options)

        if not isinstance(out, ndarray):
            raise TypeError("return arrays must be of ArrayType")
        shape = out.shape

        def spread(*raws):  # the result may be repeated along new axes of `out`
            return np.broadcast_to(self._numpy(*raws, **options), shape)

        launch(self.__name__, spread, *args, out=out, casting=casting)
        return out

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        total = {"add": "sum", "multiply": "prod"}.get(self.__name__)
        if total is None:
            raise NotImplementedError(f"`{self.__name__}.reduce` is not supported yet")
        return getattr(cupy, total)(array, axis, dtype, out, keepdims)


cupy.ufunc = ufunc
for _name in """
    absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or
    bitwise_xor cbrt ceil copysign cos cosh deg2rad degrees divide equal exp exp2 expm1 fix floor
    floor_divide fmax fmin fmod greater greater_equal hypot invert isfinite isinf isnan ldexp
    left_shift less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor maximum minimum mod multiply negative nextafter not_equal positive power rad2deg
    radians reciprocal remainder right_shift rint sign signbit sin sinh sqrt square subtract tan
    tanh true_divide trunc
""".split():
    setattr(cupy, _name, ufunc(_name))
cupy.abs = cupy.absolute


class _Matmul(ufunc):
    """A generalized ufunc."""

    def __call__(self, *args, out=None, dtype=None, casting="same_kind"):
        a, b = (_array(x, "matmul") for x in args)
        return launch("matmul", _product, a, b, out=out)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As cuBLAS: float16 is added up in float32."""
    if a.dtype == b.dtype == np.float16:
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return np.matmul(a, b)


cupy.matmul = _Matmul("matmul")
