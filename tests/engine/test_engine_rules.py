"""The engine's rules 2 to 7 and 12 (DESIGN: promises and rules), each by name.

Rule 1 is in `test_budget.py`, rule 8 in `test_engine_interrupts.py`, rule 9 in
`test_engine_processes.py`; bitwise equality with serial execution in `test_engine.py`.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from invariants import check_invariants
from worlds import all_asleep, until

from d2lmini import MXNetError, engine, nd
from d2lmini.base import instrument


class Thing:
    """Something whose life can be watched."""


@contextmanager
def collector(enabled: bool) -> Iterator[None]:
    was = gc.isenabled()
    gc.enable() if enabled else gc.disable()
    try:
        yield
    finally:
        gc.enable() if was else gc.disable()


# -- rule 2: tasks push, and do not wait -----------------------------------------------------------


def test_rule_2_waiting_is_refused_on_a_worker_in_every_way(engine_kind: str):
    x, problems = nd.ones((2, 2)), []
    waits: list[Callable] = [
        engine.waitall, lambda: engine.wait_for_var(x), x.wait_to_read, x.wait_to_write, x.asnumpy,
        lambda: float(x.sum()), lambda: repr(x),
    ]  # fmt: skip

    def impatient() -> None:
        for wait in waits:
            try:
                wait()
            except MXNetError as error:
                problems.append(str(error))

    engine.push(impatient, name="impatient")
    engine.waitall()
    assert len(problems) == len(waits)
    assert all("inside the task 'impatient': a task must not wait" in p for p in problems)


# -- rule 3: finalizers ----------------------------------------------------------------------------


class Last:
    """In a circle with itself, so that only the collector finds it; `will` is called by __del__."""

    def __init__(self, will: Callable[[], None]):
        self.me = self
        self.will = will

    def __del__(self) -> None:
        self.will()


class Collects(instrument.Instrument):
    """At every event, leaves a Last behind and calls the collector: inside our lock for most."""

    def __init__(self, will: Callable[[], None]):
        self.will = will
        self.left = 40
        self.busy = False

    def _collect(self, *_: object) -> None:
        if self.left > 0 and not self.busy:
            self.busy = True
            self.left -= 1
            Last(self.will)
            gc.collect(0)
            self.busy = False

    def _ignore(self, *_: object) -> None:
        """This event is not for it."""

    push = ready = start = end = wait = alloc = free = _collect


def test_rule_3_a_wait_by_such_a_finalizer_is_refused(engine_kind: str):
    """It must not block (its thread holds the lock) and it must not hang."""
    a, problems = engine.new_var(), []

    def will() -> None:
        for wait in (engine.waitall, lambda: engine.wait_for_var(a)):
            try:
                wait()
            except MXNetError as error:
                problems.append(str(error))

    class CollectsAtPush(Collects):
        start = wait = alloc = free = Collects._ignore

    with instrument.listening(CollectsAtPush(will)):
        engine.push(lambda: None, writes=[a])
        engine.waitall()
    assert len(problems) == 6  # push, ready, end
    assert all("must not wait" in p for p in problems)


def test_rule_3_a_finalizer_on_a_worker_must_not_wait():
    """Even between tasks: the worker it blocks may be the one it waits for."""
    problems, a = [], engine.new_var()

    def will() -> None:
        try:
            engine.wait_for_var(a)
        except MXNetError as error:
            problems.append(str(error))
        engine.push(lambda: problems.append("pushed"), writes=[a])

    with engine.use("threaded", workers=1):
        leaving = Last(will)
        leaving.me = None
        engine.push(lambda thing: thing, name="nothing")  # raises: no argument
        engine.push(lambda held=leaving: None)  # dies with the task, on the worker
        del leaving
        until(lambda: len(problems) == 2)
        with pytest.raises(MXNetError, match="nothing: TypeError"):
            engine.waitall()
    assert "must not wait" in problems[0] and problems[1] == "pushed"


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_rule_3_the_collector_runs_at_every_turn(kind: str):
    """With a threshold of 1 the collector runs at nearly every allocation, inside the lock too."""
    counted, made = [0], [0]
    a = engine.new_var()

    def bump() -> None:
        counted[0] += 1

    def will() -> None:
        engine.push(bump, writes=[a])

    def run() -> None:
        tag = engine.new_var()
        for _ in range(150):
            for _ in range(4):
                Last(will)
                engine.push(int, [tag], [engine.new_var()])
            x = nd.ones((40, 40))
            y = x + 1
            x += y
            made[0] += 4

    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1, 1, 1)
    try:
        with engine.use(kind):
            threads = [threading.Thread(target=run) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
            gc.set_threshold(*before)
            gc.collect()
            engine.waitall()
            check_invariants()
            assert counted == [1200] and a.idle
    finally:
        gc.set_threshold(*before)


# -- rule 4: freeing -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threaded", "naive"])
@pytest.mark.parametrize("how", ["runs", "fails", "is skipped", "is cancelled"])
def test_rule_4_nobody_remembers_a_finished_task(kind: str, how: str):
    """Neither a sleeping worker, nor the error it left."""
    thing = Thing()
    dead = weakref.ref(thing)
    a = engine.new_var()

    def task(held: Thing = thing) -> None:
        local = held
        if how == "fails":
            raise ValueError(f"with {type(local).__name__}")

    with collector(False), engine.use(kind):
        if how == "is skipped":
            engine.push(lambda: 1 / 0, writes=[a], name="fails")
        engine.push(task, reads=[a], writes=[a])
        del task, thing
        if how == "is cancelled":
            engine.cancel_pending()
        engine.current.wait_idle("test")
        until(all_asleep)
        assert dead() is None
        if a.error is not None:
            with pytest.raises(MXNetError):
                engine.wait_for_var(a)
        engine.push(int, writes=[a])
        engine.waitall()


# -- rule 5: errors --------------------------------------------------------------------------------


def test_rule_5_every_wait_raises_a_fresh_exception_that_names_both_lines(engine_kind: str):
    a = engine.new_var()
    engine.push(lambda: 1 / 0, writes=[a], name="divide")  # this line issues it
    errors = []
    for _ in range(2):
        try:
            engine.wait_for_var(a)  # this line notices it
        except MXNetError as error:
            errors.append(error)
    first, second = errors
    assert first is not second
    lines = str(first).splitlines()
    assert lines[0] == "divide: ZeroDivisionError: division by zero"
    assert lines[1].startswith("  issued at   tests") and lines[1].endswith("# this line issues it")
    assert lines[2].endswith("# this line notices it (wait_for_var)")
    engine.waitall()  # it was seen


def test_rule_5_errors_flow_to_readers_and_stop_at_overwriting(engine_kind: str):
    a, b, c, d = (engine.new_var() for _ in range(4))
    log: list[str] = []
    engine.push(lambda: 1 / 0, writes=[a], name="divide")
    engine.push(lambda: log.append("b"), reads=[a], writes=[b])
    engine.push(lambda: log.append("c"), reads=[b], writes=[c])
    engine.push(lambda: log.append("c in place"), reads=[c], writes=[c])
    engine.push(lambda: log.append("d"), writes=[d])
    for var in (a, b, c):
        with pytest.raises(MXNetError, match="divide: ZeroDivisionError"):
            engine.wait_for_var(var)
    engine.wait_for_var(d)
    assert log == ["d"]
    engine.push(lambda: log.append("whole"), writes=[b])
    engine.wait_for_var(b)
    with pytest.raises(MXNetError, match="divide"):
        engine.wait_for_var(c)
    engine.push(lambda: log.append("of b"), reads=[b], writes=[c])
    engine.wait_for_var(c)
    assert log == ["d", "whole", "of b"]
    assert engine.stats().skipped == 3


def test_rule_5_an_error_whose_vars_died_is_warned_of(engine_kind: str):
    for i in range(12):
        engine.push(lambda: 1 / 0, writes=[engine.new_var()], name=f"fails_{i}")
    engine.current.wait_idle("test")
    until(all_asleep)
    with pytest.warns(UserWarning, match=r"12 operation\(s\) failed") as caught:
        engine.waitall()
    text = str(caught[0].message)
    assert len(caught) == 1 and "fails_0" in text and "... and 2 more" in text
    assert caught[0].filename == __file__, "it points to the user's line"
    engine.waitall()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Unprintable(), "odd: Unprintable: .its text is not available: RuntimeError."),
        (SystemExit(3), "odd: SystemExit: 3"),
        (GeneratorExit(), "odd: GeneratorExit: "),
    ],
)
def test_rule_5_no_exception_ends_a_worker(problem: BaseException, text: str):
    def odd() -> None:
        raise problem

    a, log = engine.new_var(), []
    with engine.use("threaded", workers=1):
        engine.push(odd, writes=[a])
        with pytest.raises(MXNetError, match=text):
            engine.wait_for_var(a)
        engine.push(lambda: log.append(1), writes=[a])
        engine.wait_for_var(a)
    assert log == [1]


# -- rule 12, and what else one may ask ------------------------------------------------------------


def test_workers_that_cannot_be_started_are_done_without(monkeypatch):
    """Where there may be no more threads, who waits does the work."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    log: list[int] = []
    a = engine.new_var()
    with engine.use("threaded", workers=2):
        monkeypatch.setattr(threading.Thread, "start", refuse)
        engine.push(lambda: log.append(1), writes=[a])
        engine.push(lambda: log.append(2), writes=[a])
        engine.wait_for_var(a)
        assert log == [1, 2]
        engine.push(lambda: log.append(3), writes=[a])
        engine.waitall()
        monkeypatch.undo()
        engine.push(lambda: log.append(4), writes=[a])
        engine.waitall()
    assert log == [1, 2, 3, 4]
