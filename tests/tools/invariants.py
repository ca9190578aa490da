"""The invariants of `engine/core.py`, asserted over everything that is pending."""

from __future__ import annotations

from d2lmini import engine
from d2lmini.engine import core


def check_invariants() -> None:
    """AssertionError if an invariant does not hold on the present engine."""
    current = engine.current
    with core.lock:
        current.budget.drain()
        in_line = {*current.pending, *current.wait_requests}
        for var in {v for t in in_line for v in (*t.shared, *t.writes)}:
            assert var.writer is None or not var.readers, "I1: a writer together with readers"
            assert not var.queue or var.writer or var.readers, "I2: a queue without a holder"
            if var.queue:
                assert var.queue[0][1] or var.writer, "I3: the head could be granted"
            there = {*var.readers, *(task for task, _ in var.queue)}
            assert there <= in_line, "a task in line is not pending"
            assert var.writer is None or var.writer in in_line, "a writer is not pending"
        for task in in_line:
            missing = core.count_missing(task)
            assert task.waits == missing, "I4: a wrong count of Vars not granted"
        assert current.running <= current.pending, "I6: a running task is not pending"
        _check_bytes(current)


def _check_bytes(current: engine.Engine) -> None:
    """The counts of pending bytes agree with a count from scratch over all pending tasks."""
    pending = 0
    for var in {v for t in current.pending for v in (*t.shared, *t.writes) if v.weight}:
        assert var.pins, "a queued task has not pinned its memory"
        if not (var.filled and var.held):
            pending += var.weight
    counted = current.budget.pending
    assert counted == pending, f"{counted} bytes counted, {pending} pending"
