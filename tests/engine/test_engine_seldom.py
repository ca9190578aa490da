"""What the engines do seldom: call helpers, drop the work of a parent, end with a task running."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from worlds import all_asleep, until

from d2lmini import MXNetError, engine
from d2lmini.engine import core
from d2lmini.engine.core import FunctionTask, Task
from d2lmini.engine.stepped_engine import LINK_BYTES_PER_US, duration_of, predict_us


def test_a_fork_drops_the_tasks_of_the_parent():
    """What the child does, done here: nothing has begun, so nothing is lost."""
    with engine.stepped() as s:
        a, b = engine.new_var(), engine.new_var()
        engine.push(int, writes=[a], name="first")
        engine.push(int, reads=[a], writes=[b], name="second")
        s.after_fork()
        assert a.idle and b.idle and not s.pending and engine.stats().pushed == 0
        for var, name in ((a, "first"), (b, "second")):
            with pytest.raises(MXNetError, match=f"{name}: pending at fork") as caught:
                engine.wait_for_var(var)
            assert f'name="{name}")' in str(caught.value), "the line that issued it"
        engine.push(int, writes=[b], name="third")
        assert list(s.operations) == [3], "the numbers go on"
        engine.waitall()


# -- workers ---------------------------------------------------------------------------------------


def test_idle_workers_are_called_to_help():
    came = threading.Semaphore(0)
    job = SimpleNamespace(taken=True, work=came.release)
    with engine.use("threaded", workers=3) as current:
        assert current.helpers(2, job) == 2
        assert came.acquire(timeout=30) and came.acquire(timeout=30)
        until(all_asleep)
        assert current.helpers(9, job) == 3 and current.helpers(0, job) == 0
        current.end_sharing(job), current.end_sharing(job)
        with pytest.raises(ValueError, match="not in list"):
            current.end_sharing(job)
        assert current.helpers(0, job, late=True) == 0
        current.end_sharing(job)
        with core.lock:
            assert current.helpers(2, job) is None, "a helper would need the lock"
        current.stop()
        assert current.helpers(2, job) is None
    for kind, options in [("threaded", {"workers": 1}), ("naive", {}), ("stepped", {})]:
        with engine.use(kind, **options) as current:
            assert current.helpers(2, job, late=True) is None


def test_a_process_that_ends_stops_what_runs():
    running = threading.Event()

    def spin() -> None:
        while True:
            running.set()

    a = engine.new_var()
    with engine.use("threaded", workers=1) as current:
        engine.push(spin, writes=[a])
        assert running.wait(30)
        current.unwind(30)
        assert a.writer is None and not current.running
        with pytest.raises(MXNetError, match="spin: SystemExit"):
            engine.wait_for_var(a)
        engine.push(int, writes=[a])  # the worker lives on
        engine.waitall()


# -- the stepped engine's durations ----------------------------------------------------------------


class Copy(Task):
    lane = "in"
    bytes_moved: Any = 24_000

    def footprint(self) -> Any:
        moved = SimpleNamespace(nbytes=self.bytes_moved)
        return None if self.bytes_moved is None else lambda: moved


def test_the_duration_of_a_task():
    known, unknown = (FunctionTask(int, "f", (), (), predicted_us=us) for us in (7.0, 1e9))
    assert (predict_us(known), predict_us(unknown)) == (7, 100) and LINK_BYTES_PER_US == 12_000
    copy = Copy("copy", (), ())
    assert predict_us(copy) == 12
    copy.lane = "compute"  # type: ignore[misc]
    assert predict_us(copy) == 100
    nothing = type("Nothing", (Copy,), {"bytes_moved": None})("copy", (), ())
    assert predict_us(nothing) == 100
    assert duration_of(0)(known) == 0.0 and type(duration_of(3)(known)) is float
    for bad in (-1, float("inf"), float("nan"), "2", None):
        with pytest.raises(ValueError, match=f"times: f takes 0 or more microseconds, got {bad!r}"):
            duration_of(lambda task, bad=bad: bad)(known)
    for bad in (True, "slow", [1]):
        with pytest.raises(TypeError, match="times is microseconds"):
            duration_of(bad)
