"""Controls that a reader can change: a slider, a choice, a switch; each made from a plain value.

>>> from d2lmini.widgets.controls import control
>>> control("size", (100, 2000, 100))
Control(name='size', kind='slider', value=1100, low=100, high=2000, step=100, choices=(), unit='')
>>> control("size", (100, 2000, 100), default=500).value
500
>>> control("where", ["host", "device"]).value
'host'

    (low, high), (low, high, step)    a slider; low and high are included
    [a, b, c]     a choice of these values; rising numbers get a slider
    True, False   a switch
    other values  are fixed: no control

Input from a view is not trusted: `take` returns the nearest value that the control allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: The number of steps of a slider over fractions without a given step.
STEPS = 100

#: Marks that no default was given.
MISSING: Any = object()


@dataclass(frozen=True)
class Control:
    """A parameter with a control.

    kind     "slider" (from `low` to `high` in steps of `step`), "choice" (one of `choices`),
             "switch"
    value    the initial value
    unit     text behind the value
    """

    name: str
    kind: str
    value: Any
    low: Any = None
    high: Any = None
    step: Any = None
    choices: tuple[Any, ...] = ()
    unit: str = ""

    def take(self, sent: Any) -> Any:
        """The allowed value for input from a view: a number, the index of a choice, a bool."""
        if self.kind == "switch":
            return bool(sent)
        if self.kind == "choice":
            return self.choices[min(max(int(sent), 0), len(self.choices) - 1)]
        return self.nearest(sent)

    def nearest(self, value: Any) -> Any:
        """The nearest value on a slider's steps."""
        most = math.floor((self.high - self.low) / self.step + 1e-9)
        steps = min(max(round((value - self.low) / self.step), 0), most)
        found = self.low + steps * self.step
        return found if isinstance(found, int) else float(f"{found:.12g}")

    def describe(self) -> dict[str, Any]:
        """The control as plain data for a view."""
        told: dict[str, Any] = {"name": self.name, "kind": self.kind, "value": self.value}
        told["unit"] = self.unit
        if self.kind == "choice":
            told["value"] = next(i for i, c in enumerate(self.choices) if _same(c, self.value))
            told["choices"] = [word(choice) for choice in self.choices]
            told["rising"] = _rises(self.choices)
        elif self.kind == "slider":
            told |= {"low": self.low, "high": self.high, "step": self.step}
        return told


def control(name: str, given: Any, default: Any = MISSING) -> Control | None:
    """The control for a value; None if the value is fixed. See above.

    default: the initial value, if the control allows it; else a slider starts in the middle, a
    choice at its first value. TypeError, ValueError for a tuple or list that makes no control.
    """
    if isinstance(given, bool):
        return Control(name, "switch", given)
    if isinstance(given, list):
        if not given:
            raise ValueError(f"{name}: an empty list leaves no choice; name one value at least")
        at = next((i for i, value in enumerate(given) if _same(value, default)), 0)
        return Control(name, "choice", given[at], choices=tuple(given))
    if isinstance(given, tuple):
        return _slider(name, given, default)
    return None


def _slider(name: str, given: tuple[Any, ...], default: Any) -> Control:
    wanted = "expected (low, high) or (low, high, step), a list of choices, or one value"
    if len(given) not in (2, 3) or not all(map(_is_number, given)):
        raise TypeError(f"{name}: a slider is made of two or three numbers, got {given}; {wanted}")
    low, high = given[:2]
    if not low <= high or not all(map(math.isfinite, given)):
        raise ValueError(f"{name}: low must be at most high, both finite, got {given}")
    whole = isinstance(low, int) and isinstance(high, int)
    step = given[2] if len(given) == 3 else 1 if whole else (high - low) / STEPS or 1.0
    if not step > 0:
        raise ValueError(f"{name}: the step must be more than 0, got {given}")
    made = Control(name, "slider", low, low, high, step)
    stands = default if _is_number(default) and low <= default <= high else (low + high) / 2
    return Control(name, "slider", made.nearest(stands), low, high, step)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Equality as a bool: the == of arrays returns arrays."""
    return one is other or (type(one) is type(other) and _is_plain(one) and one == other)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _rises(choices: tuple[Any, ...]) -> bool:
    return all(map(_is_number, choices)) and all(a < b for a, b in pairwise(choices))


def word(value: Any) -> str:
    """A value as a short text without an address: 0.25, relu, <NDArray>."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if _is_plain(value):
        return str(value)
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return name if isinstance(name, str) else f"<{type(value).__name__}>"
