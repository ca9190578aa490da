"""Unique names of threads in traces, also where a program gives several threads the same name.

>>> from d2lmini.profiler.threads import this_thread
>>> this_thread()
'MainThread'

A second live thread with the name "loader" becomes "loader (2)": the two run at the same time, and
a track of a timeline shows one activity at a time.
"""

from __future__ import annotations

import threading
from itertools import count
from weakref import WeakKeyDictionary

from d2lmini import forks
from d2lmini.weak import living

_names: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()
_door = forks.guard(threading.RLock())  # reentrant: a finalizer may run while the lock is held


class _ThreadState(threading.local):
    """Per thread: its name, after the first request."""

    name = ""


_thread_state = _ThreadState()


def this_thread() -> str:
    """The name of the calling thread."""
    return _thread_state.name or _name()


def _name() -> str:
    thread = threading.current_thread()
    with _door:
        others = [other for other in living(_names) if other is not thread]
        taken = {_names[other] for other in others if other.is_alive()}
        name = thread.name
        numbers = count(2)
        while name in taken:
            name = f"{thread.name} ({next(numbers)})"
        _names[thread] = _thread_state.name = name
    return name
