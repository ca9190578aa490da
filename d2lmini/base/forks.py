"""Work that a fork must not interrupt.

Only the thread that forks exists in the child. A lock that another thread held stays locked there,
and a module that the other thread was importing stays half imported, with a lock that never opens.
So a fork waits until the locks guarded here are free:

    with forks.importing:
        import psutil               # seldom needed, hence not imported with the library

    _door = forks.guard(threading.Lock())

`at_fork` registers what is to be done before a fork, and after it in both processes. The `engine`
holds its own lock across forks, and calls `hold` first: a thread that holds a guarded lock may need
the engine's lock, but never the reverse for long.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

#: Longest wait of a fork for one lock, because the lock's holder may wait for the forking thread.
PATIENCE_S = 6.0

_guarded: weakref.WeakSet[Any] = weakref.WeakSet()
_one_fork = threading.Lock()  # two forks at once would take each other's locks
_held: dict[int, list[Any]] = {}  # by the thread that forks

AnyLock = TypeVar("AnyLock")


def at_fork(**hooks: Callable[[], object]) -> None:
    """`os.register_at_fork`, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


def living(collection: Any) -> list[Any]:
    """The elements of a WeakSet, the keys of a WeakKeyDictionary, or the values of a
    WeakValueDictionary that are alive. They are listed at once, where `list(weak_set)` fails if
    another thread removes an element meanwhile.

    >>> class Element: ...
    >>> one, other = Element(), Element()
    >>> len(living(weakref.WeakSet([one, other])))
    2
    """
    data = collection.data
    references = list(data.values() if isinstance(collection, WeakValueDictionary) else data)
    return [element for reference in references if (element := reference()) is not None]


def guard(lock: AnyLock) -> AnyLock:
    """Make forks wait until `lock` is free; the child finds the lock free."""
    _guarded.add(lock)
    return lock


#: Held while a function imports a module that is not imported with the library.
importing = guard(threading.RLock())


def hold(last: AnyLock) -> None:
    """Before a fork: take all guarded locks, so that no thread is inside guarded work; then `last`,
    however long that takes."""
    held: list[Any] = []
    _held[threading.get_ident()] = held
    for lock in (_one_fork, *living(_guarded)):
        if lock.acquire(timeout=PATIENCE_S):
            held.append(lock)
    last.acquire()  # type: ignore[attr-defined]
    held.append(last)


def is_guarded() -> bool:
    """True if this thread may hold a guarded lock."""
    locks = living(_guarded)
    return any(x.locked() if hasattr(x, "locked") else x._is_owned() for x in locks)  # an RLock


def release() -> None:
    """After a fork, in the parent: release the locks that this thread took."""
    held = _held.pop(threading.get_ident(), [])
    while held:
        held.pop().release()


def begin_anew() -> None:
    """After a fork, in the child: make the locks new."""
    _held.clear()
    for lock in (_one_fork, *living(_guarded)):
        lock._at_fork_reinit()
