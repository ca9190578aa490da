"""The engine against serial execution: any workers, priorities and engine, equal to the bit."""

from __future__ import annotations

import os
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check_invariants

from d2lmini import engine
from d2lmini.engine import core

N_VARS, N_TASKS = 30, 500


class Program:
    """A random program over `N_VARS` cells; each task mixes the cells it reads into those it
    writes, so that any wrong order changes the result."""

    def __init__(self, seed: int, n_tasks: int = N_TASKS):
        rng = random.Random(seed)
        self.tasks = [
            (
                rng.sample(range(N_VARS), rng.randint(0, 4)),
                rng.sample(range(N_VARS), rng.randint(0, 3)),
                rng.randint(-3, 3),
                rng.choice([1.0, 1e9]),
            )
            for _ in range(n_tasks)
        ]

    def step(self, cells: list[int], k: int) -> None:
        """Task k, on plain integers."""
        reads, writes, *_ = self.tasks[k]
        mixed = sum(cells[i] * (j + 3) for j, i in enumerate(reads)) + k
        for i in writes:
            cells[i] = (cells[i] * 1_000_003 + mixed) % (1 << 61)

    def serial(self) -> list[int]:
        """The cells after running the tasks in order."""
        cells = list(range(N_VARS))
        for k in range(len(self.tasks)):
            self.step(cells, k)
        return cells

    def through_engine(self) -> list[int]:
        """The cells after pushing the tasks to the current engine; checks that it ends clean."""
        cells = list(range(N_VARS))
        tags = [engine.new_var() for _ in range(N_VARS)]
        before = engine.stats().executed
        for k, (reads, writes, priority, predicted_us) in enumerate(self.tasks):
            task = core.FunctionTask(
                lambda k=k: self.step(cells, k),
                f"task {k}",
                tuple(tags[i] for i in reads),
                tuple(tags[i] for i in writes),
                priority=priority,
                predicted_us=predicted_us,
            )
            engine.current.push(task)
            if k % 100 == 0:
                check_invariants()
        engine.waitall()
        check_invariants()
        assert all(tag.idle and tag.error is None for tag in tags)
        assert engine.stats().executed - before == len(self.tasks)
        writes_of = [sum(i in w for _, w, *_ in self.tasks) for i in range(N_VARS)]
        assert [tag.version for tag in tags] == writes_of
        return cells


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 8),
    inline=st.booleans(),
)
def test_random_programs_equal_serial_execution(seed: int, workers: int, inline: bool):
    program = Program(seed)
    below = 20.0 if inline else 0.0
    with engine.use("threaded", workers=workers, inline_below=below):
        threaded = program.through_engine()
        assert (engine.stats().inline > 0) == inline
    assert threaded == program.serial()


def test_pushing_from_several_threads():
    """Each thread's program on its own cells is serial; a shared cell counts every task."""
    programs = [Program(seed, 200) for seed in range(4)]
    results: list = [None] * 4
    total = engine.new_var()
    count = [0]

    def bump() -> None:
        count[0] += 1

    def run(i: int) -> None:
        cells = list(range(N_VARS))
        tags = [engine.new_var() for _ in range(N_VARS)]
        for k, (reads, writes, priority, _) in enumerate(programs[i].tasks):
            engine.push(
                lambda k=k: programs[i].step(cells, k),
                [tags[j] for j in reads],
                [tags[j] for j in writes],
                priority=priority,
            )
            engine.push(bump, [], [total])
        results[i] = cells

    with engine.use("threaded", workers=3):
        threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.waitall()
    assert results == [program.serial() for program in programs]
    assert count[0] == 4 * 200


def test_readers_run_together_and_a_writer_alone():
    """Two readers must be inside at once (each waits for the other); the writer sees none."""
    both_inside = threading.Barrier(2, timeout=30)
    inside: list[str] = []
    seen: list[list[str]] = []

    def read(name: str) -> None:
        inside.append(name)
        both_inside.wait()
        inside.remove(name)

    with engine.use("threaded", workers=3):
        a = engine.new_var()
        engine.push(lambda: read("first"), reads=[a])
        engine.push(lambda: read("second"), reads=[a])
        engine.push(lambda: seen.append(list(inside)), writes=[a])
        engine.waitall()
    assert seen == [[]]


def test_priority_orders_those_that_could_run():
    order: list[int] = []
    go = threading.Event()
    with engine.use("threaded", workers=1):
        engine.push(lambda: go.wait(30))  # occupies the one worker
        for priority in (0, 5, -1, 5, 2):
            engine.push(lambda p=priority: order.append(p), priority=priority)
        go.set()
        engine.waitall()
    assert order == [5, 5, 2, 0, -1]


def test_push_refuses_what_is_no_var():
    with pytest.raises(TypeError, match=r"Vars \(engine.new_var\(\)\) or NDArrays, got list"):
        engine.push(lambda: None, reads=[[1]])


def test_choice_of_engine_by_environment():
    import subprocess
    import sys

    program = "from d2lmini import engine; print(engine.current.kind)"
    for name, value, kind in (
        ("D2LMINI_ENGINE", "naive", "naive"),
        ("D2LMINI_ENGINE", "threaded", "threaded"),
        ("MXNET_ENGINE_TYPE", "NaiveEngine", "naive"),
        ("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice", "threaded"),
    ):
        environment = {**os.environ, name: value}
        result = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
        assert result.stdout.strip() == kind, result.stderr


def test_unknown_engine_is_refused():
    choices = "choose 'threaded', 'naive' or 'stepped'"
    with pytest.raises(ValueError, match=choices), engine.use("turbo"):
        raise AssertionError("not reached")
