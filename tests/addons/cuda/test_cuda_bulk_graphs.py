"""Bulk segments as CUDA graphs: a training step is one launch, and learns what it learns without.

On the fake of CUDA, as in `test_cuda_graphs`, with its checks of order and memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from test_cuda_graphs import STATIC, batch, gpus, graphs_launched, lenet, made, mlp, same

from d2lmini import MXNetError, autograd, engine, gluon, gpu, instrument, nd
from d2lmini import random as mx_random
from d2lmini.cuda import cuda_graph, replay_tasks
from d2lmini.gluon import nn

pytestmark = [
    pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++"),
    pytest.mark.usefixtures("threaded"),
]


@pytest.fixture
def threaded():
    """Only this engine has bulk segments."""
    with engine.use("threaded", workers=2):
        yield


class WithLoss(nn.HybridBlock):
    def __init__(self, layers: list):
        super().__init__()
        self.net = nn.HybridSequential()
        self.net.add(*layers)

    def hybrid_forward(self, F, x):
        return (self.net(x) ** 2).mean()


def step(net: Any, trainer: Any, x: Any, n: int) -> Any:
    """One step, its tasks in segments of up to `n`; the loss."""
    with engine.bulk(n) if n else nullcontext():
        with autograd.record():
            loss = net(x)
        loss.backward()
        trainer.step(1)
    return loss


def start(
    layers: Any,
    how: dict | None = STATIC,
    optimizer: str = "adam",
    shape: tuple = (4, 6),
    **kw: Any,
) -> tuple[Any, Any]:
    """A net with its loss, the same each time, and its trainer."""
    mx_random.seed(3)
    net = made([WithLoss(layers())], [gpu(0)], how, shape)
    return net, gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.05, **kw})


def learnt(
    layers: Any, n: int, how: dict | None = STATIC, shape: tuple = (4, 6), steps: int = 7, **kw: Any
) -> tuple:
    """(losses, the parameters' values, lines about graphs) after some steps at changing rates."""
    net, trainer = start(layers, how, shape=shape, **kw)
    losses = []
    for i in range(steps):
        trainer.set_learning_rate(0.1 / (i + 1))
        losses.append(float(step(net, trainer, batch(i, gpu(0), shape), n).asscalar()))
    values = [[p.data().asnumpy()] for p in net.collect_params().values()]
    return losses, values, net.cuda_graphs() if how else []


def test_a_step_is_one_launch():
    with gpus() as machine:
        net, trainer = start(mlp)
        issued = []
        for i in range(6):
            x = batch(i, gpu(0))
            engine.waitall()
            before = machine.issued.copy()
            step(net, trainer, x, 100)
            engine.waitall()
            issued.append(machine.issued - before)
        for each in issued[3:]:  # the first makes the optimizer's states, too
            besides = ("copy", "copy from host", "record", "wait_event")
            kernels = Counter({name: n for name, n in each.items() if name not in besides})
            assert graphs_launched(kernels) == sum(kernels.values()) == 1, each
        lines = net.cuda_graphs()
        assert [line for line in lines if line.startswith("bulk: ")], lines


OPTIMIZERS = {
    "sgd": {"wd": 0.01},
    "nag": {"momentum": 0.9},
    "adam": {"clip_gradient": 0.1},
    "rmsprop": {},
    "ftrl": {},
    "adagrad": {},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_in_bulk_learn_what_steps_task_by_task_learn(optimizer):
    """At rates that change from step to step: what is in the graph are not the numbers."""
    with gpus(seed=len(optimizer)):
        options = {"optimizer": optimizer, **OPTIMIZERS[optimizer]}
        in_bulk, singly = (learnt(mlp, n, how, **options) for n, how in ((100, STATIC), (0, {})))
        same(in_bulk, singly)
        line = [line for line in in_bulk[2] if line.startswith("bulk: ")][-1]
        without_states = optimizer == "sgd"  # that are made in the first segment
        assert line.endswith(f"graphs: 1, calls between them: 0; replays: {4 + without_states}")


@pytest.mark.parametrize("n", [2, 3, 100])
@pytest.mark.parametrize("seed", range(3))
def test_statistics_and_random_numbers_go_on(n, seed):
    with gpus(seed=seed):
        shape = (4, 2, 8, 8)
        in_bulk, singly = (learnt(lenet, k, how, shape) for k, how in ((n, STATIC), (0, {})))
        same(in_bulk, singly)
        assert any(line.startswith("bulk: ") for line in in_bulk[2])


def test_what_is_held_is_not_overwritten():
    with gpus():
        losses = []
        for n, how in ((100, STATIC), (0, {})):
            net, trainer = start(mlp, how)
            held = [step(net, trainer, batch(i, gpu(0)), n) for i in range(9)]
            del held[2:5]
            held += [step(net, trainer, batch(i, gpu(0)), n) for i in range(9, 14)]
            losses.append([loss.asnumpy() for loss in held])
        np.testing.assert_array_equal(*losses)


def test_operations_beside_the_net_are_part_of_it():
    """A loss of its own, a gradient that is looked at, a view; and memory that comes anew."""
    with gpus():
        found = []
        for n, how in ((100, STATIC), (0, {})):
            net = made(mlp(), [gpu(0)], how)
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
            values = []
            for i in range(8):
                if i == 5:
                    net.collect_params().reset_ctx(gpu(0))
                x, y = batch(i, gpu(0)), batch(i + 50, gpu(0), (4, 3))
                with engine.bulk(n) if n else nullcontext():
                    with autograd.record():
                        z = net(x)
                        loss = ((z - y) ** 2).mean(axis=1)
                    loss.backward()
                    norm = net[0].weight.grad().norm()
                    part = z[1:3] * 2
                    y += 1
                    trainer.step(4)
                values += [a.asnumpy() for a in (loss, norm, part, y)]
            found.append(values)
            lines = [line for line in net.cuda_graphs() if line.startswith("bulk: ")]
            assert not how or any("replays: 0" not in line for line in lines), lines
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_batches_may_be_parts_of_arrays():
    """Of different sizes, at other places each time; one of them is written."""
    with gpus():
        found = []
        for n, how in ((100, STATIC), (0, {})):
            net, trainer = start(mlp, how)
            values = []
            for i in range(14):
                rows = (40, 12, 200)[i % 3]
                data = batch(i % 3, gpu(0), (rows, 6))
                x, y = data[i % 5 : i % 5 + 4], data[6:8]
                with engine.bulk(n) if n else nullcontext():
                    with autograd.record():
                        loss = net(x)
                    loss.backward()
                    if i % 2:
                        y += 1
                    trainer.step(4)
                values += [loss.asnumpy(), data.asnumpy()]
            found.append(values)
            lines = [line for line in net.cuda_graphs() if line.startswith("bulk: ")]
            assert not how or any("replays: 0" not in line for line in lines), lines
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_memory_is_given_back_with_the_net():
    with gpus() as machine:
        nd.waitall()
        gpu(0).empty_cache()
        before = machine.used[0]
        net, trainer = start(mlp)
        for i in range(6):
            loss = step(net, trainer, batch(i, gpu(0)), 100)
        want = loss.asnumpy()
        assert any("replays: 3" in line for line in net.cuda_graphs())
        del net, trainer
        gc.collect()
        nd.waitall()
        gpu(0).empty_cache()
        np.testing.assert_array_equal(loss.asnumpy(), want)  # what is held stays
        del loss
        gc.collect()
        gpu(0).empty_cache()
        assert machine.used[0] == before


class Sorts(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.sort(x * 1.5)


def test_what_cannot_be_recorded_runs_task_by_task():
    with gpus() as machine:
        layers = lambda: [nn.Dense(5), Sorts(), nn.Dense(2)]  # noqa: E731
        in_bulk, singly = (learnt(layers, n, how) for n, how in ((100, STATIC), (0, {})))
        same(in_bulk, singly)
        assert any(line.startswith("bulk: ") and "op by op" in line for line in in_bulk[2])
        assert not graphs_launched(machine.issued)


def test_random_operations_between_run_task_by_task():
    with gpus():
        found = []
        for n, how in ((100, STATIC), (0, {})):
            mx_random.seed(1)
            net = made(mlp(), [gpu(0)], how)
            values = []
            for i in range(6):
                x = batch(i, gpu(0))
                with engine.bulk(n) if n else nullcontext():
                    y = net(x) + nd.random.normal(shape=(4, 3), ctx=gpu(0))
                values.append(y.asnumpy())
            found.append(values)
        np.testing.assert_array_equal(*found)


def test_whoever_listens_is_told_of_each_task():
    class Names(instrument.Instrument):
        def __init__(self) -> None:
            self.begun: list[str] = []

        def start(self, task: Any, worker: str) -> None:
            self.begun.append(task.name)

    with gpus():
        net, trainer = start(mlp)
        for i in range(4):
            names = Names()
            x = batch(i, gpu(0))
            with instrument.listening(names):
                step(net, trainer, x, 100)
                engine.waitall()
            assert "_fused_update" in names.begun and len(names.begun) >= 4


def test_a_value_that_is_missing_fails_what_needs_it_alone():
    with gpus():
        net, trainer = start(mlp)
        for i in range(4):
            step(net, trainer, batch(i, gpu(0)), 100)
        bad = nd.random.normal(0, -1, shape=(4, 6), ctx=gpu(0))  # fails as it runs
        with engine.bulk(100):
            y = net(bad)
            z = net(batch(5, gpu(0)))
        with pytest.raises(MXNetError, match="scale must be 0 or more"):
            y.asnumpy()
        assert np.isfinite(z.asnumpy()).all()


@pytest.mark.parametrize("after", range(0, 60, 3))
def test_a_segment_that_fails_wherever_it_is_leaves_the_rest_as_it_was(after):
    """One call of CUDA's says no: an error of that step, or none; what comes next is right."""
    with gpus(seed=after) as machine:
        batches = [batch(i, gpu(0)) for i in range(7)]
        plain, other = start(mlp, {}, optimizer="sgd")
        want = []
        for x in batches:
            step(plain, other, x, 0)
            want.append([p.data().asnumpy() for p in plain.collect_params().values()])
        net, trainer = start(mlp, optimizer="sgd")
        params = net.collect_params().values()
        engine.waitall()
        machine.fail(0, at="issue", status=1, after=after, sticky=False)
        failed = 0
        for x, values in zip(batches, want):
            try:
                step(net, trainer, x, 100).wait_to_read()
                engine.waitall()
                for p, value in zip(params, values):
                    np.testing.assert_array_equal(p.data().asnumpy(), value)
            except MXNetError as problem:
                assert "cudaErrorInvalidValue" in str(problem)
                failed += 1
                with suppress(MXNetError):
                    engine.waitall()
                for p, value in zip(params, values):  # go on as if that step had been done
                    p.set_data(nd.array(value))
        assert failed + any("op by op" in line for line in net.cuda_graphs()) == 1
        assert not machine.faults


@pytest.mark.parametrize("after", range(0, 60, 7))
def test_a_device_that_fails_in_a_segment_stays_dead(after):
    with gpus(seed=after) as machine:
        net, trainer = start(mlp)
        engine.waitall()
        machine.fail(0, at="issue", status=719, after=after)
        with pytest.raises(MXNetError, match="cannot be used any more"):
            for i in range(7):
                step(net, trainer, batch(i, gpu(0)), 100).asnumpy()
        with suppress(MXNetError):
            engine.waitall()
        with pytest.raises(MXNetError, match="cannot be used any more"):
            net(nd.ones((4, 6), ctx=gpu(0))).asnumpy()


def frozen(wiring: Any) -> Any:
    """Numbers are those of the first step for ever."""
    wiring.numbers = FIRST.setdefault(wiring.key, wiring.numbers)
    return ARRAYS(wiring)


def broken_fits(graph: Any, inputs: Any, outputs: Any) -> bool:
    """Ignores results in the graph's own memory that are alive."""
    graph.borrowed = []
    return FITS(graph, inputs, outputs)


FIRST: dict = {}
ARRAYS = replay_tasks.Wiring.arrays.fget
FITS = cuda_graph.CapturedGraph.fits


@pytest.mark.parametrize(
    ("where", "name", "broken", "test"),
    [
        (
            replay_tasks.Wiring, "arrays", property(frozen),
            lambda: test_steps_in_bulk_learn_what_steps_task_by_task_learn("adam"),
        ),
        (cuda_graph.CapturedGraph, "fits", broken_fits, test_what_is_held_is_not_overwritten),
    ],
    ids=["numbers", "held"],
)  # fmt: skip
def test_what_is_broken_on_purpose_is_found_out(where, name, broken, test, monkeypatch):
    monkeypatch.setattr(where, name, broken)
    with pytest.raises((AssertionError, MXNetError)):
        test()
