"""The thread that updates live widgets, ten times a second.

    refresher.add(widget)         widget.beat() is called at every beat from now on
    refresher.remove(widget)      and not any more; a garbage-collected widget is removed, too
    refresher.call(job)           job() is called once on this thread, soon

A message costs 0.4 ms whether it carries one event or a thousand, so events between two beats are
sent together, and one thread serves all widgets. The thread starts when there is work and ends when
there is none; a forked child begins without the thread.

>>> import threading
>>> from d2lmini.widgets import refresher
>>> done = threading.Event()
>>> refresher.call(done.set)
>>> done.wait(10)
True
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from d2lmini.base import callsite, forks

#: Seconds between two beats: fast enough for the eye, a tenth of what a browser can handle.
PERIOD_S = 0.1

NAME = "d2lmini-refresher"


class Refresher:
    """The live widgets, the pending calls, and the thread that serves both.

    A widget that raises gets no more updates; the next `add` of a user's thread warns about it.
    """

    def __init__(self) -> None:
        self._begin_anew()
        atexit.register(self.stop)
        forks.at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._widgets: weakref.WeakSet[Any] = weakref.WeakSet()
        self._jobs: deque[Callable[[], object]] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ending = False
        self._problems: deque[str] = deque()

    def add(self, widget: Any) -> None:
        """Call `widget.beat()` at every beat, as long as the widget lives."""
        while self._problems:
            callsite.warn(self._problems.popleft())
        with self._lock:
            self._widgets.add(widget)
            self._start()

    def remove(self, widget: Any) -> None:
        """Stop calling `widget.beat()`. A call in progress may still finish."""
        with self._lock:
            self._widgets.discard(widget)
        self._wake.set()

    def call(self, job: Callable[[], object]) -> None:
        """Call `job()` once, soon, between two beats; may be called on any thread."""
        with self._lock:
            self._jobs.append(job)
            self._start()
        self._wake.set()

    def stop(self, patience_s: float = 1.0) -> None:
        """End the thread and forget everything; called at exit of the process."""
        with self._lock:
            self._widgets.clear()
            self._jobs.clear()
            thread, self._ending = self._thread, True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience_s)
        self._ending = False

    def running(self) -> bool:
        """True if the thread runs."""
        return self._thread is not None

    def _start(self) -> None:
        if self._thread is None and not self._ending:
            self._thread = threading.Thread(target=self._work, name=NAME, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is ending
                self._thread = None

    def _work(self) -> None:
        due = time.monotonic()
        while True:
            self._do_jobs()
            if time.monotonic() >= due:
                self._beat()
                due = time.monotonic() + PERIOD_S
            with self._lock:
                idle = not self._widgets
                if idle and not self._jobs:
                    self._thread = None
                    return
            self._wake.wait(0 if idle else max(0.0, due - time.monotonic()))
            self._wake.clear()

    def _do_jobs(self) -> None:
        while self._jobs:
            try:
                self._jobs.popleft()()
            except IndexError:  # `stop` emptied the queue first
                return
            except Exception as problem:
                self._problems.append(f"a widget's answer to its view failed: {problem!r}")

    def _beat(self) -> None:
        with self._lock:
            widgets = list(self._widgets)
        while widgets:
            widget = widgets.pop()
            try:
                widget.beat()
            except Exception as problem:
                name = type(widget).__name__
                self._problems.append(f"{name} raised {problem!r} and is kept up to date no more")
                self.remove(widget)


_refresher = Refresher()
add, remove, call = _refresher.add, _refresher.remove, _refresher.call
stop, running = _refresher.stop, _refresher.running
