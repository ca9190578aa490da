"""What the threads of a program learn from each other: starts, joins, futures, events and queues.

A thread that joins another knows that the other's waits are over; so does a thread that gets the
result of a future, or that an event or a queue has woken. To the engine such a thread seems never
to have waited. While anything listens to the engine, the functions of the standard library that
pass such knowledge on are replaced, and report both ends (`Instrument.tell`, `Instrument.told`):

    Thread.start, Executor.submit    to the new thread, or to the work in a pool's thread
    Thread.join, Future.result       from the thread that ended, or from the work that is done
    Condition.notify and wait        from the thread that notifies: under Event, Queue, Barrier, ...

>>> import threading
>>> from d2lmini.base import instrument
>>> class Print(instrument.Instrument):
...     def told(self, token, kind):
...         print(kind)
>>> with instrument.listening(Print()):
...     thread = threading.Thread(target=int)
...     thread.start()
...     thread.join()
start
join

They also know the line that started a thread or gave a pool its work. It stands for a thread that
runs no line of the program, as in `executor.map(float, losses)`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from d2lmini.base import callsite

#: Reports an event of `Instrument`.
_report: Callable[..., None] | None = None
_tokens = count(1)
#: The functions that were replaced: (class, name, function or None if the class inherits it).
_replaced: list[tuple[Any, str, Any]] = []
#: For threads and futures a list that gets the token of their end; for conditions the last token.
_ends: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()


def follow(report: Callable[..., None] | None) -> None:
    """Report from now on what threads tell each other; None: no longer."""
    global _report
    _report = report
    if report is None:
        while _replaced:
            owner, name, own = _replaced.pop()
            if own is not None:
                setattr(owner, name, own)
            elif name in vars(owner):  # inherited; not there if Ctrl-C came before it was set
                delattr(owner, name)
    if report is None or _replaced:
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    methods: list[tuple[Any, str, Any]] = [
        (threading.Thread, "start", _start),
        (threading.Thread, "join", _join),
        (threading.Condition, "notify", _notify),
        (threading.Condition, "wait", _wait),
        (ThreadPoolExecutor, "submit", _submit),
        (Future, "result", _result),
    ]
    for owner, name, function in methods:
        original = getattr(owner, name)
        _replaced.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, _method(function, original))


def _method(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls `function` with the original method first."""

    @wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(original, self, *args, **kwargs)

    return method


def _tell() -> int:
    """The calling thread passes on what it knows now; the token by which others learn it."""
    token = next(_tokens)
    if _report is not None:
        _report("tell", token)
    return token


def _told(tokens: list[int] | None, kind: str) -> None:
    """The calling thread learns what was told under the tokens."""
    for token in tokens or ():
        if _report is not None:
            _report("told", token, kind)


def _run(
    begin: list[int], end: list[int], origin: Any, function: Callable[..., Any], *args: Any
) -> Any:
    """Do the work of a thread, or a piece of a pool's work; `origin` is the line that gave it."""
    _told(begin, "start")
    try:
        return callsite.call_with_origin(origin, function, *args)
    finally:
        end.append(_tell())


def _start(original: Any, self: threading.Thread) -> None:
    if callsite.is_ours(sys._getframe(2)):  # this package's own threads serve the whole program
        original(self)
        return
    begin, end, origin, run = [_tell()], [], callsite.find(), self.run  # type: ignore[var-annotated]

    def run_once() -> None:
        # It is gone already if a start failed for want of threads and this is the next try.
        vars(self).pop("run", None)
        _run(begin, end, origin, run)

    self.run = run_once  # type: ignore[method-assign]
    _ends[self] = end
    original(self)


def _join(original: Any, self: threading.Thread, timeout: float | None = None) -> None:
    original(self, timeout)
    if not self.is_alive():
        _told(_ends.get(self), "join")


def _submit(original: Any, self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    end: list[int] = []
    work = (lambda: fn(*args, **kwargs)) if kwargs else fn
    future = original(self, _run, [_tell()], end, callsite.find(), work, *(() if kwargs else args))
    _ends[future] = end
    return future


def _result(original: Any, self: Any, timeout: float | None = None) -> Any:
    try:
        return original(self, timeout)
    finally:
        _told(_ends.get(self), "result")


def _notify(original: Any, self: threading.Condition, n: int = 1) -> None:
    # A thread that is about to begin tells its starter so before `current_thread()` knows it.
    if threading.get_ident() in threading._active:  # type: ignore[attr-defined]
        _ends[self] = [_tell()]
    original(self, n)


def _wait(original: Any, self: threading.Condition, timeout: float | None = None) -> bool:
    notified: bool = original(self, timeout)
    if notified:
        _told(_ends.get(self), "wait")
    return notified
