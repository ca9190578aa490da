"""Writes between forward and backward: the gradient is that of the values which were recorded.

A write hands the old value to the steps of the tape that still need it, and copies only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import d2lmini
from d2lmini import autograd, engine, gluon, kv, nd
from d2lmini.base import MXNetError
from d2lmini.device.storage import Chunk
from d2lmini.gluon import nn

MODES: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "queued": None,
    "naive": None,
    "bulk": None,
    "lazy": None,
    "hybridized": {},
    "static": {"static_alloc": True, "static_shape": True},
    "mirror": {"backward_do_mirror": True},
}
SCOPES: dict[str, Callable[[], Any]] = {
    "queued": lambda: engine.use("threaded", inline_below=0),
    "naive": lambda: engine.use("naive"),
    "bulk": lambda: engine.bulk(20),
    "lazy": d2lmini.lazy,
}
every_mode = pytest.mark.parametrize("mode", MODES)


def hybridized(net: nn.HybridBlock, mode: str) -> nn.HybridBlock:
    flags = MODES[mode]
    if flags is not None:
        net.hybridize(**flags)
    return net


def block(mode: str, function: Callable) -> nn.HybridBlock:
    return hybridized(nn.HybridLambda(function), mode)


def leaf(values: Any, ctx: Any = None) -> nd.NDArray:
    x = nd.array(values, ctx=ctx)
    x.attach_grad()
    return x


def fill_by_a_task(x: nd.NDArray) -> None:
    def fill() -> None:
        x._chunk.data[...] = 9

    x.wait_to_read()
    engine.push(fill, reads=[x], writes=[x])


def pull_from_a_store(x: nd.NDArray) -> None:
    store = kv.create("local")
    store.init("x", nd.full(x.shape, 9))
    store.pull("x", out=x)


WRITES: dict[str, Callable[[nd.NDArray], Any]] = {
    "whole": lambda x: x.__setitem__(slice(None), 9),
    "in place": lambda x: x.__iadd__(1),
    "a part": lambda x: x.__setitem__(1, 5.0),
    "by index array": lambda x: x.__setitem__([0, 1], 5.0),
    "through a view": lambda x: x[1].__imul__(3),
    "through reshape": lambda x: x.reshape((-1,)).__setitem__(0, 3),
    "through detach": lambda x: x.detach().__setitem__(0, 3),
    "as out=": lambda x: nd.exp(nd.ones(x.shape), out=x),
    "by random numbers": lambda x: nd.random.uniform(shape=x.shape, out=x),
    "as a copy's target": lambda x: nd.ones(x.shape).copyto(x),
    "by an update": lambda x: nd.sgd_update(x, nd.ones(x.shape), lr=1, wd=0, out=x),
    "by a task": fill_by_a_task,
    "by a store": pull_from_a_store,
    "twice": lambda x: (x.__iadd__(1), x.__iadd__(1)),
}


@every_mode
@pytest.mark.parametrize("how", WRITES)
def test_an_input_may_be_written_in_every_way(how: str, mode: str):
    """w.grad is 2 x: each mode computes x * 2 again, or keeps it, or reads x."""
    with SCOPES.get(mode, nullcontext)():
        net = block(mode, lambda F, x, w: (x * 2) * w)
        x, w = nd.array([1.0, 2.0]), leaf([3.0, 4.0])
        with autograd.record():
            y = net(x, w)
        WRITES[how](x)
        y.backward()
        assert w.grad.asnumpy().tolist() == [2, 4]


#: What is written after the forward (x, w, y or a function of them), what it computes from x and w.
PROGRAMS: dict[str, tuple[str, Callable]] = {
    "a weight": ("w", lambda F, x, w: x * w * w),
    "a leaf": ("x", lambda F, x, w: F.tanh(x) * w),
    "an output": ("y", lambda F, x, w: F.tanh(x * w)),
    "a reshaped output": (
        "y", lambda F, x, w: F.reshape(F.FullyConnected(x, w, no_bias=True, num_hidden=2), (-1,))
    ),
    "what relu is judged by": ("x", lambda F, x, w: F.relu(x) * w),
    "relu's result": ("y", lambda F, x, w: F.relu(x * w)),
    "what is sliced": ("x", lambda F, x, w: F.slice_axis(x, axis=0, begin=0, end=1) * w),
    "one of many inputs": ("x", lambda F, x, w: F.stack(x * w, w * x, x)),
    "a maximum": ("x", lambda F, x, w: F.max(x * w, axis=1)),
    "what is normalized": ("x", lambda F, x, w: F.LayerNorm(x, F.sum(w, axis=0), F.max(w, axis=0))),
}  # fmt: skip


@every_mode
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_backward_reads_may_be_written(name: str, mode: str):
    written, function = PROGRAMS[name]
    grads = []
    for write in (False, True):
        with SCOPES.get(mode, nullcontext)():
            net = block(mode, function)
            x, w = leaf([[1.0, -2.0], [3.0, 5.0]]), leaf([[2.0, 7.0], [-3.0, 1.0]])
            with autograd.record():
                y = net(x, w)
            if write:
                {"x": x, "w": w, "y": y}[written][:] = -77
            y.backward()
            grads.append([x.grad.asnumpy(), w.grad.asnumpy()])
    np.testing.assert_array_equal(grads[1], grads[0])


@every_mode
def test_gradients_of_gradients_and_a_second_backward(mode: str):
    with SCOPES.get(mode, nullcontext)():
        net = block(mode, lambda F, x: x * x * x)
        x = leaf([1.0, 2.0])
        with autograd.record():
            y = net(x)
            x_before = x.copy()
        with autograd.pause():
            x[:] = 50
        with autograd.record():
            (g,) = autograd.grad(y, [x], create_graph=True)
            with autograd.pause():
                x[:] = 60
        g.backward(retain_graph=True)
        assert x.grad.asnumpy().tolist() == [6, 12]
        x[:] = 70
        g.backward()
        assert x.grad.asnumpy().tolist() == [6, 12]
        assert x_before.asnumpy().tolist() == [1, 2]


# -- what is copied, and when ----------------------------------------------------------------------


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The elements that each copy had at first; None for all of an array."""
    found: list[Any] = []
    cells_in = Chunk.cells_in

    def watched(chunk: Chunk, begin: int, end: float) -> Any:
        cells = cells_in(chunk, begin, end)
        found.extend(first for first, _, _ in cells)
        return cells

    monkeypatch.setattr(Chunk, "cells_in", watched)
    with engine.use("threaded", inline_below=0):  # inline calls ask twice
        yield found


def mlp() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dropout(0.5), nn.BatchNorm(), nn.Dense(4))
    return net


def convolutions() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: F.reshape(x, (0, 1, 2, 3))), nn.Conv2D(2, 2))
    net.add(nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2, 1, 1), nn.Dense(2))
    return net


def recurrent() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: F.reshape(x, (0, 3, 2))))
    net.add(gluon.rnn.LSTM(4, layout="NTC"), nn.Dense(2))
    return net


@pytest.mark.parametrize("mode", ["eager", "lazy", "hybridized", "static", "mirror"])
@pytest.mark.parametrize("make", [mlp, convolutions, recurrent])
def test_a_training_loop_copies_nothing(make: Callable, mode: str, copies: list):
    with d2lmini.lazy() if mode == "lazy" else nullcontext():
        net = make()
        net.initialize()
        hybridized(net, mode)
        x, rows = nd.zeros((5, 6)), nd.zeros((3, 5, 6))
        net(x)
        trainer = gluon.Trainer(net.collect_params(), "adam")
        for step in range(4):
            x[:] = nd.random.uniform(shape=x.shape)
            rows[step % 3] = x
            with autograd.record():
                loss = (net(x) ** 2).sum() + net(rows[step % 3]).sum()
            loss.backward()
            trainer.step(5)
        nd.waitall()
    assert copies == []


def test_only_what_is_needed_is_copied(copies: list):
    """What a rule does not need, and other parts of the memory, are written as they are."""
    x, c = leaf([1, 2]), nd.ones(2)
    with autograd.record():
        h = x + c
        y = h * 2
    for written in (c, h, y, x):
        written[:] = 77
    rows = nd.zeros((100, 2))
    rows[1] = 5
    with autograd.record():
        z = x * rows[1]
    for i in range(100):
        if i != 1:
            rows[i] = 7
    rows[2:] += 7
    assert copies == []
    rows[1, 0:1] = 6
    rows[1] = 8
    assert copies == [2]
    autograd.backward([y, z])
    assert x.grad.asnumpy().tolist() == [7, 7]


# -- places ----------------------------------------------------------------------------------------


def test_a_write_that_names_only_the_memory_is_refused_in_backward():
    x, w = nd.array([1.0, 2.0]), leaf([3.0, 4.0])
    with autograd.record():
        y = x * w
    engine.push(lambda: None, writes=[x._chunk])
    with autograd.record():
        later = x * w
    x[:] = 9  # too late for `y`, in time for `later`
    with pytest.raises(MXNetError, match=r"(?s)_mul: a value of shape \(2,\).*recorded at.*y = x"):
        y.backward()
    later.backward()
    assert w.grad.asnumpy().tolist() == [1, 2]
