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
from collections.abc import Iterator

from d2lmini.base import MXNetError
from d2lmini.compat.mx_profiler import profiler
from d2lmini.profiler.chrome import Mark
from d2lmini.scopes import contextmanager

#: The scope of a marker -> the letter of the file format.
SCOPES = {"global": "g", "marker": "t", "process": "p", "task": "t", "thread": "t"}


def _tell(
    kind: str, domain: str, name: str, begin_ns: int, value: int = 0, scope: str = ""
) -> None:
    if profiler.records:
        thread = threading.current_thread().name
        end_ns = time.perf_counter_ns()
        profiler.marks.append(Mark(kind, domain, name, thread, begin_ns, end_ns, value, scope))


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


def _name_of(domain: Domain, what: str) -> str:
    if not isinstance(domain, Domain):
        raise TypeError(f"{what}: its domain is {domain!r}; give it a profiler.Domain")
    return domain.name


class _Span:
    """The time from `start` to `stop`; a stop without a start records nothing."""

    kind = ""

    def __init__(self, section: str, name: str):
        self.name = name
        self._section = section
        self._begin_ns = 0

    def start(self) -> None:
        """Begin the span now."""
        self._begin_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """End the span now."""
        if self._begin_ns:
            _tell(self.kind, self._section, self.name, self._begin_ns)
            self._begin_ns = 0

    def __str__(self) -> str:
        return self.name


class Task(_Span):
    """A piece of work of a domain; several may run at once."""

    kind = "task"

    def __init__(self, domain: Domain, name: str):
        super().__init__(_name_of(domain, "Task"), name)


class Frame(_Span):
    """A repeated step, such as a batch."""

    kind = "frame"

    def __init__(self, domain: Domain, name: str):
        super().__init__(f"{_name_of(domain, 'Frame')},frame", name)


class Event(_Span):
    """A piece of work without a domain."""

    kind = "event"

    def __init__(self, name: str):
        super().__init__("event", name)


class Counter:
    """An integer that changes, with `+=`, `-=` or `set_value`."""

    def __init__(self, domain: Domain, name: str, value: int | None = None):
        self.name = name
        self._section = _name_of(domain, "Counter")
        self._value = 0
        if value is not None:
            self.set_value(value)

    def set_value(self, value: int) -> None:
        """Set the counter to `value`."""
        self._value = int(value)
        _tell("counter", self._section, self.name, time.perf_counter_ns(), self._value)

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

    def __str__(self) -> str:
        return self.name


class Marker:
    """A point in time."""

    def __init__(self, domain: Domain, name: str):
        self.name = name
        self.domain = domain
        self._section = f"{_name_of(domain, 'Marker')},instant_marker"

    def mark(self, scope: str = "process") -> None:
        """Record the marker now; `scope`: global, process, thread, task or marker (MXNetError for
        any other)."""
        if scope not in SCOPES:
            raise MXNetError(
                f"Invalid Input: '{scope}', valid values are: "
                + "{" + ", ".join(f"'{name}'" for name in sorted(SCOPES)) + "}"
            )  # fmt: skip
        _tell("marker", self._section, self.name, time.perf_counter_ns(), scope=SCOPES[scope])


@contextmanager
def scope(name: str) -> Iterator[Task]:
    """A Task of the domain "scope" that lasts as long as the `with` block."""
    task = Task(Domain("scope"), name)
    task.start()
    try:
        yield task
    finally:
        task.stop()
