"""The pool: aligned blocks by size class, books exact to the byte, limits, release; and the hooks
that tell of it."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from d2lmini import Context, engine, nd, storage
from d2lmini.base import instrument
from d2lmini.device.storage import ALIGNMENT, SMALL


@pytest.fixture
def ctx():
    """A context of its own, so that the books start at nothing."""
    ctx = Context("cpu", random.randrange(1000, 10**6))
    yield ctx
    storage.set_limit(ctx, None)


def test_large_arrays_are_aligned_and_blocks_are_used_again(ctx):
    addresses = set()
    for _ in range(5):
        x = nd.ones((1000, 300), ctx=ctx)
        address = np.from_dlpack(x).__array_interface__["data"][0]
        assert address % ALIGNMENT == 0
        addresses.add(address)
        del x
    assert len(addresses) <= 2
    assert storage.stats(ctx).live == 0 and storage.stats(ctx).cached >= 1_200_000


def test_the_books_are_exact_under_random_use_by_several_threads(ctx):
    """live is what the arrays held hold; peak is no less than any sum there ever was."""
    kept: list[list] = [[] for _ in range(4)]

    def use(i: int) -> None:
        rng = random.Random(i)
        for _ in range(150):
            n = rng.choice((1, 10, SMALL // 4 - 1, SMALL // 4, 5000, 60_000))
            kept[i].append(nd.zeros((n,), ctx=ctx) + 1)
            if rng.random() < 0.6:
                kept[i].pop(rng.randrange(len(kept[i])))

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.waitall()
    arrays = [x for part in kept for x in part]
    stats = storage.stats(ctx)
    assert stats.live == sum(x.size * 4 for x in arrays)
    assert stats.peak >= stats.live
    kept.clear()
    del arrays
    assert storage.stats(ctx).live == 0
    storage.reset_peak(ctx)
    assert storage.stats(ctx).peak == 0


def test_under_a_limit_the_cache_is_released_before_an_error(ctx):
    storage.set_limit(ctx, 3_000_000)
    nd.zeros((500_000,), ctx=ctx).wait_to_read()  # 2 MB, then cached
    x = nd.zeros((650_000,), ctx=ctx)  # 2.6 MB of another class fit only without that
    x.wait_to_read()
    too_much = nd.zeros((650_000,), ctx=ctx)
    with pytest.raises(MemoryError, match=r"2\.6 MB asked for, 2\.6 MB of 3\.0 MB allowed"):
        too_much.wait_to_read()
    del x
    assert nd.zeros((650_000,), ctx=ctx).sum().asscalar() == 0


def test_a_listener_that_raises_is_dropped_with_a_warning():
    class Broken(instrument.Instrument):
        def start(self, task, worker):
            raise RuntimeError("out of order")

    with pytest.warns(UserWarning, match="Broken raised"), instrument.listening(Broken()):
        nd.ones((2, 2)).wait_to_read()
        nd.waitall()
        assert instrument.listeners == ()
    assert (nd.ones(2) + 1).asnumpy().tolist() == [2, 2]
