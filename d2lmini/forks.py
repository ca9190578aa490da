"""What a fork must not cut in two.

Only the thread that forks comes along to the child. A lock that another thread held stays locked
there, and a module that it was importing stays half imported, with a lock that nobody will open. So
a fork waits until what is guarded here is free:

    with forks.importing:
        import psutil               # seldom needed, hence not imported with the library

    _door = forks.guard(threading.Lock())

The engine's own lock is held across forks by `engine`, which calls `hold` first: whoever holds a
lock of these may need the engine's, never the other way round for long.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeVar

#: A fork waits so long for one lock: it may be waited for by whoever forks.
PATIENCE_S = 2.0

_guarded: weakref.WeakSet[Any] = weakref.WeakSet()
_held: list[Any] = []

AnyLock = TypeVar("AnyLock")


def guard(lock: AnyLock) -> AnyLock:
    """Let forks wait until `lock` is free, which they find free in the child."""
    _guarded.add(lock)
    return lock


#: Held while a function imports a module that is not imported with the library.
importing = guard(threading.RLock())


def hold() -> None:
    """Before a fork: nobody is in the midst of anything."""
    locks = [lock for lock in list(_guarded) if lock.acquire(timeout=PATIENCE_S)]
    _held.extend(locks)


def let_go() -> None:
    """After it, in the parent."""
    while _held:
        _held.pop().release()


def begin_anew() -> None:
    """After it, in the child."""
    _held.clear()
    for lock in list(_guarded):
        lock._at_fork_reinit()
