"""A million tasks: every queue is empty afterwards and the process has not grown.

`make stress` runs the million; the ordinary run does the same with fewer tasks.
"""

from __future__ import annotations

import gc
import random

import pytest
from invariants import check_invariants

from d2lmini import engine, get_mem, nd, storage


def churn(n_tasks: int, seed: int) -> int:
    """Push `n_tasks` tasks over 30 Vars, and among them operations on small and larger arrays;
    how many were executed."""
    rng = random.Random(seed)
    tags = [engine.new_var() for _ in range(30)]
    counts = [0] * 30
    arrays = [nd.zeros((4,)), nd.zeros((64, 64)), nd.zeros((200, 300))]
    engine.waitall()
    before, pushed = engine.stats().executed, 0

    def bump(places: list[int]) -> None:
        for i in places:
            counts[i] += 1

    wanted = [0] * 30
    while pushed < n_tasks:
        writes = rng.sample(range(30), rng.randint(0, 2))
        reads = [tags[rng.randrange(30)] for _ in range(rng.randint(0, 3))]
        engine.push(
            lambda w=writes: bump(w), reads, [tags[i] for i in writes], priority=rng.randint(0, 2)
        )
        for i in writes:
            wanted[i] += 1
        pushed += 1
        if pushed % 4 == 0:
            x = rng.choice(arrays)
            x += 1
            x * 2
            pushed += 2
        if pushed % 5000 < 3:
            engine.waitall()
    engine.waitall()
    check_invariants()
    assert counts == wanted
    assert all(tag.idle and tag.error is None for tag in tags)
    stats = engine.stats()
    assert stats.pending == 0 and stats.pending_bytes == 0
    assert stats.executed - before == pushed
    return pushed


def run(n_tasks: int, parts: int, growth_mb: float) -> None:
    """Churn in parts; the process may grow in the first, not after it."""
    engine.waitall()
    live = storage.stats().live
    with engine.use("threaded", workers=4):
        churn(n_tasks // parts, seed=0)
        gc.collect()
        memory_mb, objects = get_mem(), len(gc.get_objects())
        for seed in range(1, parts):
            churn(n_tasks // parts, seed)
        gc.collect()
        assert get_mem() - memory_mb < growth_mb
        assert len(gc.get_objects()) - objects < 2000
    assert storage.stats().live == live


def test_twenty_thousand_tasks_leave_nothing_behind():
    run(20_000, parts=4, growth_mb=40)


@pytest.mark.stress
def test_a_million_tasks_leave_nothing_behind():
    run(1_000_000, parts=10, growth_mb=40)
