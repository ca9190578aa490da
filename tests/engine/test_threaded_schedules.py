"""The threaded engine itself, under many schedules of its workers and of the threads that use it.

Each program makes an engine with two workers, pushes two to four tasks, waits, and compares what it
sees with serial execution. The engine's locks and threads are those of `labs.schedules`, the
explorer of the chapter Case files: before each operation on one of them another thread may go on.
Three engines with a planted mistake show that such mistakes are found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest
from labs import schedules
from labs.schedules import Explored, explore

from d2lmini import MXNetError
from d2lmini.engine import core, threaded
from d2lmini.engine import engine as base
from d2lmini.engine.core import FunctionTask, Var
from d2lmini.engine.threaded import ThreadedEngine

Make = Callable[[], ThreadedEngine]


def push(engine: ThreadedEngine, fn: Callable[[], object], reads=(), writes=()) -> None:
    """Push a task; what its function does is a step of its own."""

    def run() -> None:
        schedules.sleep(0)
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

    other = schedules.Thread(target=use, args=("other",), name="other")
    other.start()
    use("main")
    other.join()
    assert sorted(log) == ["main", "other"]
    engine.stop()


PROGRAMS = [conflicts, waits_between, failures, stops_early, two_users]


class EngineLock(schedules.RLock):
    """The engine's one lock; it is asked whether this thread holds it."""

    def _is_owned(self) -> bool:
        return self.owner is schedules.threading.current_thread()


@pytest.fixture
def explore_engine(monkeypatch) -> Iterator[Callable[..., Explored]]:
    """Runs a program with engines of a kind under many schedules."""

    def run(program: Callable[[Make], None], make: Make) -> None:
        monkeypatch.setattr(threaded, "_numbers", count())  # the same names of workers each time
        monkeypatch.setattr(core, "lock", EngineLock())
        program(make)

    def explore_engine(
        program: Callable[[Make], None], kind: type[ThreadedEngine] = ThreadedEngine, **options
    ) -> Explored:
        make = partial(kind, workers=2, inline_below=0.0)
        return explore(partial(run, program, make), **options)

    for module in (core, threaded, base):
        monkeypatch.setattr(module, "threading", schedules.threading)
    yield explore_engine
    gc.collect()  # no engine outlives the run that its lock belongs to


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_engine_equals_serial_execution_under_all_schedules_tried(program, explore_engine):
    found = explore_engine(program)
    assert found.outcomes == {None: 200}, found


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

    def _wait_idle(self, timeout_s):
        with core.lock:
            self.budget.drain()
            pending = bool(self.pending)
        if pending:
            self._block(base._make_shut_lock(self.idle_locks), None)
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
        (WithoutNotify, waits_between, "no end", "acquires opened"),
        (ChecksOutsideTheLock, conflicts, "no end", "_make_shut_lock"),
        (ReleasesTooEarly, conflicts, "exception", "AssertionError"),
    ],
    ids=["a notify left out", "a check outside the lock", "a wrong order"],
)
def test_a_planted_mistake_is_found_and_its_schedule_repeats(
    kind, program, failure, words, explore_engine
):
    found = explore_engine(program, kind)
    assert found.failure == failure and words in repr(found)
    assert repr(explore_engine(program, kind)) == repr(found)
