"""The fake CuPy is no more generous than the real one: names, parameters, dtypes, refusals."""

from __future__ import annotations

import inspect
import re
import types

import numpy as np
import pytest
from fakes import cupy_arrays
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


@pytest.mark.parametrize("name", sorted(vars(cupy.linalg)))
def test_parameters_of_linear_algebra_are_those_of_cupy(real, name: str):
    assert _parameters(getattr(cupy.linalg, name)) == _parameters(getattr(real.linalg, name))


def test_methods_and_attributes_are_those_of_cupy(real):
    own = {"raw"}
    ours = {n for n in vars(cupy.ndarray) if not n.startswith("_")} - own
    assert not sorted(n for n in ours if not hasattr(real.ndarray, n))
    for name in ours:
        theirs = getattr(real.ndarray, name)
        signature = re.match(r"\S+\.\w+\(self(?:, )?(.*?)\)( ->|$)", theirs.__doc__ or "", re.M)
        if signature is None or not callable(getattr(cupy.ndarray, name)):
            continue
        names = re.findall(r"(\w+)(?:=[^,]*)?(?:,|$)", signature[1])
        asked = [p for p in _parameters(getattr(cupy.ndarray, name))[1:]]
        assert asked in (["args", "kwargs"], ["index"], names), (name, asked, names)


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


@pytest.mark.parametrize("read", [bool, int, float, lambda x: x.item(), lambda x: x.get()])
def test_reading_a_value_waits(read):
    n = len(cupy_arrays.host_syncs)
    read(X[0, 0])
    assert len(cupy_arrays.host_syncs) == n + 1
    with cupy_arrays.no_host_sync(), pytest.raises(AssertionError, match="waits"):
        read(X[0, 0])


@pytest.mark.parametrize(
    "read", [lambda: X[X > 1], lambda: cupy.nonzero(X), lambda: cupy.bincount(cupy.arange(3))]
)
def test_shapes_that_depend_on_values_wait(read):
    with cupy_arrays.no_host_sync(), pytest.raises(AssertionError, match="waits"):
        read()


def test_a_reduction_is_an_array():
    total = X.sum()
    assert isinstance(total, cupy.ndarray) and total.shape == () and total.item() == 15


def test_views_share_memory_and_copies_do_not():
    x = cupy.zeros((3, 4))
    for view in (
        x[1],
        x.T,
        x.reshape(12),
        x[:, ::2],
        x.diagonal(),
        cupy.broadcast_to(x, (2, 3, 4)),
    ):
        assert view.base is x
        assert view.data.ptr >= x.data.ptr
        view[...] = float(view.size)
        assert (x == view.size).any().item()
    assert x.copy().base is None


def test_indices_wrap_around():
    x = cupy.arange(5)
    assert x[cupy.asarray([5, -1, 7])].tolist() == [0, 4, 2]
    assert cupy.take(x, cupy.asarray([6])).tolist() == [1]


def test_numpys_functions_on_its_arrays_are_its_own():
    assert isinstance(np.exp(X), cupy.ndarray)
    assert isinstance(np.sum(X), cupy.ndarray)


def test_the_hook_sees_everything(monkeypatch):
    seen = []

    class Listening(cupy_arrays.Immediate):
        def execute(self, name, function, inputs, out=None):
            results = super().execute(name, function, inputs, out)
            specs = cupy_arrays.specs_of(function, inputs)
            assert specs == [(r.shape, r.dtype) for r in results]
            seen.append((name, len(inputs), out is None))
            return results

    monkeypatch.setattr(cupy_arrays, "hook", Listening())
    x = cupy.ones(3, "float32")
    x += 2
    y = cupy.add(x, x)
    y[cupy.asarray([0])] = 7
    assert y.get().tolist() == [7, 6, 6]
    assert seen == [
        ("setitem", 0, False), ("add", 1, False), ("add", 2, True), ("array", 0, True),
        ("setitem", 2, False),
    ]  # fmt: skip
