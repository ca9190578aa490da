"""`dist_sync` over the GPUs of several processes by NCCL, against the fake of CUDA's order.

The processes are threads here: each has GPUs of its own, on which a thread of its own sums; what
MPI does for them, a `Job` does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from fakes.cuda import fake_cuda
from fakes.two_gpus import errors_of

from d2lmini import MXNetError, autograd, cpu, engine, gluon, gpu, kvstore, nd
from d2lmini.cuda import module
from d2lmini.cuda.device import logical_gpus
from d2lmini.cuda.nccl import NcclWorker
from d2lmini.distributed import dist
from d2lmini.engine.core import Var
from d2lmini.graph import partitions

N = 64


class Job:
    """What `mpi.World` is to one of `size` processes; `shared` is common to all of them."""

    def __init__(self, rank: int, size: int, shared: dict[str, Any]):
        self.rank, self.size, self.shared = rank, size, shared
        self.order = Var()
        self.staged = 0  # sums that went by the host

    def agree(self, plan: Any) -> None:
        # What does not go by NCCL runs on one thread for all, and waits for nobody.
        if "NCCL" in plan[0] and any(p != plan for p in self._all(plan)):
            raise MXNetError("dist: the ranks differ")

    def meet(self, make: Any, count: int) -> tuple[Any, int, int]:
        made = self._all(make() if self.rank == 0 else None)[0]
        counts = self._all(count)
        return made, sum(counts[: self.rank]), sum(counts)

    def _all(self, value: Any) -> list[Any]:
        self.shared["values"][self.rank] = value
        self.shared["barrier"].wait(60)
        found = list(self.shared["values"])
        self.shared["barrier"].wait(60)
        return found

    def broadcast(self, arrays: Any) -> None:
        """All begin alike in these tests."""

    def all_reduce(self, sources: Any, targets: Any) -> None:
        self.staged += 1
        for x, copies in zip(sources, targets):
            for y in copies:
                np.copyto(y, x)


@contextmanager
def processes(monkeypatch, size: int, each: int = 1, seed: int = 0, nccl: bool = True) -> Iterator:
    """(machine, jobs, the contexts of each process): `size` processes, with `each` GPUs."""
    n = size * each
    with fake_cuda(n, seed=seed, nccl=nccl) as cupy, module.using(cupy):
        gpus = logical_gpus(n)
        for first in range(0, n, each):
            some: Any = gpus.devices[first : first + each]
            sums = NcclWorker(some) if each > 1 else None
            for device in some:
                device.sums = sums
        shared = {"barrier": threading.Barrier(size), "values": [None] * size}
        jobs = [Job(r, size, shared) for r in range(size)]
        turn = iter(jobs * 100)
        monkeypatch.setattr(dist, "world", lambda: next(turn))
        with gpus:
            yield (
                cupy.machine,
                jobs,
                [[gpu(r * each + i) for i in range(each)] for r in range(size)],
            )


def run_sums(seed: int, places: list[list]) -> None:
    """As in `test_cuda_sums`, by several processes."""
    rng = random.Random(seed)
    size, each, keys = len(places), len(places[0]), range(3)
    stores = [kvstore.create("dist_sync") for _ in places]
    theirs = np.arange(size * each * len(keys) * N, dtype=np.float32).reshape(size, each, 3, N) % 17
    ours = [
        [[nd.array(theirs[p, i, k], ctx=ctx) for i, ctx in enumerate(there)] for k in keys]
        for p, there in enumerate(places)
    ]
    for store in stores:
        store.init(list(keys), [nd.zeros(N) for _ in keys])
    for _ in range(12):
        kind, factor = rng.randrange(4), rng.randrange(1, 5)
        if kind == 0:
            p, i, k = rng.randrange(size), rng.randrange(each), rng.choice(keys)
            ours[p][k][i] = (ours[p][k][i] * factor + 1) % 17
            theirs[p, i, k] = (theirs[p, i, k] * factor + 1) % 17
            continue
        some = [rng.choice(keys)] if kind == 1 else list(keys)
        outs: Any = [[ours[p][k] for k in some] for p in range(size)]
        if kind == 3:
            outs = [[[nd.empty(N, ctx=ctx) for ctx in there] for k in some] for there in places]
        for p, store in enumerate(stores):
            store.pushpull(some, [ours[p][k] for k in some], out=outs[p], in_turns=kind == 2)
            for k, results in zip(some, outs[p]):
                ours[p][k] = [y % 17 for y in results]
        theirs[:, :, some] = theirs[:, :, some].sum(axis=(0, 1)) % 17
    for p in range(size):
        for k in keys:
            for i in range(each):
                np.testing.assert_array_equal(ours[p][k][i].asnumpy(), theirs[p, i, k], f"{seed}")
    engine.waitall()


@pytest.mark.parametrize(("size", "each"), [(2, 2), (1, 2), (3, 1)])
def test_sums_over_processes_equal_numpy(size, each, monkeypatch):
    for seed in range(2):
        with processes(monkeypatch, size, each, seed) as (machine, jobs, places):
            run_sums(seed, places)
            assert not machine.errors, f"seed {seed}"
            assert machine.issued["allReduce"] >= size * each
            assert not any(job.staged for job in jobs), "nothing came to the host"


@pytest.mark.filterwarnings("ignore:.*dropped unseen")
@pytest.mark.parametrize("broken", ["waits for nothing", "in no group"])
def test_broken_sums_are_found_out(broken, monkeypatch):
    if broken == "in no group":
        join = NcclWorker.join

        def ungrouped(self, *args):
            self._library.groupStart = self._library.groupEnd = lambda: None
            return join(self, *args)

        monkeypatch.setattr(NcclWorker, "join", ungrouped)
    else:
        monkeypatch.setattr(NcclWorker, "_mark", staticmethod(lambda lanes, sides: None))
    for seed in range(10):
        with processes(monkeypatch, 2, 2, seed) as (machine, _, places):
            raised = errors_of(run_sums, seed, places)
            while more := errors_of(engine.waitall):
                raised += more
            wrong = [e for e in raised if isinstance(e, AssertionError) or "NCCL" in str(e)]
            if machine.take_errors() or wrong:
                return
            assert not raised
    raise AssertionError("never found out")


def test_what_nccl_does_not_take_goes_by_the_host(monkeypatch):
    with processes(monkeypatch, 2) as (machine, jobs, places):
        stores = [kvstore.create("dist_sync") for _ in places]
        x = [nd.ones(N, ctx=there[0]) for there in places]
        for store in stores:
            store.init([0, 1], [nd.zeros(N)] * 2)

        def staged(call: Any) -> list[int]:
            before = [job.staged for job in jobs]
            for p, store in enumerate(stores):
                call(p, store)
            engine.waitall()
            return [job.staged - b for job, b in zip(jobs, before)]

        assert staged(lambda p, kv: kv.pushpull(0, x[p])) == [0, 0]
        assert [y.asnumpy()[0] for y in x] == [2, 2]
        # The value is the sum, and stays on the GPU until the host wants it.
        value = nd.zeros(N)
        stores[1].pull(0, value)
        assert value.asnumpy()[0] == 2 and stores[1]._store[0].context == gpu(1)
        assert staged(lambda p, kv: kv.push(0, x[p])) == [1, 1]
        assert stores[1]._store[0].context == cpu()
        assert staged(lambda p, kv: kv.pushpull(0, x[p], out=nd.zeros(N))) == [1, 1]
        assert staged(lambda p, kv: kv.pushpull(0, nd.ones(N))) == [1, 1]
        # One key so and one so: the one goes by NCCL, the other one not.
        assert staged(lambda p, kv: kv.pushpull([0, 1], [x[p], nd.ones(N)])) == [1, 1]
        with kvstore.thin_link(latency_s=1e-6):
            assert staged(lambda p, kv: kv.pushpull(0, x[p])) == [1, 1]
        assert machine.issued["allReduce"] == 4
    with processes(monkeypatch, 2, nccl=False) as (machine, jobs, places):
        kv = kvstore.create("dist_sync")
        kv.init(0, nd.zeros(N))
        kv.pushpull(0, nd.ones(N, ctx=gpu(0)))
        engine.waitall()
        assert jobs[0].staged == 1


def learnt(place: list, kv: str) -> gluon.Trainer:
    """A Trainer whose parameters are the same every time."""
    params = [gluon.Parameter(f"w{i}", shape=(4, i + 1), init="ones") for i in range(5)]
    for p in params:
        p.initialize(ctx=place)
    return gluon.Trainer(params, "adam", {"learning_rate": 0.1}, kvstore=kv)


def step(trainer: gluon.Trainer, part: Any) -> None:
    with autograd.record():
        ls = []
        for ctx, x in part:
            data = [p.data(ctx) for p in trainer._params]
            ls.append(sum(((w * x) ** 2).sum() for w in data))
    autograd.backward(ls)
    trainer.step(1)


def test_trainers_of_two_processes_learn_as_one(monkeypatch):
    x = [1.0, 2.0, -3.0, 0.5]
    with processes(monkeypatch, 2, 2) as (machine, jobs, places):
        trainers = [learnt(place, "dist_sync") for place in places]
        for _ in range(3):
            for p, trainer in enumerate(trainers):
                step(trainer, [(ctx, x[2 * p + i]) for i, ctx in enumerate(places[p])])
        found = [
            [p.data(c).asnumpy() for p in t._params] for t, pl in zip(trainers, places) for c in pl
        ]
        assert machine.issued["allReduce"] == 3 * 5 * 4 and not jobs[0].staged
    one = learnt([cpu(i) for i in range(4)], "device")
    one._scale = 0.5  # the two of them divide by their number
    for _ in range(3):
        step(one, [(cpu(i), x[i]) for i in range(4)])
    for each in found:
        for a, p in zip(each, one._params):
            np.testing.assert_allclose(a, p.data(cpu(0)).asnumpy(), rtol=1e-5)


def test_ranks_that_differ_are_told_before_the_gpus_begin(monkeypatch):
    with processes(monkeypatch, 2) as (machine, _, places):
        stores = [kvstore.create("dist_sync") for _ in places]
        outs = [nd.ones(2 + p, ctx=there[0]) for p, there in enumerate(places)]
        for p, store in enumerate(stores):
            store.init(0, nd.zeros(2 + p))
            store.pushpull(0, outs[p])
        for x in outs:
            with pytest.raises(MXNetError, match="the ranks differ"):
                x.asnumpy()
        assert not machine.issued["allReduce"]


def test_compiled_backward_runs_in_parts_where_gradients_travel(monkeypatch):
    """To other processes, as to other devices."""
    monkeypatch.setattr(partitions, "LEAST_US", 0.0)
    with processes(monkeypatch, 2):
        tasks = []
        for kind in ("device", "dist_sync"):
            net = gluon.nn.HybridSequential()
            net.add(*[gluon.nn.Dense(4, in_units=4) for _ in range(6)])
            net.initialize()
            net.hybridize()
            trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=kind)
            for _ in range(2):
                with autograd.record():
                    y = net(nd.ones((2, 4)))
                engine.waitall()
                before = engine.stats().executed
                y.backward()
                engine.waitall()
            tasks.append(engine.stats().executed - before)
            trainer.step(1)
            engine.waitall()
        assert tasks[1] > tasks[0]
