"""KVStore: places of sums, their order, keys, priorities; what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kinds import WITH_CPU, some_gpus

from d2lmini import MXNetError, cpu, engine, kvstore, nd, optimizer
from d2lmini.base import instrument

TWO = [cpu(0), cpu(1)]


class Tasks(instrument.Instrument):
    """(name, context, priority) of every task that was pushed."""

    def __init__(self):
        self.seen = []

    def push(self, task):
        self.seen.append((task.name, task.ctx, task.priority))

    def of(self, name):
        return [(ctx, priority) for n, ctx, priority in self.seen if n == name]


def on(ctxs, *numbers, n=3):
    return [nd.full((n,), x, ctx=ctx) for x, ctx in zip(numbers, ctxs, strict=True)]


def value_of(kv, key, n=3):
    out = nd.zeros((n,))
    kv.pull(key, out)
    return out.asnumpy().tolist()


# -- places ----------------------------------------------------------------------------------------


def test_local_adds_up_on_the_cpu(gpu_kind):
    with some_gpus(gpu_kind, 2, link_gb_s=100) as gpus:
        kv = kvstore.create("local")
        kv.init("w", nd.zeros((3,), ctx=gpus[1]))
        parts = on(gpus, 1, 2)
        with instrument.listening(Tasks()) as tasks:
            kv.pushpull("w", parts)
            nd.waitall()
        assert [ctx for ctx, _ in tasks.of("CopyGPU2CPU")] == gpus
        assert [ctx.is_cpu for ctx, _ in tasks.of("add_n")] == [True]
        assert [ctx for ctx, _ in tasks.of("CopyCPU2GPU")] == gpus
        assert kv._store["w"].context.is_cpu
        assert [x.asnumpy().tolist() for x in parts] == [[3, 3, 3]] * 2


def test_device_spreads_values_by_their_bytes(gpu_kind):
    with some_gpus(gpu_kind, 3, link_gb_s=100) as gpus:
        kv = kvstore.create("device")
        sizes = [8, 2, 3, 4, 6]
        kv.init(list(range(5)), [nd.zeros((n,)) for n in sizes])
        for key, n in enumerate(sizes):
            with instrument.listening(Tasks()) as tasks:
                kv.push(key, on(gpus, 1, 2, 3, n=n))
                nd.waitall()
            home = kv._store[key].context
            assert [ctx for ctx, _ in tasks.of("add_n")] == [home]
            assert len(tasks.of("CopyGPU2GPU")) == 2
        # 8 | 2 | 3; then 4 joins the 2 and 6 the 3.
        assert [kv._store[k].context.device_id for k in range(5)] == [0, 1, 2, 1, 2]
        assert [value_of(kv, k, n) for k, n in enumerate(sizes)] == [[6.0] * n for n in sizes]


def test_the_optimizer_makes_one_task_where_values_lie(gpu_kind):
    with some_gpus(gpu_kind, 2, link_gb_s=100) as gpus:
        kv = kvstore.create("device")
        kv.set_optimizer(optimizer.SGD(learning_rate=1.0, momentum=0.5))
        kv.init(list(range(6)), [nd.ones((3,))] * 6)
        with instrument.listening(Tasks()) as tasks:
            kv.push(list(range(6)), [on(gpus, 1, 2)] * 6)
            nd.waitall()
        assert [ctx for ctx, _ in tasks.of("_fused_update")] == gpus
        assert [value_of(kv, k) for k in range(6)] == [[-2] * 3] * 6
        states = kv._updater.states
        assert all(states[k].context == kv._store[k].context for k in range(6))


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["local", "device"])
@pytest.mark.parametrize("engine_kind", ["threaded", "naive"])
def test_sums_are_taken_in_the_order_of_the_list(gpu_kind, kind, engine_kind):
    """(((a + b) + c) + ...), whichever link is the faster one."""
    parts = np.random.default_rng(0).standard_normal((8, 1000)).astype("float32") * 1e3
    want = parts[0]
    for part in parts[1:]:
        want = want + part
    assert (want != parts[::-1].sum(0)).any()  # another order, another sum
    with some_gpus(gpu_kind, 8, link_gb_s=1) as gpus, engine.use(engine_kind):
        kv = kvstore.create(kind)
        kv.init(0, nd.zeros((1000,)))
        for _ in range(5):
            arrays = [nd.array(part, ctx=ctx) for part, ctx in zip(parts, gpus, strict=True)]
            kv.pushpull(0, arrays)
            assert all((x.asnumpy() == want).all() for x in arrays)


def test_priorities_reach_the_tasks(gpu_kind):
    with some_gpus(gpu_kind, 2, link_gb_s=100) as gpus:
        kv = kvstore.create("local")
        kv.init(["a", "b"], [nd.zeros((3,))] * 2)
        parts = [on(gpus, 1, 2), on(gpus, 3, 4)]
        with instrument.listening(Tasks()) as tasks:
            kv.push(["a", "b"], parts, priority=7)
            kv.pull(["a", "b"], parts, priority=-3)
            nd.ones((5000,), ctx=gpus[0]).wait_to_read()
        assert [p for _, p in tasks.of("CopyGPU2CPU")] == [7, 7, 6, 6]
        assert [p for _, p in tasks.of("CopyCPU2GPU")] == [-3, -3, -4, -4]
        assert [p for _, p in tasks.of("_ones")] == [0]  # the scope is over


# -- refusals --------------------------------------------------------------------------------------


@pytest.fixture(params=WITH_CPU)
def place(request):
    """A device of each kind, which all refuse the same."""
    with some_gpus(request.param, 1) as contexts:
        yield contexts[0]


@pytest.mark.parametrize("kind", ["local", "device"])
@pytest.mark.parametrize(
    ("call", "problem", "says"),
    [
        (lambda kv: kv.init(2, on(TWO, 1, 1)), MXNetError, "key 2 has 2 values; need one"),
        (lambda kv: kv.push(1, nd.ones((4,))), MXNetError, r"key 1 has shape \(3,\), an array \(4"),
        (lambda kv: kv.pull(1, nd.ones((4,))), MXNetError, r"pull: key 1 has shape \(3,\)"),
        (lambda kv: kv.push(2, nd.ones((3,))), MXNetError, "push: key 2 was not initialized"),
        (lambda kv: kv.push("a", nd.ones((3,))), MXNetError, "int and str keys cannot be mixed"),
        (lambda kv: kv.push(1, np.ones(3)), TypeError, "push: key 1 needs NDArrays, got ndarray"),
        (lambda kv: kv.push([1], nd.ones((3,))), TypeError, "push: 1 keys need a list"),
        (lambda kv: kv.push(1, []), ValueError, "key 1 has an empty list"),
        (lambda kv: kv.row_sparse_pull(1), AttributeError, "left out of d2lmini, pull gives whole"),
        (lambda kv: kv.set_gradient_compression({}), AttributeError, "left out of d2lmini, as few"),
        (lambda kv: kv.set_optimizer("sgd"), TypeError, "expected an Optimizer, got str"),
        (lambda kv: kvstore.create("dist_"), MXNetError, "unknown; 'dist_sync' trains"),
    ],
)
def test_it_refuses(place, kind, call, problem, says):
    kv = kvstore.create(kind)
    with place:
        kv.init(1, nd.zeros((3,)))
        kv.push(1, nd.ones((3,)))
        with pytest.raises(problem, match=says):
            call(kv)
    assert value_of(kv, 1) == [1, 1, 1]


def test_a_part_that_failed_is_missed_where_it_is_read(gpu_kind):
    with some_gpus(gpu_kind, 2, link_gb_s=100) as gpus:
        kv = kvstore.create("local")
        kv.init([0, 1], [nd.zeros((3,))] * 2)
        broken = on(gpus, 1, 2)
        engine.push(lambda: 1 / 0, writes=[broken[1]], ctx=gpus[1], name="broken")
        kv.push([0, 1], [broken, on(gpus, 3, 4)])
        with pytest.raises(MXNetError, match="broken: ZeroDivisionError"):
            value_of(kv, 0)
        assert value_of(kv, 1) == [7, 7, 7]
        kv.push(0, on(gpus, 1, 1))
        assert value_of(kv, 0) == [2, 2, 2]


def test_a_pushpull_with_a_wrong_out_pushes_nothing():
    kv = kvstore.create("local")
    kv.init(0, nd.zeros((3,)))
    with pytest.raises(MXNetError, match="shape"):
        kv.pushpull(0, nd.ones((3,)), out=nd.ones((4,)))
    assert value_of(kv, 0) == [0, 0, 0]
