"""Checks that many ops make on their inputs, with uniform messages.

`infer` calls these on the caller's thread; the caller of `infer` adds the op's name to the message.

>>> from d2lmini.ops.core import Spec
>>> check_float(Spec((2, 3), "int32"))
Traceback (most recent call last):
    ...
d2lmini.base.MXNetError: needs floating point, got int32; convert with .astype('float32')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.base import ArgumentValueError, MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops.core import Shape, Spec


def check_float(*specs: Spec | None) -> None:
    """One floating point dtype for all specs."""
    first = specs[0]
    assert first is not None
    if not is_float(first.dtype):
        raise MXNetError(
            f"needs floating point, got {first.dtype.name}; convert with .astype('float32')"
        )
    check_one_dtype(*specs)


def check_numbers(*specs: Spec) -> None:
    """One dtype for all specs: any except bool, which has no arithmetic."""
    check_one_dtype(*specs)
    if specs[0].dtype.char == "?":
        raise MXNetError("needs numbers, got bool; convert with .astype('int32')")


def check_one_dtype(*specs: Spec | None) -> None:
    """All given inputs share one dtype."""
    dtypes = [spec.dtype for spec in specs if spec is not None]
    if len(set(dtypes)) > 1:
        names = [dtype.name for dtype in dtypes]
        raise MXNetError(f"dtypes differ: {', '.join(names)}; convert with .astype('{names[-1]}')")


def check_one_shape(**inputs: Spec) -> None:
    """All these inputs, by name, have the shape of the first."""
    if len({spec.shape for spec in inputs.values()}) > 1:
        given = ", ".join(f"{name} is {spec.shape}" for name, spec in inputs.items())
        raise MXNetError(f"shapes differ: {given}; the operators and broadcast_* broadcast")


def check_shape(name: str, spec: Spec | None, *shapes: Shape, why: str = "") -> None:
    """Input `name` has one of these shapes, if it is given."""
    if spec is not None and spec.shape not in shapes:
        need = " or ".join(map(str, dict.fromkeys(shapes)))
        raise MXNetError(f"{name} is {spec.shape}, need {need}{why and ': ' + why}")


def check_shapes(*shapes: Shape, why: str, **inputs: Spec) -> None:
    """All these inputs, by name, have one of these shapes."""
    for name, spec in inputs.items():
        check_shape(name, spec, *shapes, why=why)


def check_axes(data: Spec, least: int, need: str) -> None:
    """`data` has so many axes or more; `need` describes them."""
    if len(data.shape) < least:
        raise MXNetError(f"data is {data.shape}, need {need}")


def check_optional(name: str, given: Any, wanted: bool, because: str) -> None:
    """An input that exists only for some values of an attribute; `because` states that value."""
    if wanted and given is None:
        raise MXNetError(f"input {name!r} is missing: {because} needs it")
    if not wanted and given is not None:
        raise MXNetError(f"input {name!r} was given, but is not used with {because}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """An attribute has one of the allowed values."""
    if value not in choices:
        raise MXNetError(
            f"{name}={value!r} is unknown, need one of {', '.join(map(repr, choices))}"
        )


#: What a parameter must be -> the test of numbers or arrays. nan is none of it.
RANGES: dict[str, Callable[[Any], Any]] = {
    "0 or more": lambda value: value >= 0,
    "1 or more": lambda value: value >= 1,
    "from 0 to 1": lambda value: (value >= 0) & (value <= 1),
    "finite": lambda value: abs(value) < np.inf,
}


def require(what: str, needs: str, value: Any) -> None:
    """ArgumentValueError, a kind of MXNetError, unless `value` (a number or an array), which is the
    parameter `what`, is what it `needs` to be."""
    holds = RANGES[needs](value)
    if holds is not True and not np.all(holds):
        raise ArgumentValueError(f"{what} must be {needs}, got {value}")


def refuse_gradient(declared: Any) -> Any:
    """Attach the rule of an op that is not differentiable in MXNet: backward raises MXNetError."""

    @declared.gradient()
    def _(g: Any) -> Any:
        raise MXNetError(f"{declared.name} is non-differentiable; pass its inputs with .detach()")

    return declared


def check_storage(stype: str | None) -> None:
    """The only storage type: 'default', or None for it. ArgumentValueError, a kind of MXNetError,
    for another, such as MXNet's sparse types."""
    if stype not in (None, "default"):
        raise ArgumentValueError(
            f"storage type {stype!r} is left out of d2lmini, as all sparse arrays; use 'default'"
        )
