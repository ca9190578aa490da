"""Sums over GPUs, by NCCL and by copies, against the fake of CUDA's order: they come after what
they add up, and before what reads them, in every schedule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes.two_gpus import errors_of, two_gpus

from d2lmini import MXNetError, engine, gpu, kvstore, nd, profile
from d2lmini.cuda import nccl, streams

N = 64


def run_sums(seed: int) -> None:
    """Arrays on both GPUs are changed, added up over the GPUs, read, copied and dropped."""
    rng = random.Random(seed)
    store = kvstore.create("device")
    keys = range(3)
    theirs = np.arange(2 * len(keys) * N, dtype=np.float32).reshape(2, len(keys), N) % 17
    ours = [[nd.array(theirs[i, k], ctx=gpu(i)) for k in keys] for i in range(2)]
    store.init(list(keys), [nd.zeros(N) for _ in keys])
    for _ in range(15):
        k, factor = rng.choice(keys), rng.randrange(1, 5)
        kind = rng.randrange(4)
        if kind == 0:
            i = rng.randrange(2)
            ours[i][k] = (ours[i][k] * factor + 1) % 17
            theirs[i, k] = (theirs[i, k] * factor + 1) % 17
        elif kind == 1:
            store.pushpull(k, [ours[i][k] for i in range(2)])
            theirs[:, k] = theirs[:, k].sum(axis=0)
            for i in range(2):
                ours[i][k] %= 17
            theirs[:, k] %= 17
        elif kind == 2:
            outs = [nd.empty(N, ctx=gpu(i)) for i in range(2)]
            store.pushpull(k, [ours[i][k] for i in range(2)], out=outs)
            for i in range(2):
                ours[i][k] += factor  # what the sum still reads
                ours[i][(k + 1) % 3] = outs[i] % 17
            theirs[:, (k + 1) % 3] = theirs[:, k].sum(axis=0) % 17
            theirs[:, k] += factor
        else:
            i = rng.randrange(2)
            ours[i][k] = ours[1 - i][k].as_in_context(gpu(i))
            theirs[i, k] = theirs[1 - i, k]
    for i in range(2):
        for k in keys:
            np.testing.assert_array_equal(ours[i][k].asnumpy(), theirs[i, k], f"seed {seed}")
    engine.waitall()


@pytest.mark.parametrize("has_nccl", [True, False])
def test_sums_equal_numpy(has_nccl: bool):
    for seed in range(20):
        with two_gpus(seed, nccl=has_nccl) as machine:
            run_sums(seed)
            assert not machine.errors, f"seed {seed}"
            assert bool(machine.issued["allReduce"]) == has_nccl
            assert not [name for name, _ in machine.waits if "sum" in name or "compute" in name]


# -- broken on purpose -----------------------------------------------------------------------------


def sums_wait_for_nothing(monkeypatch) -> None:
    wait = streams.Stream.wait

    def wait_elsewhere(self, marks):
        if self.lane.name != "sum":
            wait(self, marks)

    monkeypatch.setattr(streams.Stream, "wait", wait_elsewhere)


def nobody_waits_for_sums(monkeypatch, but_for: int = -1) -> None:
    """Only the GPU `but_for` does."""
    end = streams.Stream.end

    def end_elsewhere(self, *marks):
        if self.lane.name != "sum" or self.device.ordinal == but_for:
            end(self, *marks)

    monkeypatch.setattr(streams.Stream, "end", end_elsewhere)


def only_one_gpu_waits_for_sums(monkeypatch) -> None:
    nobody_waits_for_sums(monkeypatch, but_for=0)


def sums_on_the_wrong_stream(monkeypatch) -> None:
    """Those of another GPU."""
    sum_up = nccl.NcclWorker.sum_up

    def swapped(self, contexts: Any, arrays: Any) -> None:
        sum_up(self, contexts[::-1], arrays)

    monkeypatch.setattr(nccl.NcclWorker, "sum_up", swapped)


def one_group_for_each(monkeypatch) -> None:
    """The calls of one thread are not put in a group."""
    clique = nccl.NcclWorker._clique

    def ungrouped(self, ordinals):
        self._library.groupStart = self._library.groupEnd = lambda: None
        return clique(self, ordinals)

    monkeypatch.setattr(nccl.NcclWorker, "_clique", ungrouped)


BROKEN = (
    sums_wait_for_nothing, nobody_waits_for_sums, only_one_gpu_waits_for_sums,
    sums_on_the_wrong_stream, one_group_for_each,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*dropped unseen")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__)
def test_broken_sums_are_found_out(broken: Callable, monkeypatch):
    broken(monkeypatch)
    found, seed = False, 0
    while not found:
        assert seed < 20, "never found out"
        with two_gpus(seed) as machine:
            raised = errors_of(run_sums, seed)
            while more := errors_of(engine.waitall):
                raised += more
            wrong = [e for e in raised if isinstance(e, AssertionError) or "NCCL" in str(e)]
            found = bool(machine.take_errors() or wrong)
            assert found or not raised, raised
            seed += 1


# -- small arrays together -------------------------------------------------------------------------


def test_a_failure_is_told_to_all_of_a_call_and_the_next_one_is_well():
    with two_gpus(1):
        store = kvstore.create("device")
        store.init([0, 1], [nd.zeros(3), nd.zeros(3)])
        bad = nd.random.normal(0, -1, shape=(3,), ctx=gpu(0))
        outs = [[nd.zeros(3, ctx=gpu(i)) for i in range(2)] for _ in range(2)]
        ones = [nd.ones(3, ctx=gpu(i)) for i in range(2)]
        store.pushpull([0, 1], [[bad, ones[1]], ones], out=outs)
        for x in (*outs[0], *outs[1], bad):
            with pytest.raises(MXNetError, match="scale must be 0 or more"):
                x.asnumpy()
        store.pushpull([0, 1], [ones, ones], out=outs)
        got = nd.zeros(3)
        store.pull(0, got)
        assert [x.asnumpy().tolist() for x in (*outs[0], *outs[1], got)] == [[2] * 3] * 5


def test_a_trace_knows_what_a_sum_and_a_copy_of_it_move():
    """On two devices each passes on half, summed up on the way, then the half that is complete."""
    with two_gpus(1):
        store = kvstore.create("device")
        store.init([0, 1], [nd.zeros(N), nd.zeros(10 * N)])
        ours = [[nd.ones(size, ctx=gpu(i)) for i in range(2)] for size in (N, 10 * N)]
        with profile() as trace:
            store.pushpull([0, 1], ours)
    sums = [operation for operation in trace.operations if operation.name == "AllReduce"]
    assert [(chunk.flops, chunk.nbytes) for chunk in sums] == [(11 * N, 2 * 11 * 4 * N)]
    kept = [operation for operation in trace.operations if operation.name == "_copyto"]
    assert sum(chunk.nbytes for chunk in kept) == 2 * 11 * 4 * N  # read and written
    assert not any(each.flops for each in kept)
