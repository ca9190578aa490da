"""What went wrong in a run, in words."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from d2lmini.interleavings.controlled import ControlledThread
    from d2lmini.interleavings.scheduler import Run


class Failure(NamedTuple):
    """What went wrong: the kind ("deadlock", "exception", "no end" or "no step"), and the words."""

    kind: str
    message: str
    error: BaseException | None = None

    @property
    def sort(self) -> object:
        """Two failures of the same sort are taken to have the same cause."""
        return self.kind, type(self.error)


def describe_error(thread: ControlledThread, error: BaseException) -> Failure:
    """An exception that ended a thread."""
    words = "".join(traceback.format_exception_only(type(error), error)).strip()
    return Failure("exception", f"{thread}: {words}", error)


def describe_block(run: Run) -> Failure:
    """All threads wait: who holds what, who waits for what."""
    waits = {thread: thread.pending.target for thread in run.threads if thread.pending is not None}
    lines = [_describe_wait(thread) for thread in waits]
    circle = _find_circle(waits)
    if circle:
        names = " -> ".join(map(str, [*circle, circle[0]]))
        lines.append(f"they wait for each other in a circle: {names}")
    else:
        lines.append("no thread is left that could wake them")
    return Failure("deadlock", "\n".join(["all threads are blocked", *lines]))


def _describe_wait(thread: ControlledThread) -> str:
    operation = thread.pending
    assert operation is not None, "a thread that waits has an operation"
    target = operation.target
    owner = getattr(target, "owner", None)
    held = f", which {owner} holds" if owner is not None and owner is not thread else ""
    holds = " and ".join(map(str, thread.holds))
    return f"  {thread} waits at {operation.site}: {operation.what} {target}{held}" + (
        f"; {thread} holds {holds}" if holds else ""
    )


def _find_circle(waits: dict[ControlledThread, Any]) -> list[ControlledThread]:
    """Threads that each wait for the next one; empty if there are none."""
    for first in waits:
        way: list[ControlledThread] = []
        thread: Any = first
        while thread in waits and thread not in way:
            way.append(thread)
            target = waits[thread]
            thread = target if target in waits else getattr(target, "owner", None)
        if thread in way:
            return way[way.index(thread) :]
    return []


def describe_no_end(run: Run) -> Failure:
    """The run has come to the bound on steps."""
    lines = [f"the program has not ended after {len(run.trace)} steps"]
    for thread in run.threads:
        if thread.pending is None:
            continue
        lines.append(
            f"  {thread} has taken {thread.steps} steps, and waits since step {thread.since}"
            f" at {thread.pending.site}: {thread.pending.what} {thread.pending.target}"
        )
    late = run.trace[len(run.trace) // 2 :]
    names = dict.fromkeys(str(step.thread) for step in late)
    lines.append(f"the last {len(late)} steps were taken by {' and '.join(names)}")
    return Failure("no end", "\n".join(lines))


def describe_hang(run: Run) -> Failure:
    """No step has ended for long."""
    step = run.trace[-1]
    frame = sys._current_frames().get(step.thread.ident)
    where = "" if frame is None else f"\n{''.join(traceback.format_stack(frame)[-3:])}"
    return Failure(
        "no step",
        f"{step.thread} has taken no step for {run.bounds.patience_s:g} s: it computes, or "
        "it blocks on something that was made before the exploration. Make locks and threads "
        f"in the program, or name their module in `modules`{where.rstrip()}",
    )
