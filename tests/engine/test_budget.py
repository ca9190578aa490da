"""Rule 1, back-pressure: who pauses, when, and that the books of pending bytes are exact.

issue faster than compute -> pending bytes grow -> a push pauses -> something completes -> go on
"""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check_invariants
from worlds import MB, Array, fill, until

from d2lmini import engine
from d2lmini.engine import budget, core
from d2lmini.engine.budget import Budget, ByteAccount, Handle, WeightedVar
from d2lmini.engine.core import Task


@pytest.fixture
def gate():
    """An event that tasks wait for; opened at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


def in_thread(act) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


def paused() -> bool:
    return bool(engine.current.room_locks)


def test_a_push_pauses_until_something_completes(gate):
    arrays = [Array() for _ in range(3)]
    with engine.use("threaded", workers=1):
        engine.limit_pending(2 * MB)
        fill(arrays[0], during=lambda: gate.wait(30))
        fill(arrays[1])
        assert engine.stats().pending_bytes == 2 * MB and engine.stats().paused == 0
        pusher = in_thread(lambda: fill(arrays[2]))
        until(paused)
        stats = engine.stats()
        assert (stats.pending, stats.pending_bytes, stats.paused) == (2, 2 * MB, 1)
        assert arrays[2].chunk.idle, "nothing of the paused push may be enqueued"
        gate.set()
        pusher.join(30)
        engine.waitall()
        stats = engine.stats()
        assert (stats.executed, stats.pending_bytes, stats.peak_pending_bytes) == (3, 0, 2 * MB)


def test_the_paused_push_holds_no_lock(gate):
    """Others push (what needs no room), wait and ask meanwhile."""
    arrays, log = [Array() for _ in range(2)], []
    with engine.use("threaded", workers=2):
        engine.limit_pending(MB)
        fill(arrays[0], during=lambda: gate.wait(30))
        pusher = in_thread(lambda: fill(arrays[1]))
        until(paused)
        a = engine.new_var()
        engine.push(lambda: log.append(1), writes=[a])
        engine.wait_for_var(a)
        assert log == [1] and engine.stats().pending == 1
        check_invariants()
        gate.set()
        pusher.join(30)


def test_a_task_larger_than_the_bound_is_admitted_when_nothing_is_pending(gate):
    large, small = Array(MB), Array()
    with engine.use("threaded", workers=1):
        engine.limit_pending(2 * MB)
        fill(large, during=lambda: gate.wait(30))
        assert engine.stats().pending_bytes == 4 * MB and engine.stats().paused == 0
        pusher = in_thread(lambda: fill(small))
        until(paused)
        gate.set()
        pusher.join(30)
        engine.waitall()


def test_several_threads_do_not_pass_the_bound_together():
    """Each looks for room and enters under the lock, so two cannot take the same room."""
    with engine.use("threaded", workers=2):
        engine.limit_pending(2 * MB)

        def push_many() -> None:
            for _ in range(30):
                fill(Array())

        threads = [in_thread(push_many) for _ in range(6)]
        for thread in threads:
            thread.join(60)
        engine.waitall()
        assert engine.stats().executed == 180
        assert engine.stats().peak_pending_bytes <= 2 * MB


# -- the books -------------------------------------------------------------------------------------


class World:
    """Arrays, held or not, and a worker that runs one task at a time, when it is let."""

    def __init__(self, n: int):
        self.arrays: list[Array | None] = [Array(1024 * (i + 1)) for i in range(n)]
        self.vars = [a.chunk for a in self.arrays if a is not None]
        self.step = threading.Semaphore(0)
        self.done = 0

    def run(self) -> None:
        assert self.step.acquire(timeout=30)

    def recount(self) -> int:
        """By definition: memory that a queued task touches, and whose contents are not there yet or
        whose last handle died."""
        pending = {v for t in engine.current.pending for v in (*t.shared, *t.writes)}
        return sum(
            v.weight for v in pending if not v.filled or self.arrays[self.vars.index(v)] is None
        )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_the_books_agree_with_a_count_from_scratch(seed: int):
    rng = random.Random(seed)
    with engine.use("threaded", workers=1):
        engine.limit_pending(1 << 40)
        world, pushed = World(6), 0
        for _ in range(60):
            action = rng.random()
            held = [i for i, a in enumerate(world.arrays) if a is not None]
            if action < 0.5 and held:
                reads, writes = (rng.sample(held, min(len(held), rng.randint(0, 2))) for _ in "rw")
                engine.push(
                    world.run, [world.arrays[i] for i in reads], [world.arrays[i] for i in writes]
                )
                pushed += 1
            elif action < 0.6 and held:
                world.arrays[rng.choice(held)] = None
            elif action < 0.9:
                before = engine.stats()
                if before.pending:
                    world.step.release()
                    until(lambda before=before: engine.stats().pending < before.pending)
            with core.lock:
                assert engine.stats().pending_bytes == world.recount()
                check_invariants()
        for _ in range(pushed):
            world.step.release()
        engine.waitall()
        assert engine.stats().pending_bytes == 0


# -- the counts, without an engine ----------------------------------------------------------------


class Memory(WeightedVar):
    """Memory of a device whose account is given."""

    def __init__(self, nbytes: int, account: ByteAccount):
        super().__init__(nbytes)
        self.pool = account


def task_of(reads: tuple = (), writes: tuple = ()) -> Task:
    task = Task("t", reads, writes)
    task.prepare()
    return task


def test_what_counts_as_pending():
    books, account = Budget(1000), ByteAccount()
    a, b, tag = Memory(100, account), Memory(10, account), WeightedVar(0)

    def counts() -> tuple[int, int, int]:
        return books.pending, account.pending, books.peak

    make, use = task_of((tag,), (a, tag)), task_of((a, tag), (b,))
    books.pin(make)
    books.pin(make)
    assert counts() == (100, 100, 100)
    books.pin(use)
    assert counts() == (110, 110, 110)
    books.unpin(make)  # its contents are there, and there is a handle
    books.unpin(make)
    assert counts() == (10, 10, 110)
    handle = Handle(a)
    del handle
    books.drain()  # only the queue uses it now
    assert counts() == (110, 110, 110)
    books.unpin(use)
    assert counts() == (0, 0, 110) and b.filled and not a.pins
    again = task_of((b,), ())
    books.pin(again)  # filled and held: nothing to count
    assert counts() == (0, 0, 110) and b.pins == {again}
    unused = Handle(Memory(5, account))
    del unused
    assert not budget._dropped, "nothing is queued, so nothing changes"
