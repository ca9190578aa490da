"""The module `cupy` that stands for the real one, whole: here join what looks at the same memory in
another way.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from fakes.cuda_cpp import CIntptr, RawKernel
from fakes.cupy_arrays import ndarray
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
def may_share_memory(a, b, max_work=None):
    return np.may_share_memory(_array(a, "may_share_memory").raw, _array(b, "it").raw)


def as_strided(x, shape=None, strides=None):
    return _array(x, "as_strided")._view(np.lib.stride_tricks.as_strided(x.raw, shape, strides))


cupy.lib = types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=as_strided))


cupy.RawKernel = RawKernel
# The rest of `cuda` comes with a machine (`fakes.cuda`).
cupy.cuda = types.SimpleNamespace(function=types.SimpleNamespace(CIntptr=CIntptr))
