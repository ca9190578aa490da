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

`push`, `ready`, `small` and `end` arrive with the engine's lock held: be quick, and do not call the
engine.
Listeners read the clock themselves (`time.perf_counter_ns`). What is asked at every event is
prepared when a listener comes or goes: whom to tell, by which method.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from d2lmini import callsite

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.context import Context

#: Who listens now. Replaced, never changed in place, so that it can be read without a lock.
listeners: tuple[Instrument, ...] = ()

#: Asked on the user's thread before every wait, with its kind and its Var. What it raises goes to
#: the user's line instead of the wait (`d2lmini.lint_waits`). None: nobody asks.
before_wait: Callable[[str, Any], None] | None = None

#: Called on the user's thread after every wait, on whose line it may raise (`storage.check`).
after_wait: Callable[[], None] | None = None

#: Operations on tiny arrays: does anybody want to be told of them event by event, as of all others?
#: Then they take the long road. Else, does anybody want to be told by one event, `small`?
apart = all_in_one = False

_kept_apart = False

#: Does anybody want to be told of `issue` and `issued`?
issuing = False

#: What `small` stands for.
_PARTS = ("push", "ready", "start", "alloc", "end")

#: Of each event, who is told by which method: those that have one of their own for it.
_told: dict[str, list[tuple[Instrument, Callable[..., None]]]] = {}

#: What `tell_dropped` has yet to say.
dropped: deque[str] = deque()


class Instrument:
    """Listens to nothing until methods are overridden. `task` is an engine Task (its name, site,
    ctx, reads and writes can be read), times are not given."""

    def push(self, task: Any) -> None:
        """A task entered the engine."""

    def ready(self, task: Any) -> None:
        """Nothing it depends on is pending any more; it waits for a worker."""

    def start(self, task: Any, worker: str) -> None:
        """A worker begins to run it ("caller" when it runs inline on the thread that issued it)."""

    def issue(self, task: Any, lane: Any) -> None:
        """On the worker of a GPU's lane: what comes on its stream from now on is the task's."""

    def issued(self, task: Any, lane: Any) -> None:
        """All that the task does is on the stream of its lane."""

    def share(
        self, task: Any, pieces: int, begin_ns: int, own: int, over_ns: int, late: bool
    ) -> None:
        """A part of it that was cut into pieces is over. Its worker took `own` of them, until
        `over_ns`; workers that were idle when it began took the others, or with `late` came to be
        so meanwhile."""

    def end(self, task: Any, failure: Any) -> None:
        """It is complete; `failure` is None, or why it failed or was skipped."""

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Callable[[], Any], begin_ns: int,
        end_ns: int,
    ) -> None:  # fmt: skip
        """An operation on tiny arrays was computed where it was issued, and there is no task: push,
        ready, start, alloc (of all of `writes`) and end in one, which costs a fraction. Told only
        while everybody who wants one of these has this method too."""

    def wait(self, kind: str, target: Any, site: Site | None, begin_ns: int, end_ns: int) -> None:
        """A user thread waited (`kind`: asnumpy, wait_to_read, waitall, backpressure, ...)."""

    def alloc(self, ctx: Context, nbytes: int, var: Any) -> None:
        """An array's memory was taken: that of `var` (its `pool` has the books)."""

    def free(self, ctx: Context, nbytes: int, serial: int) -> None:
        """An array's memory was given back to the pool. `serial` is its Var's, 0 if no trace has
        met it."""


_EVENTS = {name: method for name, method in vars(Instrument).items() if not name.startswith("_")}

AnyInstrument = TypeVar("AnyInstrument", bound=Instrument)


def add(listener: Instrument) -> None:
    """Begin to tell `listener`."""
    _replace((*listeners, listener))


def remove(listener: Instrument) -> None:
    """Stop telling `listener`; unknown ones are ignored."""
    _replace(tuple(each for each in listeners if each is not listener))


def _replace(new: tuple[Instrument, ...]) -> None:
    global listeners, apart, all_in_one, issuing, _told
    told: dict[str, list[tuple[Instrument, Callable[..., None]]]] = {}
    for event, unheard in _EVENTS.items():
        methods = [(each, getattr(each, event)) for each in new]
        told[event] = [
            (each, tell) for each, tell in methods if getattr(tell, "__func__", None) is not unheard
        ]
    content = [listener for listener, _ in told["small"]]
    listeners, _told = new, told
    apart = _kept_apart or any(each not in content for part in _PARTS for each, _ in told[part])
    all_in_one = bool(content)
    issuing = bool(told["issue"] or told["issued"])


def keep_apart(on: bool) -> None:
    """Let all operations go the long road from now on, whoever listens; or no longer so."""
    global _kept_apart
    _kept_apart = on
    _replace(listeners)


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
    for listener, tell in _told[event]:
        try:
            tell(*args)
        except Exception as problem:
            remove(listener)
            dropped.append(
                f"instrument {type(listener).__name__} raised {problem!r} in {event}; "
                "it will not be told any more"
            )


def tell_dropped() -> None:
    """Warn of listeners that raised; called on the user's thread, at the end of waits."""
    while dropped:
        callsite.warn(dropped.popleft())


_replace(())
