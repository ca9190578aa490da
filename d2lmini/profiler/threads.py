"""Names of threads in traces: each its own, also where a program calls several of them the same.

>>> from d2lmini.profiler.threads import this_thread
>>> this_thread()
'MainThread'

A second thread of the name "loader" that lives at the same time is "loader (2)": what they do
overlaps, and a track of a timeline shows one thing at a time.
"""

from __future__ import annotations

import threading
from itertools import count
from weakref import WeakKeyDictionary

from d2lmini import forks

_names: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()
_door = forks.guard(threading.RLock())  # a finalizer may come here while its thread is inside


class _Here(threading.local):
    """Per thread: its name, once it was asked for."""

    name = ""


_here = _Here()


def this_thread() -> str:
    """The name of the calling thread."""
    return _here.name or _name()


def _name() -> str:
    thread = threading.current_thread()
    with _door:
        others = [each for each in _names.items() if each[0] is not thread]
        taken = {name for other, name in others if other.is_alive()}
        name = thread.name
        numbers = count(2)
        while name in taken:
            name = f"{thread.name} ({next(numbers)})"
        _names[thread] = _here.name = name
    return name
