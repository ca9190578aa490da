"""The device of an array that another library offers by DLPack.

>>> import numpy as np
>>> place_of(np.ones(3))
(1, 0)
>>> place_of(np.ones(3).__dlpack__())        # a bare capsule: read from its fields
(1, 0)

The numbers are DLPack's: 1 is the CPU, 2 a GPU of CUDA, followed by the device's number. An array
that follows the protocol, `__dlpack__` and `__dlpack_device__`, is asked; a bare capsule has them
in its first fields, after the address.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CPU, CUDA = 1, 2

_python = ctypes.pythonapi
_python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p


class _Tensor(ctypes.Structure):
    """The beginning of a DLTensor, with which a DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    """The beginning of a DLManagedTensorVersioned, since DLPack 1.0."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


def place_of(source: Any) -> tuple[int, int]:
    """(kind of device, its number) of an object that has `__dlpack__`, or of a capsule. TypeError
    for anything else, and for a capsule that was consumed before."""
    if hasattr(source, "__dlpack__"):
        kind, number = source.__dlpack_device__()
        return int(kind), int(number)
    for name, struct in ((b"dltensor", _Tensor), (b"dltensor_versioned", _Versioned)):
        if _python.PyCapsule_IsValid(source, name):
            found: Any = struct.from_address(_python.PyCapsule_GetPointer(source, name))
            tensor = getattr(found, "tensor", found)
            return tensor.kind, tensor.number
    raise TypeError(
        "from_dlpack: expected an array with __dlpack__, or a capsule not consumed yet, "
        f"got {type(source).__name__}"
    )


def is_unversioned(source: Any) -> bool:
    """True for a bare capsule from before DLPack 1.0. Such a capsule cannot say that its memory is
    read-only, and NumPy takes all of them for read-only; MXNet writes to them."""
    return not hasattr(source, "__dlpack__") and bool(
        _python.PyCapsule_IsValid(source, b"dltensor")
    )


class _Writable:
    """The memory of an array, which stays alive, as NumPy's interface describes it."""

    def __init__(self, array: np.ndarray):
        self.array = array
        place, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (place, False)}


def make_writable(array: np.ndarray) -> np.ndarray:
    """The same memory as an array that may be written, for memory that NumPy only takes for
    read-only."""
    return np.asarray(_Writable(array))
