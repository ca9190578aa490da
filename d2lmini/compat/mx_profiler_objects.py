"""What a program says of itself to the profiler: spans, counters and markers of its own.

>>> from d2lmini import profiler
>>> domain = profiler.Domain("training")
>>> epoch, images = domain.new_task("epoch"), domain.new_counter("images", 0)
>>> epoch.start()
>>> images += 64
>>> epoch.stop()
>>> print(epoch, images)
epoch images

They are recorded while the profiler runs (`classic`), and cost a branch while it does not. After
MXNet 1.9's `mx.profiler`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from d2lmini.base import MXNetError
from d2lmini.compat.mx_profiler import profiler
from d2lmini.profiler.chrome import Mark

#: Whom a marker is for -> the letter of the format.
SCOPES = {"global": "g", "marker": "t", "process": "p", "task": "t", "thread": "t"}


def _tell(
    kind: str, domain: str, name: str, begin_ns: int, value: int = 0, scope: str = ""
) -> None:
    if profiler.records:
        thread = threading.current_thread().name
        end_ns = time.perf_counter_ns()
        profiler.marks.append(Mark(kind, domain, name, thread, begin_ns, end_ns, value, scope))


class Domain:
    """What belongs together, under one name."""

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
    """From `start` to `stop`; a stop without a start says nothing."""

    kind = ""

    def __init__(self, section: str, name: str):
        self.name = name
        self._section = section
        self._begin_ns = 0

    def start(self) -> None:
        """It begins now."""
        self._begin_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """It ends now."""
        if self._begin_ns:
            _tell(self.kind, self._section, self.name, self._begin_ns)
            self._begin_ns = 0

    def __str__(self) -> str:
        return self.name


class Task(_Span):
    """Some work of a domain; several may go on at once."""

    kind = "task"

    def __init__(self, domain: Domain, name: str):
        super().__init__(_name_of(domain, "Task"), name)


class Frame(_Span):
    """A step that comes again and again, such as a batch."""

    kind = "frame"

    def __init__(self, domain: Domain, name: str):
        super().__init__(f"{_name_of(domain, 'Frame')},frame", name)


class Event(_Span):
    """Some work of no domain."""

    kind = "event"

    def __init__(self, name: str):
        super().__init__("event", name)


class Counter:
    """A whole number that changes, with `+=`, `-=` or `set_value`."""

    def __init__(self, domain: Domain, name: str, value: int | None = None):
        self.name = name
        self._section = _name_of(domain, "Counter")
        self._value = 0
        if value is not None:
            self.set_value(value)

    def set_value(self, value: int) -> None:
        """It is `value` from now on."""
        self._value = int(value)
        _tell("counter", self._section, self.name, time.perf_counter_ns(), self._value)

    def increment(self, delta: int = 1) -> None:
        """It is greater by `delta`."""
        self.set_value(self._value + int(delta))

    def decrement(self, delta: int = 1) -> None:
        """It is less by `delta`."""
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
    """A moment."""

    def __init__(self, domain: Domain, name: str):
        self.name = name
        self.domain = domain
        self._section = f"{_name_of(domain, 'Marker')},instant_marker"

    def mark(self, scope: str = "process") -> None:
        """It is now; `scope`, whom it concerns: global, process, thread, task or marker (MXNetError
        for any other)."""
        if scope not in SCOPES:
            raise MXNetError(
                f"Invalid Input: '{scope}', valid values are: "
                + "{" + ", ".join(f"'{name}'" for name in sorted(SCOPES)) + "}"
            )  # fmt: skip
        _tell("marker", self._section, self.name, time.perf_counter_ns(), scope=SCOPES[scope])


@contextmanager
def scope(name: str) -> Iterator[Task]:
    """A Task of the domain "scope" that lasts as long as the `with` does."""
    task = Task(Domain("scope"), name)
    task.start()
    try:
        yield task
    finally:
        task.stop()
