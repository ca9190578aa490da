"""What many ops ask of their inputs, with the same words when the answer is no.

`infer` calls these on the caller's thread; whoever applied the op puts its name in front.

>>> from d2lmini.ops.core import Spec
>>> check_float(Spec((2, 3), "int32"))
Traceback (most recent call last):
    ...
d2lmini.base.MXNetError: needs floating point, got int32; convert with .astype('float32')
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.core import Shape, Spec


def check_float(*specs: Spec | None, half: bool = True) -> None:
    """One floating point dtype for all; float16 only if `half`."""
    first = specs[0]
    assert first is not None
    if first.dtype.kind != "f":
        raise MXNetError(
            f"needs floating point, got {first.dtype.name}; convert with .astype('float32')"
        )
    if not half and first.dtype.itemsize < 4:
        raise MXNetError("needs float32 or float64, got float16; convert with .astype('float32')")
    check_one_dtype(*specs)


def check_numbers(spec: Spec) -> None:
    """Not bool, which has no arithmetic."""
    if spec.dtype.char == "?":
        raise MXNetError("needs numbers, got bool; convert with .astype('int32')")


def check_one_dtype(*specs: Spec | None) -> None:
    """All inputs that are there share one dtype."""
    dtypes = [s.dtype for s in specs if s is not None]
    if len(set(dtypes)) > 1:
        names = ", ".join(dtype.name for dtype in dtypes)
        raise MXNetError(f"all inputs must share one dtype, got {names}; convert with .astype()")


def check_shape(name: str, spec: Spec, *shapes: Shape, why: str = "") -> None:
    """Input `name` has one of these shapes."""
    if spec.shape not in shapes:
        need = " or ".join(map(str, dict.fromkeys(shapes)))
        raise MXNetError(f"{name} is {spec.shape}, need {need}{why and ': ' + why}")


def check_optional(name: str, given: Any, wanted: bool, because: str) -> None:
    """An input that is there only with some values of an attribute; `because` is that value."""
    if wanted and given is None:
        raise MXNetError(f"input {name!r} is missing: {because} needs it")
    if not wanted and given is not None:
        raise MXNetError(f"input {name!r} was given, but there is none with {because}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """An attribute is one of the known words."""
    if value not in choices:
        raise MXNetError(
            f"{name}={value!r} is unknown, need one of {', '.join(map(repr, choices))}"
        )
