"""Hooks: whoever wants to know what the engine and the storage do, listens here.

A listener subclasses `Instrument` and overrides what it wants to hear. With nobody listening a
hook costs one branch. Profiler, widgets and tests stand on this; nothing depends on them.

>>> from d2lmini import instrument, nd
>>> class Count(instrument.Instrument):
...     ended = 0
...     def end(self, task, failure):
...         self.ended += 1
>>> with instrument.listening(Count()) as count:
...     y = nd.ones((2, 2)) + 1
...     nd.waitall()
>>> count.ended
2

`push`, `ready` and `end` arrive with the engine's lock held: be quick, and do not call the engine.
Listeners read the clock themselves (`time.perf_counter_ns`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from d2lmini import callsite

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.context import Context

#: Who listens now. Replaced, never changed in place, so that it can be read without a lock.
listeners: tuple[Instrument, ...] = ()

#: What `tell_dropped` has yet to say.
_dropped: deque[str] = deque()


class Instrument:
    """Listens to nothing until methods are overridden. `task` is an engine Task (its name, site,
    ctx, reads and writes can be read), times are not given."""

    def push(self, task: Any) -> None:
        """A task entered the engine."""

    def ready(self, task: Any) -> None:
        """Nothing it depends on is pending any more; it waits for a worker."""

    def start(self, task: Any, worker: str) -> None:
        """A worker begins to run it ("caller" when it runs inline on the thread that issued it)."""

    def end(self, task: Any, failure: Any) -> None:
        """It is complete; `failure` is None, or why it failed or was skipped."""

    def wait(self, kind: str, target: Any, site: Site | None, begin_ns: int, end_ns: int) -> None:
        """A user thread waited (`kind`: asnumpy, wait_to_read, waitall, backpressure, ...)."""

    def alloc(self, ctx: Context, nbytes: int) -> None:
        """An array's memory was taken."""

    def free(self, ctx: Context, nbytes: int) -> None:
        """An array's memory was given back to the pool."""


AnyInstrument = TypeVar("AnyInstrument", bound=Instrument)


def add(listener: Instrument) -> None:
    """Begin to tell `listener`."""
    global listeners
    listeners = (*listeners, listener)


def remove(listener: Instrument) -> None:
    """Stop telling `listener`; unknown ones are ignored."""
    global listeners
    listeners = tuple(each for each in listeners if each is not listener)


@contextmanager
def listening(listener: AnyInstrument) -> Iterator[AnyInstrument]:
    """`listener` hears what happens within the scope."""
    add(listener)
    try:
        yield listener
    finally:
        remove(listener)


def emit(event: str, *args: Any) -> None:
    """Tell every listener. One that raises is dropped, for the engine must go on: it may be in the
    midst of its own work, where nobody could catch it. The next wait warns of it."""
    for listener in listeners:
        try:
            getattr(listener, event)(*args)
        except Exception as problem:
            remove(listener)
            _dropped.append(
                f"instrument {type(listener).__name__} raised {problem!r} in {event}; "
                "it will not be told any more"
            )


def tell_dropped() -> None:
    """Warn of listeners that raised; called on the user's thread, at the end of waits."""
    while _dropped:
        callsite.warn(_dropped.popleft())
