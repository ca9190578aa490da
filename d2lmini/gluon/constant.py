"""Constant: a parameter that is not learnt.

>>> from d2lmini import gluon
>>> shift = gluon.Constant("shift", [1, 2])
>>> shift.initialize()
>>> shift.data().shape, shift.grad_req
((2,), 'null')

A layer makes a Constant with `self.params.get_constant("shift", [1, 2])`. A Constant moves with the
net between devices, and is saved in the net's files.
"""

from __future__ import annotations

import warnings
from typing import Any

from d2lmini import initializer
from d2lmini import ndarray as nd
from d2lmini.gluon.parameter import Parameter
from d2lmini.gluon.utils import as_default
from d2lmini.ndarray import NDArray


class Constant(Parameter):
    """A parameter with the constant `value` (an NDArray, or numbers) in every context."""

    def __init__(self, name: str, value: Any):
        if not isinstance(value, NDArray):
            value = as_default(nd.array(value))
        self.value = value
        super().__init__(
            name, grad_req="null", shape=value.shape, dtype=value.dtype, init=_Value(value)
        )

    def __repr__(self) -> str:
        return f"Constant {self.name} (shape={self.shape}, dtype={self.dtype})"

    @property
    def grad_req(self) -> str:
        """Always 'null'."""
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(
                f'Constant parameter "{self.name}" does not support grad_req other than "null", '
                f'and new value "{req}" is ignored.',
                stacklevel=2,
            )


class _Value(initializer.Initializer):
    """Fills with a given array."""

    def __init__(self, value: NDArray):
        super().__init__()
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value
