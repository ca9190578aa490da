"""Constants of a graph: values that are known when it is compiled.

A constant is a node without inputs; its one attribute holds the array. The op is no user's: it has
no name in `nd` or `sym`, and no file has it.

>>> import numpy as np
>>> two = constant(np.full((2, 3), 2, "float32"), "two")
>>> two[0].attrs, two[0].specs
({'value': 2.0 everywhere}, (Spec((2, 3), float32),))
>>> uniform(two)
2.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.device.errstate import run_quietly
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.ops.core import Op, registry
from d2lmini.ops.create import full
from d2lmini.ops.spec import Spec


class Constant:
    """An array that nobody writes into.

    array  the values; 'read-only' is set
    fill   the number that all elements are, to the bit; None if they differ or there are none
    key    equal for constants that may stand for one another
    """

    __slots__ = ("array", "fill", "key")

    def __init__(self, array: np.ndarray):
        self.array = np.array(array, order="C")
        self.array.flags.writeable = False
        self.fill: Any = None
        if self.array.size:
            # As bits: 0.0 and -0.0 are equal and differ, nan is what it is.
            bits = self.array.reshape(-1).view(f"V{self.array.itemsize}")
            if (bits == bits[0]).all():
                self.fill = self.array.reshape(-1)[0].item()
        small = self.array.nbytes <= 4096
        content = self.array.tobytes() if small else id(self)
        self.key = (self.array.shape, self.array.dtype.str, content)

    def __repr__(self) -> str:
        if self.array.size == 1:
            return repr(self.fill)
        if self.fill is not None:
            return f"{self.fill!r} everywhere"
        if self.array.size <= 8:
            return repr(self.array.tolist())
        return f"<{self.array.size} numbers>"


def _spec(*, value: Constant) -> Spec:
    return Spec(value.array.shape, value.array.dtype)


def _value(xp, *, value):
    """The array itself: who gives it to somebody else makes a copy."""
    return value.array


CONSTANT = Op(_value, "_graph_constant", infer=_spec, flops=0, grad=None)


def constant(array: np.ndarray, name: str) -> Entry:
    """A node that is this array."""
    value = Constant(array)
    return Node(CONSTANT, name, (), {"value": value}, (_spec(value=value),)), 0


def is_constant(entry: Entry | None) -> bool:
    """True if this value is known."""
    return entry is not None and entry[0].op is CONSTANT


def array_of(entry: Entry) -> np.ndarray:
    """The array of a constant; not to be written into."""
    return entry[0].attrs["value"].array


def uniform(entry: Entry | None) -> Any:
    """The number that all elements of this value are known to be, as its dtype holds the number,
    else None."""
    if entry is None or entry[0].op is None:
        return None
    op, attrs = entry[0].op, entry[0].attrs
    if op is CONSTANT:
        return attrs["value"].fill
    if op.name not in _FILLS:
        return None
    value, dtype = _FILLS[op.name](attrs), spec_of(entry).dtype
    return run_quietly(lambda: full.compute(np, shape=(), value=value, dtype=dtype)).item()


_FILLS = {
    "_zeros": lambda attrs: 0,
    "_ones": lambda attrs: 1,
    "_full": lambda attrs: attrs["value"],
    "zeros_like": lambda attrs: 0,
    "ones_like": lambda attrs: 1,
}


def make_filled(spec: Spec, number: Any, name: str) -> Entry:
    """A node all of whose elements are `number`."""
    attrs = {"shape": spec.shape, "value": number, "dtype": spec.dtype}
    return Node(registry["_full"], name, (), attrs, (spec,)), 0
