"""The names that are replaced while programs run under the scheduler, and put back afterwards.

`threading.Lock`, `queue.Queue`, `time.sleep` and so on are replaced in their own modules; names
that a module under test has imported from there, and the locks among its globals, in that module.
Threads that no exploration controls get the real thing from the replaced names.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

from d2lmini.interleavings import primitives, queues
from d2lmini.interleavings.controlled import CLOCK, ControlledThread, current
from d2lmini.interleavings.primitives import REAL

_CLASSES: dict[str, Any] = {
    name: getattr(queues if hasattr(queues, name) else primitives, name) for name in REAL
}
_Thread = threading.Thread
_init, _start, _join, _is_alive = (
    _Thread.__init__, _Thread.start, _Thread.join, _Thread.is_alive,
)  # fmt: skip
_REAL_LOCKS = {type(threading.Lock()): "Lock", type(threading.RLock()): "RLock"}


class _Flag:
    """What a `Thread` notes its start in."""

    def __init__(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True


# -- threads ---------------------------------------------------------------------------------------


def _init_thread(self: Any, *args: Any, **kwargs: Any) -> None:
    here = current()
    if here is not None:
        # Sets of threads, as an executor has one, must have the same order in each run.
        here.run.hashes += 1
        self._hash = here.run.hashes
    _init(self, *args, **kwargs)
    if here is not None:
        self._started = _Flag()


def _hash(self: Any) -> int:
    known: int | None = vars(self).get("_hash")
    return object.__hash__(self) if known is None else known


def _start_thread(self: Any) -> None:
    here = current()
    if here is None:
        _start(self)
        return
    if _find_controlled(self) is not None:
        raise RuntimeError("threads can only be started once")
    here.step("starts", self, uses=((("threads",), True),))
    thread = ControlledThread(here.run, self, self.run)
    thread.born = len(here.run.trace) - 1
    here.run.trace[-1].operation.target = thread
    here.run.threads.append(thread)
    here.run.unfinished += not self.daemon
    thread.begin()


def _find_controlled(self: Any) -> ControlledThread | None:
    """The controlled thread that runs for a `Thread`."""
    found: ControlledThread | None = vars(self).get("_controlled")
    return found


def _join_thread(self: Any, timeout: float | None = None) -> None:
    here, thread = current(), _find_controlled(self)
    if here is None or (thread is None and self._started.is_set()):
        if thread is None:
            _join(self, timeout)
        return
    if thread is None:
        raise RuntimeError("cannot join thread before it is started")
    if thread is here:
        raise RuntimeError("cannot join current thread")
    limit = None if timeout is None else max(timeout, 0)
    here.step("joins", thread, lambda late: late or thread.finished, limit, ((thread.key, False),))


def _is_thread_alive(self: Any) -> bool:
    here, thread = current(), _find_controlled(self)
    if thread is None:
        return _is_alive(self) if self._started.is_set() else False
    if here is not None and here.run is thread.run:
        here.step("looks at", thread, uses=((thread.key, False),))
    return not thread.finished


# -- time ------------------------------------------------------------------------------------------


class _Clock:
    key, owner = CLOCK, None

    def __str__(self) -> str:
        return "the clock"


_clock = _Clock()
_sleep = time.sleep


def _sleep_virtually(seconds: float) -> None:
    thread = current()
    if thread is None:
        _sleep(seconds)
    elif seconds > 0:
        step = thread.step(f"sleeps {seconds:g} s", _clock, bool, seconds, uses=())
        step.result = f"it is {thread.run.now:g} s"
    elif seconds < 0:
        raise ValueError("sleep length must be non-negative")
    else:
        thread.step("yields", _clock, uses=())


def _virtual(original: Callable[[], Any], scale: int | float) -> Callable[[], Any]:
    """A clock that shows controlled threads the virtual time, in units of 1 / `scale` s."""

    def read() -> Any:
        thread = current()
        if thread is None:
            return original()
        if thread.run.any_time:
            thread.step("reads", _clock, uses=((CLOCK, False),))
        return type(scale)(thread.run.now * scale)

    return read


_CLOCKS: dict[str, Any] = {
    name: _virtual(getattr(time, name), 10**9 if name.endswith("_ns") else 1.0)
    for name in ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns")
}


# -- the scope -------------------------------------------------------------------------------------

_NAMES: list[tuple[Any, str, Any]] = [
    *[(queue if hasattr(queue, name) else threading, name, _CLASSES[name]) for name in REAL],
    (time, "sleep", _sleep_virtually),
    *[(time, name, clock) for name, clock in _CLOCKS.items()],
    (_Thread, "__init__", _init_thread),
    (_Thread, "__hash__", _hash),
    (_Thread, "start", _start_thread),
    (_Thread, "join", _join_thread),
    (_Thread, "is_alive", _is_thread_alive),
]
#: Count the names of threads.
_COUNTERS = (threading, "_counter"), (ThreadPoolExecutor, "_counter")
_BY_ORIGINAL = {
    id(getattr(owner, name)): new for owner, name, new in _NAMES if owner is not _Thread
}


@contextmanager
def patched(namespaces: Iterable[dict[str, Any]]) -> Iterator[None]:
    """Replace the names in the scope, also in the global `namespaces` of the code under test."""
    changed: list[tuple[Any, str, Any]] = [
        (owner, name, getattr(owner, name)) for owner, name in _COUNTERS
    ]
    try:
        for owner, name, new in _NAMES:
            changed.append((owner, name, getattr(owner, name)))
            setattr(owner, name, new)
        for namespace in namespaces:
            for name, value in list(namespace.items()):
                new = _BY_ORIGINAL.get(id(value)) or _replace_object(value, name)
                if new is not None:
                    changed.append((namespace, name, value))
                    namespace[name] = new
        yield
    finally:
        for owner, name, value in reversed(changed):
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)


def number_names() -> None:
    """Let the default names of threads count from the start again, so that runs repeat them."""
    threading._counter = count(1).__next__  # type: ignore[attr-defined]
    ThreadPoolExecutor._counter = count().__next__  # type: ignore[attr-defined]


def _replace_object(value: Any, name: str) -> Any:
    """A controlled object in place of a real lock, event, ... that is the global `name` of a
    module; None if `value` is nothing of the kind."""
    kind = _REAL_LOCKS.get(type(value), type(value).__name__)
    if kind not in REAL or (REAL[kind] is not type(value) and type(value) not in _REAL_LOCKS):
        return None
    new = object.__new__(_CLASSES[kind])
    if kind == "Condition":
        new.__init__(_replace_object(value._lock, name))
    elif kind.endswith("Semaphore"):
        new.__init__(value._value)
    elif "Queue" in kind and kind != "SimpleQueue":
        new.__init__(value.maxsize)
    else:
        new.__init__()
    new.label = name
    return new
