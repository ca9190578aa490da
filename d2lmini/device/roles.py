"""What an array's memory is for in training: reports of memory tell weights from gradients.

Who makes such an array says so with `note`: `autograd.mark_variables` ("weights" and "gradients"),
parameters ("weights") and updaters ("optimizer state"). Memory without a note is known by the
operation that computed it, or not at all.

>>> from d2lmini import nd
>>> w = nd.ones((2, 2))
>>> w.attach_grad()
>>> [role for var, role in known() if var in (w._chunk, w.grad._chunk)]
['weights', 'gradients']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from d2lmini.base import instrument
from d2lmini.base.forks import living

_roles: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def note(role: str, arrays: Iterable[Any]) -> None:
    """The memory of these arrays has this role; what has no memory of its own is left out."""
    for array in arrays:
        var = getattr(array, "_chunk", None)
        if var is not None and _roles.get(var) != role:
            _roles[var] = role
            if instrument.listeners:
                instrument.emit("role", var, role)


def known() -> list[tuple[Any, str]]:
    """The Vars of living arrays with a role, in the order of the notes."""
    return [(var, _roles[var]) for var in living(_roles)]
