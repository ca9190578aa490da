"""Sums over devices: which share a call, who computes them, in how many tasks, what is stored."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fakes.two_gpus import two_gpus

from d2lmini import MXNetError, cpu, engine, gpu, kvstore, nd, optimizer, virtual_gpus
from d2lmini.base import instrument
from d2lmini.kvstore.allreduce import BUCKET, SMALL, Sum, buckets, find_summer, takes, together

TWO = [cpu(0), cpu(1)]


class Pushed(instrument.Instrument):
    """The tasks that are pushed meanwhile."""

    def __init__(self):
        self.tasks = []

    def push(self, task):
        self.tasks.append(task)

    def count(self, name):
        return sum(task.name == name for task in self.tasks)


def listening():
    return instrument.listening(Pushed())


def tell(*arrays):
    return [x.asnumpy().tolist() for x in arrays]


def on(ctxs, *numbers, **how):
    return [nd.full(3, x, ctx=ctx, **how) for x, ctx in zip(numbers, ctxs, strict=True)]


# -- which sums share a call -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "most", "expected"),
    [
        ([], 10, []),
        ([SMALL, SMALL], 2 * SMALL, [[0, 1]]),
        ([SMALL, SMALL + 1, SMALL], 2 * SMALL, [[0, 2], [1]]),
        ([4, 6, 1], 10, [[0, 1], [2]]),
        ([4, 7, 1], 10, [[0], [1, 2]]),
        ([11, 12], 10, [[0], [1]]),
        ([3, 3, 3, 3, 3], 9, [[0, 1, 2], [3, 4]]),
        ([SMALL] * 17, BUCKET, [list(range(16)), [16]]),
    ],
)
def test_small_arrays_share_a_call_up_to_a_size(nbytes, most, expected):
    assert together(nbytes, most) == expected


def test_sums_of_which_one_needs_another_go_alone():
    a, b, c, d, e, f = (nd.ones(3) for _ in range(6))
    for sums, expected in [
        ([([a], [b]), ([c], [d])], [[0, 1]]),
        ([([a], [a]), ([c], [c])], [[0, 1]]),  # in place
        ([([a], [b]), ([a], [d])], [[0, 1]]),  # both only read a
        ([([a], [b]), ([c], [b])], [[0], [1]]),
        ([([a], [b]), ([b], [d])], [[0], [1]]),
        ([([a], [b]), ([c], [a]), ([e], [f])], [[0], [1], [2]]),
        ([([a, c], [b, b])], [[0]]),
    ]:
        assert buckets([Sum(*each) for each in sums]) == expected
    large = [nd.empty(BUCKET // 16) for _ in range(2)]
    assert buckets([Sum([x], [x]) for x in (a, large[0], b, large[1])]) == [[0, 2], [1], [3]]


def test_who_sums():
    f4, f8 = np.dtype("float32"), np.dtype("float64")
    assert find_summer(TWO, [f4]) is None and not takes(on(TWO, 1, 2), on(TWO, 1, 2))
    with virtual_gpus(2) as gpus:
        assert find_summer(gpus, [f4]) is None
    with two_gpus(1, nccl=False):
        assert find_summer([gpu(0), gpu(1)], [f4]) is None
    with two_gpus(1):
        both = [gpu(0), gpu(1)]
        assert find_summer(both, [f4, f4]) is not None
        assert find_summer(both, [f4, f8]) is None
        assert find_summer([gpu(0), cpu()], [f4]) is None
        assert takes(on(both, 1, 2), on(both, 0, 0))
        assert not takes(on(both, 1, 2), on(both[::-1], 0, 0))
        assert not takes(on(both, 1, 2), on(both, 0, 0, dtype="float64"))
        for kind, has in (("local", False), ("device", True), ("nccl", True)):
            assert kvstore.create(kind).has_sums(both) is has
        assert not kvstore.create("device").has_sums(TWO)


def test_a_sum_is_one_task_with_its_cost():
    with two_gpus(1):
        both = [gpu(0), gpu(1)]
        store = kvstore.create("device")
        store.init([5, 6, 7], [nd.zeros(3)] * 3)
        values = [on(both, 1, 2), on(both, 3, 4), [nd.full(3, 9, ctx=gpu(1))]]
        outs = [on(both, 0, 0), on(both, 0, 0), on(both[::-1], 0, 0)]
        with listening() as pushed:
            store.pushpull([5, 6, 7], values, outs, priority=4)
        (task,) = [task for task in pushed.tasks if task.name == "AllReduce"]
        cost = task.footprint()()
        assert (cost.flops, cost.nbytes) == (6, 2 * 24)  # each link carries both vectors
        assert task.priority == 4 and not any(task.keeps(x._chunk) for x in outs[0])
        assert [side.ctx for side in task.sides] == both
        assert [list(side.reads) for side in task.sides] == [
            [values[0][i]._chunk, values[1][i]._chunk] for i in range(2)
        ]
        assert tell(*outs[0], *outs[1], *outs[2]) == [[3] * 3] * 2 + [[7] * 3] * 2 + [[9] * 3] * 2
        pulled = on([cpu()] * 3, 0, 0, 0)
        store.pull([5, 6, 7], pulled)
        assert tell(*pulled) == [[3] * 3, [7] * 3, [9] * 3]
        store.set_updater(lambda key, total, value: value.__iadd__(total))
        with listening() as pushed:  # the store must update, so no library sums
            store.pushpull(5, values[0], outs[0])
        assert pushed.count("AllReduce") == 0 and tell(*outs[0]) == [[6] * 3] * 2
        n = SMALL // 4 + 1  # these share no call: each has the priority of its place
        store.init([0, 1], [nd.zeros(n)] * 2)
        with listening() as pushed:
            values = [[nd.ones(n, ctx=ctx) for ctx in both] for _ in range(2)]
            store.set_updater(None)
            store.pushpull([0, 1], values, priority=7)
        assert [t.priority for t in pushed.tasks if t.name == "AllReduce"] == [7, 6]


# -- stores ----------------------------------------------------------------------------------------


def test_names_of_stores():
    names = ("local", "LOCAL", "local_allreduce_cpu", "local_update_cpu", "device",
             "local_allreduce_device")  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [kvstore.create(name).type for name in names] == [n.lower() for n in names]
    with pytest.warns(UserWarning, match="type 'Other' is unknown; it works as 'local'"):
        assert not kvstore.create("Other")._spreads
    for name in ("horovod", "byteps", "p3", "dist_other"):
        with pytest.raises(MXNetError, match=f"'{name}' is unknown; 'dist_sync' trains"):
            kvstore.create(name)
    with pytest.raises(MXNetError, match="needs NVIDIA's library"):
        kvstore.create("nccl")
    with two_gpus(1, nccl=False), pytest.raises(MXNetError, match="needs NVIDIA's library"):
        kvstore.create("nccl")
    with pytest.raises(TypeError, match="must be a string"):
        kvstore.create(None)
    assert repr(kvstore.create()) == "<KVStore local, 0 keys>"
    assert "DistKVStore" in dir(kvstore) and not hasattr(kvstore, "NoStore")


@pytest.mark.parametrize(("kind", "copies"), [("local", 2), ("device", 0)])
def test_where_values_lie_at_first(kind, copies):
    """A store for the CPU fetches what lies elsewhere; one for devices leaves each value there."""
    with virtual_gpus(2) as gpus:
        store = kvstore.create(kind)
        x, there = nd.ones(3, ctx=gpus[1]), nd.ones(3, ctx=cpu(1))
        with listening() as pushed:
            store.init(["a", "b", "c"], [x, x, there])
        assert pushed.count("CopyGPU2CPU") == copies and pushed.count("_copy") == 3 - copies
        x[:] = 5
        there[:] = 6
        with listening() as pushed:
            store.push("a", [nd.full(3, i + 1, ctx=ctx) for i, ctx in enumerate(gpus)])
        assert pushed.count("CopyGPU2CPU") == copies
        outs = on([cpu()] * 3, 0, 0, 0)
        store.pull(["a", "b", "c"], outs)
        assert tell(*outs) == [[3] * 3, [1] * 3, [1] * 3]


def test_a_sum_is_written_without_a_copy():
    store = kvstore.create()
    store.init([0, 1], [nd.zeros(3), nd.zeros(3, dtype="float64")])
    for value, names in [
        (on(TWO, 1, 2), ["add_n"]),
        (on(TWO[:1], 1), ["_copyto"]),
    ]:
        with listening() as pushed:
            store.push(0, value)
        assert [task.name for task in pushed.tasks] == names
    store.push(1, on(TWO, 2.5, 3))  # summed in its dtype, then converted
    out = nd.zeros(3, dtype="float64")
    store.pull(1, out)
    assert tell(out) == [[5.5] * 3]


def test_the_optimizer_gets_all_keys_in_one_call_with_its_priority():
    store = kvstore.create()
    store.set_optimizer(optimizer.SGD(learning_rate=0.5, momentum=0.5))
    store.init([0, 1], [nd.ones(3), nd.ones(3)])
    values = [on(TWO, 1, 1), on(TWO, 0, 1)]
    with engine.use("threaded", inline_below=0), listening() as pushed:
        store.push([0, 1], values, priority=3)
    assert [(t.name, t.priority) for t in pushed.tasks if t.name != "_zeros"] == [
        ("add_n", 3), ("add_n", 2), ("_fused_update", 3),
    ]  # fmt: skip
    outs = [nd.zeros(3), nd.zeros(3)]
    store.pull([0, 1], outs)
    assert tell(*outs) == [[0] * 3, [0.5] * 3]
