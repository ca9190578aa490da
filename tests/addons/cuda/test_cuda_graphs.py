"""Compiled nets as CUDA graphs: what is replayed gives what is computed, in every legal order.

The fake of CUDA records while a stream is captured, refuses what CUDA and CuPy refuse then, and
replays on the same addresses; memory that a graph still uses and somebody else was given is an
OrderError.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from fakes.cuda import fake_cuda
from gpu_kinds import fake_gpus, logical_gpus, using

from d2lmini import MXNetError, autograd, cpu, engine, gluon, gpu, nd
from d2lmini import random as mx_random
from d2lmini import symbol as mx_sym
from d2lmini.cuda import launches
from d2lmini.gluon import nn, rnn
from d2lmini.graph.cached_op import CachedOp

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")

STATIC = {"static_alloc": True, "static_shape": True}


@contextmanager
def gpus(n: int = 1, seed: int = 1, **options: Any) -> Iterator[Any]:
    """gpu(0) to gpu(n - 1), of the fake; gives its machine."""
    with fake_gpus(n, seed, **options) as fake:
        yield fake.machine


def made(layers: list, ctxs: list, how: dict | None = None, shape: tuple = (4, 6)) -> Any:
    """A net with the same weights each time."""
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize(ctx=ctxs)
    for ctx in ctxs:
        net(nd.zeros(shape, ctx=ctx))
    for i, p in enumerate(net.collect_params().values()):
        values = np.random.default_rng(i).normal(0, 0.4, p.shape)
        p.set_data(nd.array(np.ones(p.shape) if "var" in p.name else values))
    if how is not None:
        net.hybridize(**how)
    return net


def batch(i: int, ctx: Any, shape: tuple[int, ...] = (4, 6)) -> nd.NDArray:
    return nd.array(np.random.default_rng(100 + i).normal(size=shape), ctx=ctx)


def mlp() -> list:
    return [nn.Dense(8, activation="relu"), nn.Dense(5, activation="sigmoid"), nn.Dense(3)]


def learnt(ctxs: list, layers: Any, how: dict | None, steps: int = 6, shape=(4, 6)) -> tuple:
    """(losses, the parameters' values on each device, lines about graphs) after some steps."""
    mx_random.seed(3)
    net = made(layers(), ctxs, how, shape)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    losses = []
    for i in range(steps):
        parts = gluon.utils.split_and_load(batch(i, cpu(), shape), ctxs)
        with autograd.record():
            ls = [(net(part) ** 2).mean() for part in parts]
        autograd.backward(ls)
        trainer.step(1)
        losses += [float(l.asscalar()) for l in ls]
    values = [[x.asnumpy() for x in p.list_data()] for p in net.collect_params().values()]
    return losses, values, net.cuda_graphs() if how else []


def same(a: tuple, b: tuple) -> None:
    assert a[0] == b[0]
    for ours, theirs in zip(a[1], b[1], strict=True):
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.law
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [1, 2])
def test_a_net_learns_by_replays_what_it_learns_without(n, seed):
    with gpus(n, seed):
        ctxs = [gpu(i) for i in range(n)]
        with_graphs, without = (learnt(ctxs, mlp, how) for how in (STATIC, {}))
        same(with_graphs, without)
        assert len(with_graphs[2]) == 2 * n  # forward and backward on each
        for line in with_graphs[2]:
            assert line.endswith("graphs: 1, calls between them: 0; replays: 4"), line


def lenet() -> list:
    return [
        nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2, 2),
        nn.Dropout(0.3), nn.Dense(8), nn.LayerNorm(), nn.Dropout(0.5), nn.Dense(3),
    ]  # fmt: skip


def test_statistics_and_random_numbers_go_on_from_replay_to_replay():
    with gpus():
        with_graphs, without = (
            learnt([gpu(0)], lenet, how, shape=(4, 2, 8, 8)) for how in (STATIC, {})
        )
        same(with_graphs, without)
        # A result that a copy still reads when the next call comes: one more graph.
        assert all(line.endswith(("replays: 3", "replays: 4")) for line in with_graphs[2])


def test_what_was_given_out_is_not_overwritten_while_it_is_held():
    with gpus() as machine:
        net, plain = (made(mlp(), [gpu(0)], how) for how in (STATIC, {}))
        held = []
        for i in range(12):  # more than there are graphs
            held.append((net(batch(i, gpu(0))), plain(batch(i, gpu(0)))))
        before = machine.issued.copy()
        del held[3:9]
        for i in range(20, 24):
            held.append((net(batch(i, gpu(0))), plain(batch(i, gpu(0)))))
        for ours, theirs in held:
            np.testing.assert_array_equal(ours.asnumpy(), theirs.asnumpy())
        assert graphs_launched(machine.issued - before), "their memory is used again"


def graphs_launched(issued: Any) -> int:
    return sum(n for name, n in issued.items() if name.startswith("graph of"))


def test_parameters_that_are_put_elsewhere_are_followed():
    with gpus():
        net, plain = (made(mlp(), [gpu(0)], how) for how in (STATIC, {}))
        for i in range(12):
            if i % 3 == 2:
                for each in (net, plain):
                    each.collect_params().reset_ctx(gpu(0))
                    for k, p in enumerate(each.collect_params().values()):
                        p.set_data(nd.array(np.random.default_rng(i + k).normal(size=p.shape)))
            x = batch(i, gpu(0))
            np.testing.assert_array_equal(net(x).asnumpy(), plain(x).asnumpy())


class Sorts(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.sort(F.relu(x) + 1)


def test_what_cannot_be_recorded_runs_op_by_op_and_says_why():
    with gpus() as machine:
        net = Sorts()
        net.hybridize(**STATIC)
        for i in range(5):
            x = batch(i, gpu(0))
            want = np.sort(np.maximum(x.asnumpy(), 0) + 1)
            np.testing.assert_allclose(net(x).asnumpy(), want, rtol=1e-6)
        (line,) = net.cuda_graphs()
        assert "op by op, sort" in line
        assert not graphs_launched(machine.issued)
        # The stream is as it was: another net is recorded on it.
        other, plain = (made(mlp(), [gpu(0)], how) for how in (STATIC, {}))
        for i in range(4):
            x = batch(i, gpu(0))
            np.testing.assert_array_equal(other(x).asnumpy(), plain(x).asnumpy())
        assert graphs_launched(machine.issued)


class Attention(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        weights = F.softmax(F.batch_dot(x, x, transpose_b=True))
        return F.batch_dot(weights, x).sum(axis=2)


NETS = {
    "convolutions": (
        lambda: [nn.Conv2D(4, 3), nn.Conv2D(8, 3, groups=4), nn.Dense(2)],
        (2, 3, 7, 7),
    ),
    "attention": (lambda: [nn.Dense(6, flatten=False), Attention(), nn.Dense(2)], (2, 5, 6)),
    "lstm": (lambda: [rnn.LSTM(5, 2, layout="NTC", dropout=0.2)], (2, 4, 6)),
    "embedding": (lambda: [nn.Embedding(9, 4), nn.Dense(3)], (2, 4)),
}


@pytest.mark.law
@pytest.mark.parametrize("name", NETS)
def test_nets_of_all_kinds_learn_alike(name, engine_kind):
    layers, shape = NETS[name]
    with gpus(seed=7):
        found = []
        for how in (STATIC, {}):
            mx_random.seed(1)
            net = made(layers(), [gpu(0)], how, shape)
            values = []
            for i in range(5):
                x = nd.floor(4 + batch(i, gpu(0), shape).clip(-4, 4))
                with autograd.record():
                    y = net(x)
                y.backward()
                grads = [p.grad(gpu(0)) for p in net.collect_params().values()]
                values += [a.asnumpy() for a in (y, *grads)]
            found.append(values)
            for line in net.cuda_graphs():  # at a naive call the last `y` is held: one more graph
                assert line.endswith(
                    ("replays: 2", "replays: 3", "op by op, take", "op by op, argsort")
                ), line
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("how", [{}, {"static_alloc": True}, {"static_shape": True}])
def test_graphs_are_only_where_they_are_asked_for(how):
    with gpus() as machine:
        net = made(mlp(), [gpu(0)], how)
        for i in range(4):
            net(batch(i, gpu(0))).wait_to_read()
        assert net.cuda_graphs() == [] and not graphs_launched(machine.issued)
    net = made(mlp(), [cpu()], STATIC)
    net(batch(0, cpu()))
    assert net.cuda_graphs() == []


def test_memory_is_given_back_with_the_net():
    with gpus() as machine:
        ctx = gpu(0)
        nd.waitall()
        ctx.empty_cache()
        before = machine.used[0]
        net = made(lenet(), [ctx], STATIC, (4, 2, 8, 8))
        for i in range(6):
            with autograd.record():
                y = net(batch(i, ctx, (4, 2, 8, 8)))
            y.backward()
        want = y.asnumpy()
        nd.waitall()
        assert machine.used[0] > before
        del net
        gc.collect()
        nd.waitall()
        ctx.empty_cache()
        np.testing.assert_array_equal(y.asnumpy(), want)  # what is held stays
        del y
        gc.collect()
        ctx.empty_cache()
        assert machine.used[0] == before


@pytest.mark.parametrize("at", ["issue", "run"])
def test_a_device_that_fails_in_a_replay_is_told_to_all(at):
    with gpus(2) as machine:
        net, well = (made(mlp(), [gpu(i)], STATIC) for i in range(2))
        for i in range(3):
            want = net(batch(i, gpu(0))).asnumpy()
            np.testing.assert_array_equal(well(batch(i, gpu(1))).asnumpy(), want)
        name = next(n for n in machine.issued if n.startswith("graph of"))
        machine.fail(0, at=at, name=name, status=700)
        with pytest.raises(MXNetError, match=r"gpu\(0\) failed and cannot be used any more"):
            net(nd.array(np.ones((4, 6)), ctx=gpu(0))).asnumpy()
        want = well(batch(5, gpu(1))).asnumpy()
        assert np.isfinite(want).all()
        with pytest.raises(MXNetError, match="cannot be used any more"):
            engine.waitall()
            net(batch(1, gpu(0))).asnumpy()


@pytest.mark.law
@pytest.mark.parametrize("after", range(0, 27, 2))
def test_a_call_that_fails_wherever_it_is_leaves_the_rest_as_it_was(after):
    """At the first run, while it is recorded or in a replay: one call of CUDA's says no."""
    with gpus(seed=after) as machine:
        net, plain = (made(mlp(), [gpu(0)], how) for how in (STATIC, {}))
        batches = [batch(i, gpu(0)) for i in range(6)]
        want = [plain(x).asnumpy() for x in batches]
        machine.fail(0, at="issue", status=1, after=after, sticky=False)
        failed = 0
        for x, y in zip(batches, want):
            try:
                np.testing.assert_array_equal(net(x).asnumpy(), y)
            except MXNetError as problem:
                assert "cudaErrorInvalidValue" in str(problem)
                failed += 1
        assert failed + any("op by op" in line for line in net.cuda_graphs()) == 1
        assert not machine.faults


def broken_free(graph: Any, memory: Any) -> bool:
    """Ignores results in the graph's own memory that are alive."""
    spec = graph.lane.device.xp.empty((4, 3), "float32")
    for spares in graph.spares:
        if spares == []:
            place = graph.memory[3 * 2 + 1]
            spares.append(graph.lane.device.xp.ndarray(spec.shape, spec.dtype, place))
    return FITS(graph, memory)


def broken_address(graph: Any, memory: Any) -> bool:
    """Ignores the addresses of arrays."""
    return all(spares is None or spares for spares in graph.spares)


FITS = launches.Graph.fits
BROKEN = [
    ("fits", broken_free, test_what_was_given_out_is_not_overwritten_while_it_is_held),
    ("fits", broken_address, test_parameters_that_are_put_elsewhere_are_followed),
]


@pytest.mark.parametrize(("name", "broken", "test"), BROKEN)
def test_what_is_broken_on_purpose_is_found_out(name, broken, test, monkeypatch):
    monkeypatch.setattr(launches.Graph, name, broken)
    with pytest.raises((AssertionError, MXNetError)):  # other values, or no order
        test()


def test_other_devices_of_the_same_name_have_recordings_of_their_own():
    a, b = mx_sym.var("a"), mx_sym.var("b")
    f = CachedOp(mx_sym.relu(a * b + 2), STATIC)
    with fake_cuda(1, seed=3) as fake, using(fake):
        for i in range(3):
            with logical_gpus(1):
                for k in range(4):
                    x, y = batch(i, gpu(0), (3, 4)), batch(k, gpu(0), (3, 4))
                    want = np.maximum(x.asnumpy() * y.asnumpy() + 2, 0)
                    np.testing.assert_allclose(f(x, y).asnumpy(), want, rtol=1e-6)
                del x, y


@pytest.mark.parametrize("problem", [KeyError("no such"), AssertionError()])
def test_an_error_that_is_not_cudas_is_no_reason_against_a_graph(problem, monkeypatch):
    def refuse(*args):
        raise problem

    monkeypatch.setattr(launches, "Graph", refuse)
    with gpus(), pytest.raises(type(problem)):
        lane = engine.current.runners[gpu(0), "compute"]
        launches.CapturedGraphs("net")._capture(lane, None, [], set())


def test_a_part_of_another_graphs_result_is_copied_into_a_graph():
    """The whole of it lies where it lay; a part begins now here, now there."""
    with gpus():
        inside = made([nn.Dense(6)], [gpu(0)], STATIC, (12, 6))
        net, plain = (made(mlp(), [gpu(0)], how, (1, 6)) for how in (STATIC, {}))
        for i in range(40):
            rows = inside(batch(i, gpu(0), (12, 6)))
            part = rows[i % 12 : i % 12 + 1]
            np.testing.assert_array_equal(net(part).asnumpy(), plain(part).asnumpy())
        assert "op by op" not in str(net.cuda_graphs())


def test_scratch_that_is_outgrown_is_freed():
    """Programs keep places in it; they go when a larger one is made."""
    with gpus():
        nets = []
        for n in (64, 128, 256):
            nets.append(made([nn.Dense(n, activation="relu") for _ in range(3)], [gpu(0)], {}))
            for _ in range(3):
                nets[-1](batch(0, gpu(0), (4 * n, 6))).wait_to_read()
        lane = engine.current.runners[gpu(0), "compute"]
        kept = {place.mem.ptr for known in lane.launches.values() for place in known.fixed or ()}
        assert kept == {lane.scratch(1).data.mem.ptr}
