"""`Spec`: shape and dtype of a value that need not exist yet; `Cost`: predicted cost of a call.

>>> Spec((2, 3), "float32").nbytes
24
>>> Spec((2, 3), "float32") is Spec((2, 3), "float32")
True
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.storage import SMALL
from d2lmini.ops.scalar_cache import Numbers, scalars
from d2lmini.ops.signature import Shape

#: A unique number for each Spec and each cached set of attributes: the key under which a call finds
#: the plan of an equal earlier call.
new_number = count().__next__


class Spec:
    """Shape and dtype of a value that need not exist yet; unpacks as `shape, dtype = spec`.

    size: number of elements; nbytes: size in bytes; beside: for tiny floating arrays, the table of
    scalars in their dtype (scalar_cache.py), else None. A Spec never changes and is interned: equal
    shape and dtype give the same object, as long as the table of Specs is not full. MXNetError
    for a shape that no memory can hold.
    """

    __slots__ = ("scalar_cache", "dtype", "nbytes", "number", "shape", "size")

    _known: ClassVar[dict[tuple, Spec]] = {}

    shape: Shape
    dtype: np.dtype
    size: int
    nbytes: int
    scalar_cache: Numbers | None
    number: int  # unique to this Spec

    def __new__(cls, shape: Shape, dtype: Any) -> Spec:
        try:
            return cls._known[shape, dtype]
        except (KeyError, TypeError):
            shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
        spec = super().__new__(cls)
        spec.shape = shape
        spec.dtype = dtype
        spec.size = prod(shape)
        spec.nbytes = spec.size * dtype.itemsize
        if spec.nbytes >= 2**63:
            raise MXNetError(f"shape {shape} is too large for any memory")
        tiny = dtype.kind == "f" and spec.nbytes < SMALL
        spec.scalar_cache = scalars[np][dtype] if tiny else None
        spec.number = new_number()
        if len(cls._known) >= 4096:
            cls._known.clear()
        return cls._known.setdefault((shape, dtype), spec)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.shape, self.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"Spec({self.shape}, {self.dtype.name})"


class Cost(NamedTuple):
    """Predicted arithmetic (FLOPs) and traffic (bytes read and written) of one call."""

    flops: float
    nbytes: float
