"""The serial twin: every task runs at its push, on the caller's thread, in program order.

Same interface, same rules, same results to the bit; nothing overlaps. It is the oracle of the
tests and the reader's debugger: a breakpoint or a traceback is at the line that issued the work.
Errors still wait for the wait that meets them, as on the other engines.
"""

from __future__ import annotations

import threading
from collections import deque

from d2lmini.engine.core import Gate, Task
from d2lmini.engine.engine import Engine


class NaiveEngine(Engine):
    """Runs each task before `push` returns. A task pushed by a task runs after it."""

    kind = "naive"

    def __init__(self, limit: int | None = None):
        super().__init__(0.0, limit)
        self._ready: deque[Task] = deque()
        self._serial = threading.RLock()
        self._running = False

    def push(self, task: Task) -> None:
        with self._serial:
            self._enter(task)
            if self._running:
                return
            self._running = True
            try:
                while self._ready:
                    task = self._ready.popleft()
                    self._begin(task)
                    self._run(task, "caller")
            finally:
                self._running = False

    def _dispatch(self, ready: list[Task]) -> None:
        for task in ready:
            if isinstance(task, Gate):
                task.opened.release()
            else:
                self._ready.append(task)

    def _undispatch(self, task: Task) -> None:
        if task in self._ready:
            self._ready.remove(task)

    def stop(self) -> None:
        """Nothing to stop."""
