"""The stepped engine: one step at a time; its clock, its tables, its logs.

That it gives the values of the other engines in every legal order is in `test_schedules.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from strikes import Cells, strike_everywhere

from d2lmini import MXNetError, engine, nd
from d2lmini.engine.core import FunctionTask
from d2lmini.engine.stepped_engine import LogEntry


def diamond() -> tuple[Any, ...]:
    """One operation, two beside each other, and one that overwrites what they read."""
    a = nd.ones((1, 2))
    b, c = a * 2, a * 3
    a += 1
    return a, b, c


def brief(log: list[LogEntry]) -> list[str]:
    """b3 for "3 begins", e3 for "3 ends"."""
    return [f"{event.kind[0]}{event.number}" for event in log if event.kind != "push"]


# -- the clock -------------------------------------------------------------------------------------


def test_a_push_queues_and_steps_begin_and_end():
    with engine.stepped(times=10) as s:
        a, b, c = diamond()
        assert engine.stats().executed == 0 and s.now_us == 0
        events = [s.step() for _ in range(8)]
        assert s.step() is None
        assert brief(events) == ["b1", "e1", "b2", "b3", "e2", "e3", "b4", "e4"]
        assert [event.time_us for event in events] == [0, 10, 10, 10, 20, 20, 20, 30]
        assert [event.worker for event in events[2:4]] == ["cpu 1", "cpu 2"]
        assert str(events[2]) == "10 us: cpu 1 begins 2 _mul_scalar"
        assert engine.stats().executed == 4
        assert (a + b + c).asnumpy().tolist() == [[7, 7]]


def test_workers_bound_what_runs_at_once_and_priority_goes_first():
    with engine.stepped(workers=2, times={"long": 50, "short": 20}) as s:
        for name in ("long", "short", "short", "short"):
            engine.push(lambda: None, name=name)
        engine.push(lambda: None, name="urgent", priority=1)
        s.run()
        began = [(e.number, e.time_us, e.worker) for e in s.log if e.kind == "begin"]
    assert began == [
        (5, 0, "cpu 1"), (1, 0, "cpu 2"), (2, 50, "cpu 2"), (3, 70, "cpu 2"), (4, 90, "cpu 2"),
    ]  # fmt: skip


def test_times_are_predicted_unless_given():
    def of(times: Any) -> float:
        with engine.stepped(times=times) as s:
            engine.current.push(FunctionTask(int, "known", (), (), predicted_us=7.0))
            s.run()
            return s.now_us

    assert of(None) == 7 and of(3) == 3 and of({"known": 4.5}) == 4.5 and of({"other": 1}) == 7
    assert of(lambda task: 2 * task.predicted_us) == 14
    with engine.stepped() as s:
        engine.push(lambda: None, name="unknown")
        s.run()
        assert s.now_us == 100


def test_options_are_checked():
    with pytest.raises(ValueError, match="workers is 1 or more"), engine.stepped(workers=0):
        raise AssertionError("not reached")
    with pytest.raises(TypeError, match="times is microseconds"), engine.stepped(times="slow"):
        raise AssertionError("not reached")


# -- waits -----------------------------------------------------------------------------------------


def test_a_wait_steps_as_far_as_it_needs():
    with engine.stepped(workers=1, times=10) as s:
        x = nd.ones((2,))
        y = x + 1
        z = y + 1
        assert y.asnumpy().tolist() == [2, 2]
        assert s.now_us == 20 and s.operations[3].status == "ready"
        nd.waitall()
        assert s.now_us == 30 and s.operations[3].status == "done"
        del z


def test_a_line_that_asks_until_nothing_is_pending_waits():
    with engine.stepped() as stepped:
        y = nd.ones((2,)) + 1
        assert engine.stats().pending == 2
        while "writing" in engine.explain(y):
            pass
        z = y + 1
        while engine.stats().pending:
            pass
        assert z.asnumpy().tolist() == [3, 3]
        y, asked = y + 1, 0
        while engine.stats().pending:  # a program that steps by itself is not helped
            asked += 1
            stepped.step()
        assert asked == 2


def test_a_step_inside_a_task_is_refused():
    with engine.stepped() as s:
        problems: list[str] = []

        def impatient() -> None:
            for move in (s.step, s.run):
                with pytest.raises(MXNetError) as caught:
                    move()
                problems.append(str(caught.value))

        engine.push(impatient)
        s.run()
        assert len(problems) == 2 and "step inside the task 'impatient'" in problems[0]


# -- seeds and orders ------------------------------------------------------------------------------


def log_of(program: Any, **options: Any) -> list[LogEntry]:
    with engine.stepped(**options) as s:
        program()
        s.run()
        return s.log


def wide() -> None:
    for _ in range(6):
        engine.push(lambda: None, writes=[engine.new_var()])


def test_the_same_seed_gives_the_same_trace_and_seeds_differ():
    logs = [log_of(wide, seed=seed) for seed in range(20)]
    assert logs == [log_of(wide, seed=seed) for seed in range(20)]
    assert len({str(brief(log)) for log in logs}) == 20
    begun_early = [[event.kind for event in log].index("begin") < 6 for log in logs]
    assert any(begun_early), "steps come between the pushes"


# -- tables and hooks ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wait", "push and run"])
def test_ctrl_c_at_every_line_of_stepping(kind: str):
    """What it struck says so, everything else runs, once."""

    def scenario():
        cells = Cells()
        names = ("one", "two")
        for name in names:
            cells.push(name)

        def act() -> None:
            if kind == "push and run":
                engine.push(lambda: None, reads=[cells.a])
            if kind == "wait":
                engine.wait_for_var(cells.a)
            else:
                engine.current.run()  # type: ignore[attr-defined]

        yield act
        engine.current.wait_idle("test")
        cells.heal()
        cells.verify(at_most_once=names)
        assert len(cells.log) >= 3, "one of the two, and two of verify"

    with engine.stepped():
        strike_everywhere(scenario)


def test_chosen_by_environment_it_forgets_what_is_over():
    program = (
        "import gc, weakref\n"
        "from d2lmini import engine, nd\n"
        "assert engine.current.kind == 'stepped'\n"
        "x = nd.ones((100, 100)); y = x + 1\n"
        "chunk = weakref.ref(x._chunk); del x\n"
        "assert y.asnumpy()[0, 0] == 2\n"
        "nd.waitall(); gc.collect()\n"
        "print(chunk() is None)"
    )
    environment = {**os.environ, "D2LMINI_ENGINE": "stepped"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "True", done.stderr
