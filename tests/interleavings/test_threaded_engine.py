"""The threaded engine itself, under schedules of its workers and of the threads that use it.

Each program makes an engine with two workers, pushes two to four tasks, waits, and compares what it
sees with serial execution. The engine's one lock and its threads are controlled; a step is an
operation on a lock or a thread. Three engines with a planted mistake show that such mistakes are
found.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from d2lmini import MXNetError
from d2lmini.engine import core, threaded, waits
from d2lmini.engine.core import FunctionTask, Var
from d2lmini.engine.threaded import ThreadedEngine
from d2lmini.interleavings import Exploration, access, explore

Make = Callable[[], ThreadedEngine]


def push(engine: ThreadedEngine, fn: Callable[[], object], reads=(), writes=()) -> None:
    """Push a task; what its function does is a step of its own."""

    def run() -> None:
        access("what the task uses", write=True)
        fn()

    engine.push(FunctionTask(run, "task", tuple(reads), tuple(writes)))


def conflicts(make: Make) -> None:
    """Two reads between two writes of one Var."""
    engine, x, log = make(), Var(), []
    push(engine, lambda: log.append("write"), writes=[x])
    push(engine, lambda: log.append("read"), reads=[x])
    push(engine, lambda: log.append("read"), reads=[x])
    push(engine, lambda: log.append("last"), writes=[x])
    engine.wait_all()
    assert log == ["write", "read", "read", "last"], log
    engine.stop()


def waits_between(make: Make) -> None:
    """A wait for one Var, while another task is pending, and a push after it."""
    engine, x, y, log = make(), Var(), Var(), []
    push(engine, lambda: log.append("x"), writes=[x])
    push(engine, lambda: log.append("y"), writes=[y])
    engine.wait("wait_to_read", x)
    assert "x" in log
    push(engine, lambda: log.append("both"), reads=[x, y])
    engine.wait("wait_to_write", x, write=True)
    assert sorted(log) == ["both", "x", "y"] and log[-1] == "both", log
    engine.stop()
    assert x.idle and y.idle


def failures(make: Make) -> None:
    """A task fails, what depends on it is skipped, the wait raises, and the engine goes on."""
    engine, x, y, log = make(), Var(), Var(), []

    def fail() -> None:
        raise ValueError("planned")

    push(engine, fail, writes=[x])
    push(engine, lambda: log.append("skipped"), reads=[x], writes=[y])
    with pytest.raises(MXNetError, match="planned"):
        engine.wait("wait_to_read", y)
    push(engine, lambda: log.append("after"), writes=[y])
    engine.wait_idle("wait")
    assert log == ["after"], log
    engine.stop()


def stops_early(make: Make) -> None:
    """The engine is told to stop while tasks are pending: they all run."""
    engine, x, y, log = make(), Var(), Var(), []
    push(engine, lambda: log.append("x"), writes=[x])
    push(engine, lambda: log.append("y"), reads=[x], writes=[y])
    engine.stop()
    engine.wait_all()
    assert log == ["x", "y"], log


def two_users(make: Make) -> None:
    """Two threads push to one Var and wait for it."""
    engine, x, log = make(), Var(), []

    def use(name: str) -> None:
        push(engine, lambda: log.append(name), reads=[x], writes=[x])
        engine.wait("wait_to_read", x)
        assert name in log, log

    other = threading.Thread(target=use, args=("other",), name="other")
    other.start()
    use("main")
    other.join()
    assert sorted(log) == ["main", "other"]
    engine.stop()


PROGRAMS = [conflicts, waits_between, failures, stops_early, two_users]


def explore_engine(
    program: Callable[[Make], None], kind: type[ThreadedEngine] = ThreadedEngine, **options
) -> Exploration:
    """`program` with engines of a kind; the module that holds the engine's lock is controlled."""
    make = partial(kind, workers=2, inline_below=0.0)

    def run() -> None:
        threaded._numbers = count()  # the workers have the same names each time
        program(make)

    return explore(run, modules=[core], **options)


@pytest.fixture(autouse=True)
def _keep_numbers(monkeypatch):
    monkeypatch.setattr(threaded, "_numbers", threaded._numbers)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_engine_equals_serial_execution_under_all_schedules_tried(program):
    found = explore_engine(program, schedules=300, steps=2000)
    assert found.failure is None, found
    assert found.schedules == 300


@pytest.mark.stress
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("timers", ["idle", "any"])
def test_the_engine_under_many_schedules(program, timers):
    found = explore_engine(
        program, schedules=30_000, seconds=100, steps=2000, timers=timers, seed=1
    )
    print(f"{program.__name__}, timers={timers!r}: {found}")
    assert found.failure is None, found


# -- engines with a mistake ------------------------------------------------------------------------


class WithoutNotify(ThreadedEngine):
    """An idle worker is given work and is not woken."""

    def _wake(self, pool, job=None):
        if pool.idle:
            pool.idle.pop().job = job
        else:
            super()._wake(pool, job)


class ChecksOutsideTheLock(ThreadedEngine):
    """A wait for everything looks whether tasks are pending, gives the lock back, and only then
    leaves the lock that the last task opens."""

    def _stand_idle(self, timeout_s):
        with core.lock:
            self.budget.drain()
            self._flush()
            pending = bool(self.pending)
        if pending:
            self._block(waits._make_shut_lock(self.idle_locks), None)
        return True


class ReleasesTooEarly(ThreadedEngine):
    """The Vars of a task are released before the task runs."""

    def _run(self, task, worker):
        fn, task.fn = task.fn, lambda: None
        super()._run(task, worker)
        fn()


@pytest.mark.parametrize(
    ("kind", "program", "failure", "words"),
    [
        (WithoutNotify, waits_between, "no end", "waits"),
        (ChecksOutsideTheLock, conflicts, "no end", "_make_shut_lock"),
        (ReleasesTooEarly, conflicts, "exception", "AssertionError"),
    ],
    ids=["a notify left out", "a check outside the lock", "a wrong order"],
)
def test_a_planted_mistake_is_found_and_its_schedule_repeats(kind, program, failure, words):
    found = explore_engine(program, kind, steps=600)
    assert found.failure is not None, found
    assert found.failure.kind == failure, found
    again = explore_engine(program, kind, steps=600, schedule=found.schedule)
    assert again.failure is not None
    assert again.failure.message == found.failure.message
    assert again.story == found.story
