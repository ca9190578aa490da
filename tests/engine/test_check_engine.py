"""`d2l.check_engine`: the library's engines pass; one that breaks a promise is told which.

Those that get a dependency rule wrong are in test_chapter_exercises_engine.py.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from d2lmini import d2l, engine
from d2lmini.d2l.check import Wrong


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_the_threaded_engine_keeps_its_promises(workers):
    with engine.use("threaded", workers=workers, inline_below=0):
        said = d2l.check_engine(engine, errors=True)
        assert engine.stats().pending == 0
        engine.current.check()
    assert said.endswith("20 random programs as in program order; errors travel")


@pytest.mark.parametrize("options", [{}, {"seed": 1}, {"seed": 2, "mingled": True}])
def test_so_does_the_stepped_one(options):
    with engine.stepped(**options):
        d2l.check_engine(engine, parallel=False, errors=True, programs=5)


def test_and_the_serial_twin():
    with engine.use("naive"):
        d2l.check_engine(engine, parallel=False, errors=True)


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
    with pytest.raises(Wrong) as caught:
        d2l.check_engine(broken, patience_s=1)
    assert caught.value.hint == hint
    assert len(str(caught.value)) > 30


def test_a_queue_with_one_worker_is_right_and_nothing_runs_side_by_side():
    d2l.check_engine(NoRules(1), parallel=False)
