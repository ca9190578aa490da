"""The serial engine: every task runs at its push, on the caller's thread, in program order.

Same interface, same rules, same results to the bit; nothing overlaps. The tests use it as their
oracle and readers as their debugger: a breakpoint or a traceback is at the line that issued the
work. Errors are still raised by waits, as on the other engines.
"""

from __future__ import annotations

import threading
from collections import deque

from d2lmini.base import callsite
from d2lmini.engine.core import Task
from d2lmini.engine.engine import Engine


class NaiveEngine(Engine):
    """Runs each task before `push` returns. A task pushed by a task runs after it."""

    kind = "naive"

    def __init__(self, limit: int | None = None):
        super().__init__(0.0, limit)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._ready: deque[Task] = deque()
        self._serial = threading.RLock()

    def push(self, task: Task) -> None:
        if self._is_for_later(task):
            return
        task.site = task.site or callsite.find()
        task.prepare()
        with self._serial:
            self._enter(task)
            self._work_off()

    def _work_off(self) -> None:
        with self._serial:
            self._run_ready()

    def _run_ready(self) -> None:
        while self._ready and not self.running:
            task = self._ready[0]
            if task in self.pending:
                self._run_here(task)
            if self._ready and self._ready[0] is task:
                self._ready.popleft()

    def _hand_out(self, task: Task) -> None:
        self._ready.append(task)

    def _dispatched(self) -> set[Task]:
        return set(self._ready)
