"""Hooks for listeners: the engine and the storage report what they do.

A listener subclasses `Instrument` and overrides the events it wants to hear. Without listeners a
hook costs one branch. Profiler, widgets and tests use this module; nothing depends on them.

>>> from d2lmini import nd
>>> from d2lmini.base import instrument
>>> class Count(instrument.Instrument):
...     ended = 0
...     def end(self, task, failure):
...         self.ended += 1
>>> with instrument.listening(Count()) as count:
...     y = nd.ones((2, 2)) + 1
...     nd.waitall()
>>> count.ended
2

`push`, `ready`, `small` and `end` are called with the engine's lock held: be quick, and do not call
the engine.
Listeners read the clock themselves (`time.perf_counter_ns`). The lists of methods to call for each
event are prepared when a listener is added or removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from d2lmini.base import callsite, threads
from d2lmini.base.scopes import Undo, scope

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.context import Context

#: The listeners. Replaced, never changed in place, so that the tuple can be read without a lock.
listeners: tuple[Instrument, ...] = ()

#: Called on the user's thread before every wait, with its kind and its Var. An exception from this
#: function is raised at the user's line instead of the wait (`d2lmini.lint_waits`). None: off.
before_wait: Callable[[str, Any], None] | None = None

#: Called on the user's thread after every wait; may raise at the user's line. None: off.
after_wait: Callable[[], None] | None = None

#: For operations on tiny arrays. apart: a listener needs every event, which disables the fast path.
#: all_in_one: otherwise, a listener wants the single event `small`.
apart = all_in_one = False

_kept_apart = False

#: Does a listener want `issue` and `issued`?
issuing = False

#: The events that `small` replaces.
_PARTS = ("push", "ready", "start", "alloc", "end")

#: For each event, the listeners that override its method, and the method.
_told: dict[str, list[tuple[Instrument, Callable[..., None]]]] = {}

#: Messages about dropped listeners, for `tell_dropped`.
dropped: deque[str] = deque()


class Instrument:
    """Hears nothing until methods are overridden. `task` is an engine Task (its name, site, ctx,
    reads and writes can be read); times are not given."""

    def push(self, task: Any) -> None:
        """A task entered the engine."""

    def ready(self, task: Any) -> None:
        """Nothing that the task depends on is pending any more; the task waits for a worker."""

    def start(self, task: Any, worker: str) -> None:
        """A worker begins to run the task ("caller": inline on the thread that issued it)."""

    def issue(self, task: Any, lane: Any) -> None:
        """On the worker of a GPU's lane: from now on work on the lane's stream is the task's."""

    def issued(self, task: Any, lane: Any) -> None:
        """All work of the task is on the stream of its lane."""

    def share(
        self, task: Any, pieces: int, begin_ns: int, own: int, over_ns: int, late: bool
    ) -> None:
        """A part of the task that was cut into pieces is over. Its own worker took `own` pieces,
        until `over_ns`; workers that were idle at its beginning took the others, or with `late`
        also workers that became idle meanwhile."""

    def end(self, task: Any, failure: Any) -> None:
        """The task is complete; `failure` is None, or why the task failed or was skipped."""

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Callable[[], Any], begin_ns: int,
        end_ns: int,
    ) -> None:  # fmt: skip
        """An operation on tiny arrays was computed where it was issued, without a task: push,
        ready, start, alloc (of all of `writes`) and end in one event, which costs a fraction. Used
        only while every listener of one of these events has this method too."""

    def wait(self, kind: str, target: Any, site: Site | None, begin_ns: int, end_ns: int) -> None:
        """A user thread waited (`kind`: asnumpy, wait_to_read, waitall, backpressure, ...)."""

    def alloc(self, ctx: Context, nbytes: int, var: Any) -> None:
        """An array's memory was allocated: that of `var` (its `pool` has the counts)."""

    def free(self, ctx: Context, nbytes: int, serial: int) -> None:
        """An array's memory was given back to the pool. `serial` is its Var's, 0 if no trace knows
        the Var."""

    def role(self, var: Any, role: str) -> None:
        """The memory of `var` has a role in training: "weights", "gradients" or "optimizer state"
        (`device.roles`)."""

    def copied(self, array: Any) -> None:
        """The program got a NumPy array with a copy of an NDArray's contents."""

    def tell(self, token: int) -> None:
        """The calling thread passes on what it knows, under a number: see `threads`."""

    def told(self, token: int, kind: str) -> None:
        """The calling thread learns what another thread knew when it told this number; `kind`:
        start, join, result, wait."""


_EVENTS = {name: method for name, method in vars(Instrument).items() if not name.startswith("_")}

AnyInstrument = TypeVar("AnyInstrument", bound=Instrument)


def add(listener: Instrument) -> None:
    """Add `listener`."""
    _replace((*listeners, listener))


def remove(listener: Instrument) -> None:
    """Remove `listener`; ignored if it was not added."""
    _replace(tuple(other for other in listeners if other is not listener))


def _replace(new: tuple[Instrument, ...]) -> None:
    global listeners, apart, all_in_one, issuing, _told
    told: dict[str, list[tuple[Instrument, Callable[..., None]]]] = {}
    for event, unheard in _EVENTS.items():
        methods = [(listener, getattr(listener, event)) for listener in new]
        told[event] = [
            (method, tell)
            for method, tell in methods
            if getattr(tell, "__func__", None) is not unheard
        ]
    content = [listener for listener, _ in told["small"]]
    listeners, _told = new, told
    apart = _kept_apart or any(other not in content for part in _PARTS for other, _ in told[part])
    all_in_one = bool(content)
    issuing = bool(told["issue"] or told["issued"])
    threads.follow(emit if told["tell"] or told["told"] or told["wait"] else None)


def keep_apart(on: bool) -> None:
    """Disable the fast path for all operations, regardless of listeners; False ends that."""
    global _kept_apart
    _kept_apart = on
    _replace(listeners)


@scope
def listening(undo: Undo, listener: AnyInstrument) -> AnyInstrument:
    """A scope in which `listener` hears all events."""
    undo.append(partial(remove, listener))
    add(listener)
    return listener


def emit(event: str, *args: Any) -> None:
    """Call the event's method of every listener. A listener that raises is removed, and the next
    wait warns of it: the engine may be inside a transition, where no code could catch the error."""
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
    """Warn of listeners that raised; called on the user's thread, after waits."""
    while dropped:
        callsite.warn(dropped.popleft())


_replace(())
