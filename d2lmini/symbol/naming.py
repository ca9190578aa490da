"""Names of nodes: 'dot0', 'dot1', ... and, in a Block's scope, with its prefix.

>>> from d2lmini import sym
>>> from d2lmini.symbol.naming import NameManager, Prefix
>>> with NameManager():
...     sym.dot(sym.var("a"), sym.var("b")).name
'dot0'
>>> with Prefix("net_"):
...     sym.dot(sym.var("a"), sym.var("b"), name="product").name
'net_product'

After `mxnet.name`. `NameManager.current` is the innermost manager of this thread; outside all
scopes each thread has a manager of its own.
"""

from __future__ import annotations

import threading
from typing import Any

from d2lmini.ops.elementwise import FAMILIES
from d2lmini.scopes import Scope, Undo, swap


class _ThreadState(threading.local):
    """Per thread: the current scope of a class, at first one of its own."""

    def __init__(self, kind: type):
        self.scope = kind()


class PerThread(type):
    """Metaclass of scopes: `current` is this thread's scope of the class; it can be assigned."""

    _thread_state: Any

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]):
        super().__init__(name, bases, namespace)
        if bases == (Scope,):  # subclasses share it
            cls._thread_state = _ThreadState(cls)

    @property
    def current(cls) -> Any:
        return cls._thread_state.scope

    @current.setter
    def current(cls, scope: Any) -> None:
        cls._thread_state.scope = scope


class NameManager(Scope, metaclass=PerThread):
    """Names by kind and number. A new scope starts its own count."""

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` itself, or if None the next name of the kind `hint`."""
        if name:
            return name
        return next_name(self._counter, hint)

    def _begin(self, undo: Undo) -> NameManager:
        swap(undo, NameManager, "current", self)
        return self


def next_name(counter: dict[str, int], hint: str) -> str:
    """The next name of the kind `hint`."""
    number = counter.get(hint, 0)
    counter[hint] = number + 1
    return f"{hint}{number}"


class Prefix(NameManager):
    """Puts `prefix` before every name, including given names."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """The name, or the next one of the kind `hint`, after the prefix."""
        return self._prefix + super().get(name, hint)


# -- names of nodes made by operators ----------------------------------------------------------

#: Op -> name of nodes that operators make, where it differs from the op's own name: `a + b` is
#: '_plus0', `a + 1` is '_plusscalar0'; but `a == 1` is '_equal_scalar0' and `2 ** a` is
#: '_rpower_scalar0'.
OPERATOR_HINTS = {
    **{f.broadcast.name: f.scalar.name.removesuffix("_scalar") for f in FAMILIES.values()},
    **{
        op.name: op.name.replace("_scalar", "scalar")
        for f in FAMILIES.values()
        if f.mxnet and not f.truth
        for op in (f.scalar, f.reflected)
        if op.name != "_rpower_scalar"
    },
}


def operator_hint(name: str) -> str:
    """The name, without its number, of a node of the op `name` that an operator made."""
    return OPERATOR_HINTS.get(name) or name.lower()
