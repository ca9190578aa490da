"""The fake CuPy is no more generous than the real one: names, parameters, dtypes, refusals."""

from __future__ import annotations

import inspect
import types

import numpy as np
import pytest
from fakes.cupy_module import cupy

NAMES = sorted(n for n in vars(cupy) if not n.startswith("_") and n not in ("lib", "linalg"))


@pytest.fixture(scope="module")
def real():
    return pytest.importorskip("cupy", reason="CuPy is not installed")


def test_every_name_is_one_of_cupy(real):
    missing = [n for n in NAMES if not hasattr(real, n)]
    missing += [f"linalg.{n}" for n in vars(cupy.linalg) if not hasattr(real.linalg, n)]
    assert hasattr(real.lib.stride_tricks, "as_strided")
    assert not missing


def _parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


FUNCTIONS = [n for n in NAMES if isinstance(getattr(cupy, n), types.FunctionType)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_cupy(real, name: str):
    ours, theirs = getattr(cupy, name), getattr(real, name)
    if not hasattr(ours, "__wrapped__"):  # those take what NumPy takes
        assert _parameters(ours) == _parameters(theirs)


UFUNCS = [n for n in NAMES if isinstance(getattr(cupy, n), cupy.ufunc) and n != "matmul"]


@pytest.mark.parametrize("name", UFUNCS)
def test_dtypes_of_universal_functions_are_those_of_cupy(real, name: str):
    ours, theirs = getattr(cupy, name), getattr(real, name)
    assert isinstance(theirs, real.ufunc)
    assert (ours.nin, ours.nout) == (theirs.nin, theirs.nout)
    loops = [loop.split("->") for loop in theirs.types if "E" not in loop]  # E: bfloat16
    for char in "bBhilefd":
        x = cupy.ones(2, char)
        fitting = [p for p in loops if all(np.can_cast(char, c) for c in p[0])]
        if not fitting:
            with pytest.raises(TypeError):
                ours(*[x] * ours.nin)
            continue
        output = fitting[0][1]
        result = ours(*[x] * ours.nin)
        assert result.dtype.kind == np.dtype(output).kind
        assert result.dtype.itemsize == np.dtype(output).itemsize


X = cupy.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: X + np.ones(3, "float32"),
        lambda: np.ones(3, "float32") + X,
        lambda: np.asarray(X),
        lambda: X[np.array([0])],
        lambda: X.__setitem__(0, np.ones(3)),
        lambda: cupy.add(X, 1, out=np.empty((2, 3))),
        lambda: cupy.add(X, X, where=X > 1),
        lambda: cupy.take(X, np.array([0])),
        lambda: cupy.take(X, cupy.asarray([0]), mode="clip"),
        lambda: cupy.concatenate([X, np.ones((2, 3))]),
        lambda: cupy.copyto(X, np.ones((2, 3))),
        lambda: cupy.copyto(np.ones((2, 3)), X),
        lambda: cupy.sum(np.ones(3)),
        lambda: np.concatenate([X, np.ones((2, 3))]),
        lambda: cupy.linalg.inv(cupy.eye(2, dtype="float16")),
        lambda: cupy.add(X, X, out=cupy.empty((2, 3), "int32")),
    ],
)
def test_what_cupy_refuses_is_refused(mistake):
    with pytest.raises(TypeError):
        mistake()
