"""The cases in which a wait never ends: "lock", "shutdown" and "slot"."""

from __future__ import annotations

import threading
import time

from d2lmini.d2l.cases.tried import Count, Tried, check_bound, join, start, wrong


def check_lock(tried: Tried) -> None:
    workers, most = 2, tried.draw.randint(1, 3)

    def bounded() -> None:
        engine, gate, pushed = tried.make(workers=workers, most=most), threading.Event(), [0]

        def push() -> None:
            for _ in range(most + workers + 4):
                engine.push(gate.wait)
                pushed[0] += 1

        threads = start(push)
        time.sleep(1)  # until every other thread is blocked
        n = pushed[0]
        gate.set()
        join(threads)
        engine.waitall()
        check_bound(n, most, workers + 1, "pushes returned")

    def busy() -> None:
        engine, count = tried.make(workers=workers, most=most), Count(2 * most + 4)
        half = most + 2

        def push(first: int) -> None:
            for number in range(first, first + half):
                engine.push(count.task(number))

        join(start(lambda: push(0), lambda: push(half)))
        engine.waitall()
        count.check_all()

    def each_waits() -> None:
        engine, count = tried.make(workers=workers, most=most), Count(2)

        def push(number: int) -> None:
            engine.push(count.task(number))
            engine.waitall()
            if not count.ended[number]:
                raise wrong("early")

        join(start(lambda: push(0), lambda: push(1)))

    tried.pair("lock", workers=workers, most=most)
    for program in (busy, bounded, each_waits):
        tried.run(program, "lock")


def check_shutdown(tried: Tried) -> None:
    n = tried.draw.randint(2, 4)

    def ordinary() -> None:
        engine, count = tried.make(workers=2), Count(n)
        for number in range(n):
            engine.push(count.task(number))
        engine.waitall()
        count.check_all()

    def stopped(workers: int) -> None:
        engine, count = tried.make(workers=workers), Count(n)
        for number in range(n):
            engine.push(count.task(number))
        threads = start(engine.stop)
        engine.waitall()
        if count.begun != count.ended:
            raise wrong("early")
        join(threads)
        engine.waitall()
        before = list(count.begun)
        time.sleep(1)
        if before != count.begun:
            raise wrong("late")
        count.check_once()
        try:
            engine.push(count.task(0))
        except RuntimeError:
            return
        raise wrong("open")

    tried.run(ordinary, "stuck")
    tried.pair("stuck", workers=2)
    for workers in (1, 2):
        tried.run(stopped, "forgets", workers=workers)


def check_slot(tried: Tried) -> None:
    def in_turn() -> None:
        engine, count = tried.make(workers=2, slots=2), Count(3)
        for number in range(3):
            engine.wait(engine.push(count.task(number)))
            if not count.ended[number]:
                raise wrong("early")

    def together() -> None:
        engine, count = tried.make(workers=2, slots=2), Count(2)

        def use(number: int) -> None:
            engine.wait(engine.push(count.task(number)))
            if not count.ended[number]:
                raise wrong("early")

        join(start(lambda: use(0), lambda: use(1)))

    def other() -> None:
        engine, go, slots = tried.make(workers=1, slots=1), threading.Event(), []
        first = engine.push(lambda: None)
        threads = start(lambda: slots.append(engine.push(go.wait)))
        engine.wait(first)
        go.set()
        join(threads)
        engine.wait(slots[0])

    def not_waited_for() -> None:
        engine, count = tried.make(workers=1, slots=2), Count(6)
        handles = [engine.push(count.task(number)) for number in range(6)]
        engine.wait(handles[-1])
        count.check_all()

    def again() -> None:
        engine = tried.make(workers=1, slots=1)
        first = engine.push(lambda: None)
        engine.wait(first)
        join(start(lambda: engine.wait(engine.push(lambda: None)), lambda: engine.wait(first)))

    tried.run(in_turn, "stuck")
    tried.run(together, "reused")
    tried.run(other, "reused")
    tried.run(not_waited_for, "leak")
    tried.run(again, "once")
