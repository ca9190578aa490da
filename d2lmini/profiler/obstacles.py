"""What keeps two operations of a trace from running side by side, in every legal schedule.

>>> from d2lmini import engine, nd, profile
>>> with engine.use("threaded", inline_below=0), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     y.wait_to_read()
...     z = nd.tanh(x)
>>> obstacles = Obstacles(trace)
>>> obstacles.between(trace[1], trace[2]), obstacles.between(trace[2], trace[3])
('needs', 'waits')

The second needs the result of the first. The third is free of the second by its data, but the
program issued it only after it had waited for the second. A wait counts for the thread that waited,
and for each thread that learned from it (`profiler.outside`): by joining it, from its future, or
from an event, also from one that a pushed function sets.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from d2lmini.profiler.outside import Notice
from d2lmini.profiler.records import Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


class Obstacles:
    """Answers for one trace; `without` are lines whose waits do not count."""

    def __init__(self, trace: Trace, without: frozenset[str] = frozenset()):
        self.trace = trace
        self.without = without
        self._tellers = {notice.operation for notice in trace.notices if notice.operation}
        self._knows = cache(self._find_who_knows)
        self._woken_after = cache(self._find_woken)

    def between(self, x: Operation, y: Operation) -> str:
        """Why `y`, issued after `x`, cannot run beside it: "needs", "room", "waits", "inline",
        "worker", or "stream" in a trace of another library; "" if it can."""
        trace = self.trace
        if trace.lacks and x.worker == y.worker and not x.inline:
            return "stream"
        if trace.ordered(x.number, y.number):
            return "needs" if self.path(x.number, y.number, by_value=True) else "room"
        if self.wait_between(x, y) is not None:
            return "waits"
        if x.inline and x.thread == y.thread:
            return "inline"
        return "worker" if x.place == y.place and trace.workers.get(x.place, 1) < 2 else ""

    def path(self, x: int, y: int, by_value: bool) -> list[int]:
        """A shortest chain of direct dependencies from operation `x` to `y`, by values alone if
        asked; empty if there is none."""
        trace = self.trace
        after = {y: 0}
        todo = [y]
        for number in todo:
            for other in trace.needs(number) + (() if by_value else trace.makes_room(number)):
                if other >= x and other not in after:
                    after[other] = number
                    todo.append(other)
            if x in after:
                break
        path = [x] if x in after else []
        while path and path[-1] != y:
            path.append(after[path[-1]])
        return path

    def wait_between(self, x: Operation, y: Operation) -> Wait | Notice | None:
        """By what the thread of `y` knew, before it issued `y`, that `x` was over: a wait, or what
        another thread told it; None: it did not know."""
        for i, wait in enumerate(self.trace.waits):
            if x.number <= wait.pushed < y.number and self._is_for(wait, x):
                if self.without and wait.where in self.without:
                    continue
                since, _ = self._knows(i).get(y.thread, (y.number, None))
                if since < y.number:
                    return wait
        if self._tellers:
            since, notice = self._woken_after(x.number).get(y.thread, (y.number, None))
            if since < y.number:
                return notice
        return None

    def _is_for(self, wait: Wait, x: Operation) -> bool:
        """Is `x`, issued before the wait, over when the wait is?"""
        if wait.target is None:
            return wait.kind != "backpressure"
        touched = x.reads + x.writes if wait.kind == "wait_to_write" else x.writes
        if wait.target in touched or wait.operation == x.number:
            return True
        return x.number < wait.operation and self.trace.ordered(x.number, wait.operation)

    def _find_who_knows(self, i: int) -> dict[str, tuple[int, Notice | None]]:
        """The threads that know of the end of wait `i`, and since how many pushes."""
        wait = self.trace.waits[i]
        return self.trace.knows_since(wait.thread, i + 1, wait.pushed)

    def _find_woken(self, x: int) -> dict[str, tuple[int, Notice | None]]:
        """The threads that an operation woke which runs only when operation `x` is over."""
        ordered = self.trace.ordered
        after = frozenset(n for n in self._tellers if n == x or (n > x and ordered(x, n)))
        return self.trace.knows_since("", operations=after) if after else {}

    # -- waits that cannot block -------------------------------------------------------------------

    def blocking_waits(self) -> list[Wait]:
        """The waits of the program that could block: all but those for what the same thread has
        waited for already."""
        found: list[Wait] = []
        earlier: dict[str, list[Wait]] = {}
        for wait in self.trace.waits:
            if wait.kind == "backpressure":
                continue
            before = earlier.setdefault(wait.thread, [])
            if not any(self._covers(other, wait) for other in before):
                found.append(wait)
                before.append(wait)
        return found

    def _covers(self, other: Wait, wait: Wait) -> bool:
        """Is all that `wait` waits for over since `other`, an earlier wait of the thread?"""
        if wait.target is None or wait.kind == "wait_to_write":
            return other.target is None and other.pushed >= wait.pushed
        copy = own_copy(self.trace, wait)
        numbers = (self.trace.needs(copy) or (0,)) if copy else (wait.operation,)
        if other.target is None:
            return other.pushed >= max(numbers)
        if not max(numbers):
            return other.target == wait.target
        return all(n <= other.pushed and self._is_for(other, self.trace[n]) for n in numbers if n)


def own_copy(trace: Trace, wait: Wait) -> int:
    """The number of the copy to the host that a wait made itself, to read an array of a device; 0
    if it made none."""
    if not wait.operation or wait.operation != wait.pushed:
        return 0
    last = trace[wait.operation]
    return last.number if last.is_copy and last.site == wait.site else 0
