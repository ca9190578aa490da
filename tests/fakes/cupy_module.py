"""The module `cupy` that stands for the real one, whole: here join what looks at the same memory in
another way, and `cupy.linalg`.

>>> from fakes.cupy_module import cupy
>>> cupy.linalg.inv(2 * cupy.eye(2)).tolist()
[[0.5, 0.0], [0.0, 0.5]]
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from fakes.cuda_cpp import RawKernel
from fakes.cupy_arrays import launch, ndarray
from fakes.cupy_functions import _array, _public, cupy


def _looks(name: str, signature: str) -> None:
    """A view as NumPy makes it."""
    names = [p.split("=")[0].strip() for p in signature.split(",")]

    def look(array: Any, *options: Any) -> ndarray:
        return _array(array, name)._view(getattr(np, name)(array.raw, *options))

    space: dict[str, Any] = {"_look": look}
    exec(f"def {name}({signature}):\n    return _look({', '.join(names)})\n", space)
    _public(space[name])


for _name, _signature in {
    "expand_dims": "a, axis",
    "flip": "a, axis=None",
    "moveaxis": "a, source, destination",
    "rollaxis": "a, axis, start=0",
    "squeeze": "a, axis=None",
    "swapaxes": "a, axis1, axis2",
    "transpose": "a, axes=None",
}.items():
    _looks(_name, _signature)


@_public
def broadcast_to(array, shape):
    array = _array(array, "broadcast_to")
    raw = np.broadcast_to(array.raw, shape)
    return array._view(np.lib.stride_tricks.as_strided(array.raw, raw.shape, raw.strides))


@_public
def diagonal(a, offset=0, axis1=0, axis2=1):
    return _array(a, "diagonal").diagonal(offset, axis1, axis2)


@_public
def reshape(a, newshape, order="C", *, copy=None):
    return _array(a, "reshape").reshape(newshape, order=order)


@_public
def ravel(a, order="C"):
    return _array(a, "ravel").ravel(order)


@_public
def split(ary, indices_or_sections, axis=0):
    return [ary._view(raw) for raw in np.split(_array(ary, "split").raw, indices_or_sections, axis)]


@_public
def may_share_memory(a, b, max_work=None):
    return np.may_share_memory(_array(a, "may_share_memory").raw, _array(b, "it").raw)


@_public
def shares_memory(a, b, max_work=None):
    return np.shares_memory(_array(a, "shares_memory").raw, _array(b, "it").raw)


def as_strided(x, shape=None, strides=None):
    return _array(x, "as_strided")._view(np.lib.stride_tricks.as_strided(x.raw, shape, strides))


cupy.lib = types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=as_strided))

# -- linear algebra --------------------------------------------------------------------------------


def _of_nothing(function: Any) -> Any:
    """What cuSOLVER does with a matrix that has no answer: it says nothing and gives nonsense."""

    def solve(*raws: np.ndarray, **options: Any) -> Any:
        try:
            return function(*raws, **options)
        except np.linalg.LinAlgError:
            shapes = function(
                *(
                    np.broadcast_to(np.eye(r.shape[-1], dtype=r.dtype), r.shape)
                    if r.ndim > 1 and r.shape[-1] == r.shape[-2]
                    else np.zeros(r.shape, r.dtype)
                    for r in raws
                ),
                **options,
            )
            shapes = shapes if isinstance(shapes, tuple) else (shapes,)
            return tuple(np.full(s.shape, np.nan, s.dtype) for s in shapes)

    return solve


def _slogdet(a: np.ndarray) -> Any:
    """CuPy's sign is that of the permutation and the other pivots where one is 0."""
    sign, logarithm = np.linalg.slogdet(a)
    return np.where(sign == 0, np.ones_like(sign), sign), logarithm


def _linear(name: str, signature: str) -> Any:
    names = [p.split("=")[0].strip() for p in signature.split(",")]

    def compute(*args: Any) -> Any:
        arrays = [a for a in args if isinstance(a, ndarray)]
        if any(a.dtype == np.float16 for a in arrays):
            raise TypeError("float16 is unsupported in linalg")
        options = {n: a for n, a in zip(names, args, strict=True) if not isinstance(a, ndarray)}
        function = _slogdet if name == "slogdet" else getattr(np.linalg, name)
        return launch(f"linalg.{name}", _of_nothing(function), *arrays, **options)

    space: dict[str, Any] = {"_compute": compute}
    exec(f"def {name}({signature}):\n    return _compute({', '.join(names)})\n", space)
    return space[name]


cupy.linalg = types.SimpleNamespace(
    **{
        name: _linear(name, signature)
        for name, signature in {
            "cholesky": "a",
            "det": "a",
            "eigh": "a, UPLO='L'",
            "inv": "a",
            "qr": "a, mode='reduced'",
            "slogdet": "a",
            "solve": "a, b",
            "svd": "a, full_matrices=True, compute_uv=True",
        }.items()
    }
)

cupy.RawKernel = RawKernel
