"""The storage under attack: its books after every step, its limit, errors half-way, and the sharing
of one operation among workers. What it is for and how it is used: `test_storage.py`.
"""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import MB, all_asleep, run_program, until

from d2lmini import MXNetError, cpu, engine, nd, storage
from d2lmini.device.parallel import GRAIN, parallel_for
from d2lmini.device.storage import Chunk, Pool


class Thing:
    """Something whose life can be watched."""


@pytest.fixture
def pool() -> Pool:
    """A pool of its own, with nothing in it."""
    return Pool(cpu())


@pytest.fixture
def live():
    """What cpu() holds before the test, which may change its limit."""
    gc.collect()
    engine.waitall()
    storage.release_cached(cpu())
    yield storage.stats(cpu()).live
    storage.set_limit(cpu(), None)


def chunk_of(pool: Pool, nbytes: int) -> Chunk:
    chunk = Chunk(pool, nbytes)
    chunk.allocate((nbytes,), np.dtype("uint8"))
    return chunk


# -- the books -------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32))
def test_the_books_follow_every_step(seed: int):
    """live is the sum over living arrays, cached that of the blocks kept, peak the largest live."""
    rng, pool = random.Random(seed), Pool(cpu())
    pool.keep = rng.choice([0, 50_000, 1 << 30])
    chunks: list[Chunk] = []
    live = peak = 0
    for _ in range(40):
        if chunks and rng.random() < 0.45:
            live -= chunks.pop(rng.randrange(len(chunks))).nbytes
        else:
            nbytes = rng.choice([1, 8, 4095, 4096, 4097, 10_000, 70_000])
            if rng.random() < 0.2:
                chunks.append(Chunk(pool, nbytes))
                chunks[-1].adopt(np.empty(nbytes, np.uint8))
            else:
                chunks.append(chunk_of(pool, nbytes))
            live += nbytes
            peak = max(peak, live)
        stats = pool.stats()
        assert (stats.live, stats.peak) == (live, peak)
        assert stats.cached == sum(n * len(blocks) for n, blocks in pool._blocks.items())
        assert stats.cached <= pool.keep


# -- limits ----------------------------------------------------------------------------------------


def test_a_limit_is_kept_and_the_engine_goes_on(engine_kind: str, live: int):
    storage.set_limit(cpu(), live + 3 * MB)
    x = nd.ones((512, 512))
    y = nd.ones((512, 512))
    engine.waitall()
    with pytest.raises(MemoryError, match=r"1.0 MB asked for.* MB allowed are in use by arrays"):
        (x + nd.ones((512, 512)) + y).wait_to_read()
    with pytest.raises(MXNetError, match=r"out of memory on cpu.0."):
        nd.dot(nd.ones((512, 512)), y).wait_to_read()
    assert storage.stats(cpu()).live <= live + 3 * MB
    del x
    engine.waitall()
    until(all_asleep)
    assert (y + 1).asnumpy().max() == 2
    assert storage.stats(cpu()).limit == live + 3 * MB
    storage.set_limit(cpu(), None)
    assert (nd.ones((2048, 512)) + 1).asnumpy().max() == 2


def test_exhausted_memory_of_the_process():
    """The system itself refuses: the error is ordinary, and computing goes on."""
    pytest.importorskip("resource")
    code, out, err = run_program("""
        import os, resource
        from d2lmini import engine, nd
        from invariants import check_invariants
        x = nd.ones((1000, 1000))
        x.wait_to_read()
        used = 1 << 31
        if os.path.exists("/proc/self/statm"):
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        limit = used + (300 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        kept, error = [], None
        for _ in range(2000):
            kept.append(x + len(kept))
            try:
                kept[-1].wait_to_read()
            except MemoryError as problem:
                error = problem
                break
        print(type(error).__name__, len(kept) > 20)
        kept.clear()
        print(int((x + 1).sum().asscalar()))
        engine.waitall()
        check_invariants()
    """)
    assert (code, out.split("\n"), err) == (0, ["OutOfMemoryError True", "2000000"], "")


# -- one operation over several cores --------------------------------------------------------------


def test_parallel_for_runs_every_piece_once(engine_kind: str):
    for n in (0, 1, 2, 7, 100):
        done: list[int] = []
        parallel_for(n, done.append)
        assert sorted(done) == list(range(n))


@pytest.mark.parametrize("depth", [1, 2])
def test_parallel_for_helps_where_it_would_wait(depth: int):
    """The thread that has cut an operation has no more pieces to take; the other one cuts its own
    further, for two threads at once."""
    together = threading.Barrier(2, timeout=30)
    owner = []

    def cut(depth: int) -> None:
        if depth == 0:
            parallel_for(2, lambda _i: together.wait())
        else:
            parallel_for(1, lambda _i: cut(depth - 1))

    def piece(_i: int) -> None:
        together.wait()
        if threading.get_ident() not in owner:
            cut(depth)

    def run() -> None:
        owner.append(threading.get_ident())
        parallel_for(2, piece)

    a = engine.new_var()
    with engine.use("threaded", workers=2):
        engine.push(run, writes=[a])
        engine.wait_for_var(a)


@pytest.mark.parametrize("workers", [1, 3])
def test_parallel_for_raises_a_problem_after_the_others_have_ended(workers: int):
    ended: list[int] = []

    def piece(i: int) -> None:
        if i in (1, 3):
            raise ValueError(f"piece {i}")
        ended.append(i)

    def run() -> None:
        try:
            parallel_for(6, piece)
        finally:
            ended.append(-1)

    a = engine.new_var()
    with engine.use("threaded", workers=workers):
        engine.push(run, writes=[a], name="run")
        with pytest.raises(MXNetError, match="run: ValueError: piece"):
            engine.wait_for_var(a)
    assert ended[-1] == -1
    if workers > 1:
        assert sorted(ended[:-1]) == [0, 2, 4, 5]


def test_the_cut_does_not_depend_on_the_schedule():
    results = []
    for kind, options in (
        ("naive", {}),
        ("threaded", {"workers": 1}),
        ("threaded", {"workers": 4}),
    ):
        with engine.use(kind, **options):
            x = nd.arange(3 * GRAIN + 5) / 7
            results.append(((x * 1.1 + 2).asnumpy(), x.sum().asnumpy()))
    for others in results[1:]:
        for a, b in zip(results[0], others):
            assert a.tobytes() == b.tobytes()
