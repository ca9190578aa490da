"""Work that a fork must not interrupt.

Only the thread that forks exists in the child. A lock that another thread held stays locked there,
and a module that the other thread was importing stays half imported, with a lock that never opens.
So a fork waits until the locks guarded here are free:

    with forks.importing:
        import psutil               # seldom needed, hence not imported with the library

    _door = forks.guard(threading.Lock())

The `engine` holds its own lock across forks, and calls `hold` first: a thread that holds a guarded
lock may need the engine's lock, but never the reverse for long.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeVar

from d2lmini.weak import living

#: Longest wait of a fork for one lock, because the lock's holder may wait for the forking thread.
PATIENCE_S = 6.0

_guarded: weakref.WeakSet[Any] = weakref.WeakSet()
_held: list[Any] = []

AnyLock = TypeVar("AnyLock")


def guard(lock: AnyLock) -> AnyLock:
    """Make forks wait until `lock` is free; the child finds the lock free."""
    _guarded.add(lock)
    return lock


#: Held while a function imports a module that is not imported with the library.
importing = guard(threading.RLock())


def hold() -> None:
    """Before a fork: take all guarded locks, so that no thread is inside guarded work."""
    locks = [lock for lock in living(_guarded) if lock.acquire(timeout=PATIENCE_S)]
    _held.extend(locks)


def release() -> None:
    """After a fork, in the parent: release the locks."""
    while _held:
        _held.pop().release()


def begin_anew() -> None:
    """After a fork, in the child: make the locks new."""
    _held.clear()
    for lock in living(_guarded):
        lock._at_fork_reinit()
