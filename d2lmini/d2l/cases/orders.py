"""The cases in which tasks run in a wrong order: "pool", "view" and "priority"."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.d2l.cases.tried import TasksThatMeet, Tried, check_bound, join, start, wrong

#: No task may be overtaken by more later tasks than this ("priority").
MOST_OVERTAKEN = 8


def check_pool(tried: Tried) -> None:
    values = {name: [tried.draw.randrange(100) + 100 * name] * 2 for name in range(4)}

    def uploads(buffers: int) -> None:
        def copy(buffer: list) -> list:
            time.sleep(0)  # another thread may run in between
            return list(buffer)

        engine = tried.make(copy, buffers=buffers)
        for name, numbers in values.items():
            engine.upload(name, numbers)
        engine.waitall()
        for name, numbers in values.items():
            got = engine.device.get(name)
            if got != numbers:
                raise wrong("overwritten", name=name, got=got, expected=numbers)

    def bounded() -> None:
        gate, seen, done = threading.Event(), [], [0]

        def copy(buffer: list) -> list:
            seen.append(buffer)  # kept, so that no two have one id
            gate.wait()
            return list(buffer)

        engine = tried.make(copy, buffers=2)

        def upload() -> None:
            for name, numbers in values.items():
                engine.upload(name, numbers)
                done[0] += 1

        threads = start(upload)
        time.sleep(1)
        n = done[0]
        gate.set()
        join(threads)
        engine.waitall()
        check_bound(n, 2, 0, "uploads returned")
        different = len(set(map(id, seen)))
        if different > 2:
            raise wrong("unbounded", n=different, what="buffers were in use", most=2)

    for buffers in (1, 2):
        tried.run(uploads, "stuck", buffers=buffers)
    tried.run(bounded, "stuck")


def _views(draw: random.Random, bases: list[np.ndarray]) -> np.ndarray:
    """A random view of one of the arrays, or the array."""
    x = draw.choice(bases)
    begin = draw.randrange(4)
    return draw.choice([
        x, x[begin : begin + 2], x[::2], x.reshape(2, 3), x.reshape(2, 3).T, x[1:][: begin + 1],
    ])  # fmt: skip


def check_view(tried: Tried) -> None:
    def change(view: np.ndarray, factor: int) -> None:
        time.sleep(0)
        view *= factor
        time.sleep(0)
        view += 1

    def add(target: np.ndarray, source: np.ndarray) -> None:
        time.sleep(0)
        target += source.sum()

    def values(push: Callable[..., None], wait: Callable[[], None], seed: int) -> list:
        draw = random.Random(seed)
        bases = [np.ones(6), np.ones(6)]
        for number in range(4):
            view = _views(draw, bases)
            if draw.random() < 0.7:
                push(lambda view, factor=number + 2: change(view, factor), view)
            else:
                push(add, view, _views(draw, bases))
        wait()
        return [base.tolist() for base in bases]

    def program() -> None:
        engine = tried.make(workers=2)
        got = values(engine.push, engine.waitall, seed)
        if got != expected:
            raise wrong("order", got=got, expected=expected)

    def parallel(sliced: bool) -> None:
        engine, tasks = tried.make(workers=2), TasksThatMeet()
        for task, array in zip(tasks, (np.zeros(4), np.zeros(4))):
            engine.push(task, array[1:] if sliced else array)
        engine.waitall()
        tasks.check()

    for sliced in (False, True):
        tried.run(parallel, "stuck", sliced=sliced)
    tried.schedules = max(10, tried.schedules // 6)
    for _ in range(8):
        seed = tried.draw.randrange(1 << 30)
        expected = values(lambda fn, *arrays: fn(*arrays), lambda: None, seed)
        tried.run(program, "stuck")


def check_priority(tried: Tried) -> None:
    n = tried.draw.randint(3, 5)

    def run(push: Callable[[Any, list], None]) -> list:
        """The order in which one worker runs the tasks that `push` pushes while it is busy."""
        engine, gate = tried.make(), threading.Event()
        order: list[Any] = []
        engine.push(gate.wait)
        push(engine, order)
        gate.set()
        engine.waitall()
        return order

    def equal(priority: int) -> None:
        def push(engine: Any, order: list) -> None:
            for number in range(n):
                engine.push(lambda number=number: order.append(number), priority)

        order = run(push)
        if order != list(range(n)):
            raise wrong("fifo", order=order)

    def urgent_last() -> None:
        def push(engine: Any, order: list) -> None:
            for priority in [0] * (n - 1) + [1]:
                engine.push(lambda priority=priority: order.append(priority), priority)

        before = run(push).index(1)
        if before:
            raise wrong("ignored", n=before)

    def many_urgent(nested: bool) -> None:
        def push(engine: Any, order: list) -> None:
            def urgent() -> None:
                order.append(1)
                if nested and len(order) < 3 * MOST_OVERTAKEN:
                    engine.push(urgent, 1)

            engine.push(lambda: order.append(0), 0)
            for _ in range(1 if nested else 3 * MOST_OVERTAKEN):
                engine.push(urgent, 1)

        before = run(push).index(0)
        if before > MOST_OVERTAKEN:
            raise wrong("starves", n=before, most=MOST_OVERTAKEN)

    tried.schedules = max(10, tried.schedules // 6)
    for priority in (0, 1):
        tried.run(equal, "stuck", priority=priority)
    tried.run(urgent_last, "stuck")
    for nested in (False, True):
        tried.run(many_urgent, "stuck", nested=nested)
