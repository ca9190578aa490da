"""The hooks: every task is told of from push to end, every wait with its line and times.

Profiler, traces and widgets stand on these; a listener that fails must not hurt the engine. Also:
whose line a task or a wait is said to come from (`callsite`).
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from worlds import all_asleep, until

from d2lmini import MXNetError, engine, nd
from d2lmini.base import callsite, instrument


class Events(instrument.Instrument):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple] = []
        self.waits: list[tuple] = []
        self.failures: dict[Any, Any] = {}
        self.workers: dict[Any, str] = {}

    def push(self, task: Any) -> None:
        self.heard.append(("push", task))

    def ready(self, task: Any) -> None:
        self.heard.append(("ready", task))

    def start(self, task: Any, worker: str) -> None:
        self.heard.append(("start", task))
        self.workers[task] = worker

    def end(self, task: Any, failure: Any) -> None:
        self.heard.append(("end", task))
        self.failures[task] = failure

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        self.waits.append((kind, target, callsite.describe(site), begin_ns, end_ns))

    def of(self, name: str) -> list[list[str]]:
        """The events of each task of that name, in the order heard."""
        tasks = dict.fromkeys(t for _, t in self.heard if t.name == name)
        return [[kind for kind, t in self.heard if t is task] for task in tasks]


WHOLE = ["push", "ready", "start", "end"]


@pytest.mark.parametrize("kind", ["threaded", "inline", "naive"])
def test_every_task_has_push_ready_start_end_in_this_order(kind: str):
    options = {} if kind == "naive" else {"inline_below": 20.0 if kind == "inline" else 0.0}
    with engine.use("naive" if kind == "naive" else "threaded", **options):
        a = engine.new_var()
        with instrument.listening(Events()) as events:
            for _ in range(5):
                engine.push(int, writes=[a], name="task")
            x = nd.ones((5, 5))
            for _ in range(5):
                x = nd.tanh(x)
            engine.push(lambda: engine.push(int, name="inner"), name="outer")
            engine.waitall()
    assert events.of("task") == [WHOLE] * 5
    assert events.of("tanh") == [WHOLE] * 5
    assert events.of("outer") == events.of("inner") == [WHOLE]
    assert {t.name for _, t in events.heard} == {"task", "tanh", "_ones", "outer", "inner"}
    assert all(failure is None for failure in events.failures.values())
    assert all(task.site is not None for _, task in events.heard)


def test_a_task_that_does_not_run_ends_without_a_start(engine_kind: str):
    a = engine.new_var()
    with instrument.listening(Events()) as events:
        engine.push(lambda: 1 / 0, writes=[a], name="fails")
        engine.push(int, reads=[a], writes=[a], name="skipped")
        with pytest.raises(MXNetError):
            engine.wait_for_var(a)
    assert events.of("fails") == [WHOLE]
    assert events.of("skipped") == [["push", "ready", "end"]]
    assert all(failure is a.error for failure in events.failures.values())


@pytest.mark.parametrize("event", ["push", "ready", "start", "end", "wait", "alloc", "free"])
def test_a_listener_that_raises_is_dropped_and_told_of(event: str, engine_kind: str):
    """Wherever it raises: the tasks run, others go on listening, the next wait warns."""

    def broken(self: Any, *_: Any) -> None:
        raise RuntimeError("out of order")

    listener = type("Broken", (instrument.Instrument,), {event: broken})()
    log: list[int] = []
    a = engine.new_var()
    with instrument.listening(Events()) as events, instrument.listening(listener):
        with pytest.warns(UserWarning, match=f"Broken raised RuntimeError.*in {event}") as caught:
            engine.push(lambda: log.append(1), writes=[a])
            x = nd.ones((3,)) + 1
            y = nd.array([1])  # of which no task knows that `events` keeps
            engine.waitall()
            del x, y
            gc.collect()
            until(all_asleep)
            from d2lmini import storage

            storage.stats()
            engine.waitall()
        assert instrument.listeners == (events,)
        engine.push(lambda: log.append(2), writes=[a])
        engine.waitall()
    assert log == [1, 2] and len(caught) == 1
    assert caught[0].filename == __file__


# -- whose line -----------------------------------------------------------------------------------


def test_a_site_keeps_no_frame():
    """It holds code and an offset: the locals of the line are free to die."""
    import weakref

    class Thing:
        """Something whose life can be watched."""

    def issue() -> tuple:
        thing = Thing()
        return callsite.find(), weakref.ref(thing)

    site, dead = issue()
    assert dead() is None and "callsite.find()" in callsite.describe(site)
