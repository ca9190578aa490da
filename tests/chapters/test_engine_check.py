"""`labs.engine_check`: the library's engine passes; one that breaks a promise is told which."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
from labs.engine_check import check_engine
from labs.grading import CheckFailed

from d2lmini import engine


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_threaded_engine_keeps_its_promises(workers):
    with engine.use("threaded", workers=workers, inline_below=0):
        said = check_engine(engine, errors=True)
        assert engine.stats().pending == 0
        engine.current.check()
    assert said.endswith("5 random programs as in program order; errors travel")


class NoRules:
    """Any worker takes any task."""

    new_var = object

    def __init__(self, workers: int):
        self.jobs: queue.Queue[Any] = queue.Queue()
        for _ in range(workers):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            self.jobs.get()()
            self.jobs.task_done()

    def push(self, fn, reads=(), writes=()):
        self.jobs.put(fn)

    def waitall(self):
        self.jobs.join()


class AtOnce(NoRules):
    """Runs what is pushed, as NumPy does."""

    def push(self, fn, reads=(), writes=()):
        fn()


@pytest.mark.parametrize(
    ("broken", "hint"),
    [(NoRules(1), "lock"), (NoRules(2), "room"), (AtOnce(1), "waits")],
    ids=["one worker", "two workers", "at once"],
)
def test_engines_without_rules(broken, hint):
    with pytest.raises(CheckFailed) as caught:
        check_engine(broken, patience_s=1)
    assert caught.value.hint == hint
    assert len(str(caught.value)) > 30
