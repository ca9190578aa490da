"""Pending work: how much there is, who waits for whom, and how tasks leave that were cancelled.

>>> from d2lmini import engine
>>> engine.explain(engine.new_var())
'idle: nothing pending'

A cancelled task that has not begun leaves its Vars at once: no worker has to take it, and it waits
for no other task. There is one exception. A task that changes what a running task writes ends after
that task, so that its failure is not overwritten by the result of the running task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from d2lmini.base import callsite
from d2lmini.engine import core
from d2lmini.engine.core import Task, Var, WaitRequest

if TYPE_CHECKING:
    from d2lmini.engine.scheduler import Scheduler

#: `describe_work` names so many running tasks.
MOST_NAMED = 4


def describe(task: Task, more: str = "") -> str:
    """The task and the line that issued it, and `more`."""
    return f"{task.name} (issued at {callsite.describe(task.site)}{more})"


def explain(var: Var) -> str:
    """The tasks that hold or wait for `var`, one on each line."""
    with core.lock:
        writer, queue = var.writer, list(var.queue)
        readers = sorted(var.readers, key=lambda task: task.seq)
    lines = [f"writing: {_describe_wait(writer)}"] if writer else []
    lines += [f"reading: {_describe_wait(task)}" for task in readers]
    lines += [f"waits to {'write' if w else 'read'}: {_describe_wait(t)}" for t, w in queue]
    return "\n".join(lines) or "idle: nothing pending"


def _describe_wait(task: Task) -> str:
    waits = f", waiting for {task.waits} more" if task.waits else ""
    return describe(task, waits)


def describe_work(engine: Scheduler) -> str:
    """What is queued and what runs; "" if nothing is pending."""
    queued, running = _split(engine)
    lines = []
    if queued:
        count = "1 operation" if len(queued) == 1 else f"{len(queued)} operations"
        lines.append(f"{count} still queued; engine.cancel_pending() drops them")
    lines += [f"still running: {describe(task)}" for task in running[:MOST_NAMED]]
    return "\n".join(f"d2lmini: {line}" for line in lines)


def _split(engine: Scheduler) -> tuple[list[Task], list[Task]]:
    """The tasks that have not begun, and those that run, in push order."""
    with engine.lock:
        tasks = sorted(engine.pending, key=lambda task: task.seq)
        begun = set(engine.running)
    return [task for task in tasks if task not in begun], [task for task in tasks if task in begun]


def find_unstoppable(engine: Scheduler) -> list[Task]:
    """The user's functions that run now: nothing tells whether they ever end."""
    return [task for task in _split(engine)[1] if not task.defers]


def drop_cancelled(engine: Scheduler) -> list[Task]:
    """Settle the cancelled tasks that have not begun and take them from their Vars (lock held).
    Returns the tasks and waits that may go on."""
    written = {var for task in engine.running for var in task.writes}
    waiting = [task for task in engine.pending if task not in engine.running]
    dropped = [task for task in waiting if written.isdisjoint(task.writes)]
    dropped.sort(key=lambda task: task.seq)
    ready: list[Task] = []
    for task in dropped:
        engine._settle(task, task.cancelled, False)
        ready += core.withdraw(task)
    return [task for task in ready if task in engine.pending or isinstance(task, WaitRequest)]
