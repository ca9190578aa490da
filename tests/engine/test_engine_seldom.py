"""What the engines do seldom: call helpers, drop a parent's work, end while a task runs, print."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from worlds import all_asleep, until

from d2lmini import MXNetError, engine
from d2lmini.engine import core


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


def test_the_table_of_a_stepped_engine():
    with engine.stepped(times={"fails": 5}, workers=1) as s:
        a = engine.new_var()
        engine.push(lambda: 1 / 0, writes=[a], name="fails")
        engine.push(int, reads=[a], name="reads")
        s.step(), s.step(), s.step()
        assert str(s).splitlines() == [
            "5 us: 1 failed, 1 running", "1 fails  failed   cpu  0 to 5 us",
            "2 reads  running  cpu  since 5 us",
        ]  # fmt: skip
        s.run()
        assert s.steps == 4 and s.now_us == 5, "a task that is skipped takes no time"
        with pytest.raises(MXNetError, match="fails: ZeroDivisionError"):
            engine.wait_for_var(a)
