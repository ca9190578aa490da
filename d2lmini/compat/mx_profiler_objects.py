"""The user's own spans, counters and markers in the profiler.

>>> from d2lmini import profiler
>>> domain = profiler.Domain("training")
>>> epoch, images = domain.new_task("epoch"), domain.new_counter("images", 0)
>>> epoch.start()
>>> images += 64
>>> epoch.stop()
>>> print(epoch, images)
epoch images

They are recorded while the profiler runs (`mx_profiler`), and cost a branch while it does not.
After MXNet 1.9's `mx.profiler`.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.compat.mx_profiler import profiler
from d2lmini.profiler.chrome import Mark

#: The scope of a marker -> the letter of the file format.
SCOPES = {"global": "g", "marker": "t", "process": "p", "task": "t", "thread": "t"}


class Domain:
    """A group of spans, counters and markers, under one name."""

    def __init__(self, name: str):
        self.name = name

    def new_task(self, name: str) -> Task:
        """A Task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A Frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: int | None = None) -> Counter:
        """A Counter of this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A Marker of this domain."""
        return Marker(self, name)

    def __str__(self) -> str:
        return self.name


class _Object:
    """What a program records in a domain, under a name."""

    kind = ""
    section = "{}"  # of the table, for the domain

    def __init__(self, domain: Any, name: str):
        if not isinstance(domain, Domain):
            kind = type(self).__name__
            raise TypeError(f"{kind}: its domain is {domain!r}; give it a profiler.Domain")
        self.domain = domain
        self.name = name

    def __str__(self) -> str:
        return self.name

    def _record(self, begin_ns: int, value: int = 0, scope: str = "") -> None:
        if profiler.records:
            section = self.section.format(self.domain)
            thread, end_ns = threading.current_thread().name, time.perf_counter_ns()
            mark = Mark(self.kind, section, self.name, thread, begin_ns, end_ns, value, scope)
            profiler.marks.append(mark)


class Task(_Object):
    """A piece of work of a domain, from `start` to `stop`; several may run at once. A stop without
    a start records nothing."""

    kind = "task"
    _begin_ns = 0

    def start(self) -> None:
        """Begin now."""
        self._begin_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """End now."""
        if self._begin_ns:
            self._record(self._begin_ns)
            self._begin_ns = 0


class Frame(Task):
    """A repeated step, such as a batch."""

    kind, section = "frame", "{},frame"


class Event(Task):
    """A piece of work without a domain."""

    kind = "event"

    def __init__(self, name: str):
        super().__init__(Domain("event"), name)


class Counter(_Object):
    """An integer that changes, with `+=`, `-=` or `set_value`."""

    kind = "counter"

    def __init__(self, domain: Domain, name: str, value: int | None = None):
        super().__init__(domain, name)
        self._value = 0
        if value is not None:
            self.set_value(value)

    def set_value(self, value: int) -> None:
        """Set the counter to `value`."""
        self._value = int(value)
        self._record(time.perf_counter_ns(), self._value)

    def increment(self, delta: int = 1) -> None:
        """Add `delta`."""
        self.set_value(self._value + int(delta))

    def decrement(self, delta: int = 1) -> None:
        """Subtract `delta`."""
        self.set_value(self._value - int(delta))

    def __iadd__(self, delta: int) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: int) -> Counter:
        self.decrement(delta)
        return self


class Marker(_Object):
    """A point in time."""

    kind, section = "marker", "{},instant_marker"

    def mark(self, scope: str = "process") -> None:
        """Record the marker now; `scope`: global, process, thread, task or marker (MXNetError for
        any other)."""
        if scope not in SCOPES:
            known = ", ".join(map(repr, SCOPES))
            raise MXNetError(f"Invalid Input: '{scope}', valid values are: {{{known}}}")
        self._record(time.perf_counter_ns(), scope=SCOPES[scope])
