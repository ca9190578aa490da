"""Inline execution without a task: which calls it takes, and that nothing else is different."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import PACKAGE

from d2lmini import autograd, engine, gluon, nd
from d2lmini.base import instrument
from d2lmini.gluon import nn
from d2lmini.ndarray import dispatch
from d2lmini.ops.core import registry

#: Under the memory checker these calls are queued: a task's memory is what it watches.
not_checked = pytest.mark.skipif(
    os.environ.get("D2LMINI_CHECK_MEMORY") == "1", reason="queued under the memory checker"
)


class Short(instrument.Instrument):
    """Notes the operations that came by the short road."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def small(self, name: str, *_: Any) -> None:
        self.names.append(name)


def short(call: Callable[[], Any]) -> list[str]:
    """The operations of `call()` that took the short road."""
    with instrument.listening(Short()) as heard:
        call()
    nd.waitall()
    return heard.names


def dense() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    return net


LAYERS = ["FullyConnected", "Activation", "FullyConnected"]


@not_checked
def test_listeners_hear_of_a_number_without_a_plan_for_each(monkeypatch):
    monkeypatch.setattr(registry["_mul_scalar"], "plans", {})
    x = nd.ones(3)
    assert short(lambda: [x * (i + 0.5) for i in range(9)]) == ["_mul_scalar"] * 9
    assert len(registry["_mul_scalar"].plans) == 1


def test_a_small_net_takes_it_from_the_second_call_on():
    net, x = dense(), nd.ones((1, 3))
    net(x)
    assert short(lambda: net(x)) == LAYERS


def test_equal_attributes_of_other_types_are_others():
    x = nd.array([[1, 2], [3, 4]])
    for axis, expected in ((1, [3, 7]), (True, [3, 7]), (0, [4, 6]), (1, [3, 7])):
        for _ in range(2):
            assert x.sum(axis=axis).asnumpy().tolist() == expected
    assert x.clip(0, 2).asnumpy().tolist() == x.clip(False, 2.0).asnumpy().tolist()


def let_compute(monkeypatch, name: str, compute: Callable[..., Any]) -> None:
    """Put `compute` into the plans of the op."""
    for plan in registry[name].plans.values():
        monkeypatch.setattr(plan, "compute", compute)
        monkeypatch.setattr(plan, "kernel", None)


def test_what_fails_on_it_fails_on_the_long_road(monkeypatch):
    """Which keeps the error on the output."""
    x = nd.ones((2, 2))
    monkeypatch.setattr(registry["relu"], "plans", {})  # they hold what it computes
    nd.relu(x)
    let_compute(monkeypatch, "relu", lambda *_, **__: 1 / 0)
    y = nd.relu(x)
    with pytest.raises(Exception, match="division by zero"):
        y.wait_to_read()
    nd.waitall()
    assert (x + 1).asnumpy().sum() == 8


def test_a_finalizer_that_computes_in_the_midst_of_it_goes_the_long_road(monkeypatch):
    x, seen = nd.ones((2, 2)), []
    monkeypatch.setattr(registry["sigmoid"], "plans", {})  # they hold what it computes
    nd.sigmoid(x)
    compute = registry["sigmoid"].compute

    def interrupted(*args: Any, **attrs: Any) -> Any:
        if not seen:
            seen.append(x + 1)  # what a finalizer would do here
        return compute(*args, **attrs)

    let_compute(monkeypatch, "sigmoid", interrupted)
    with instrument.listening(Short()) as heard:
        y = nd.sigmoid(x)
        nd.waitall()
    assert heard.names == ["sigmoid"]
    assert seen[0].asnumpy().tolist() == [[2, 2], [2, 2]] and y.shape == (2, 2)


# -- writes into arrays that are there -------------------------------------------------------------


@pytest.fixture
def queued(monkeypatch) -> list[str]:
    """The names of the operations that a task is made for."""
    names: list[str] = []
    queue = dispatch.queue

    def noting(op: Any, *how: Any) -> Any:
        names.append(op.name)
        return queue(op, *how)

    monkeypatch.setattr(dispatch, "queue", noting)
    return names


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "x += y": lambda x, y: x.__iadd__(y),
    "x *= 2": lambda x, y: x.__imul__(2),
    "out=x": lambda x, y: nd.softmax(y, out=x),
    "out=x, x read": lambda x, y: nd.dot(x, x.reshape((2, 2)), out=x),
    "x[:] = y": lambda x, y: x.__setitem__(slice(None), y),
    "x[1] = y[0]": lambda x, y: x.__setitem__(1, y[0]),
    "x[0] = 3": lambda x, y: x.__setitem__(0, 3),
    "y.copyto(x)": lambda x, y: y.copyto(x),
}


@not_checked
@pytest.mark.parametrize("how", WRITES)
def test_a_write_into_a_tiny_array_takes_no_task(how: str, queued: list[str]):
    found = []
    for kind in ("naive", "threaded"):
        with engine.use(kind):
            x, y = nd.array([[1, 2], [3, 4]]), nd.array([[5, 6], [7, 9]])
            for _ in range(2):
                WRITES[how](x, y)
            queued.clear()
            version = x._chunk.version
            WRITES[how](x, y)
            assert x._chunk.version == version + 1
            found.append(x.asnumpy())
    assert not queued
    np.testing.assert_array_equal(*found)


@not_checked
@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_backward_writes_gradients_without_a_task(req: str, hybrid: bool, queued: list[str]):
    net, x = nn.Dense(3, in_units=4), nd.ones((2, 4))
    net.initialize()
    net.collect_params().setattr("grad_req", req)
    if hybrid:
        net.hybridize()
    for _ in range(3):
        queued.clear()
        with autograd.record():
            y = net(x)
        y.backward()
    assert not queued
    assert net.bias.grad().asnumpy().tolist() == [6 if req == "add" else 2] * 3


def test_a_write_waits_for_those_who_read():
    x, go, seen = nd.ones((2, 2)), threading.Event(), []

    def read() -> None:
        go.wait(30)
        seen.append(x._chunk.data.copy())

    engine.push(read, reads=[x])
    x += 1
    go.set()
    assert x.asnumpy().tolist() == [[2, 2], [2, 2]] and seen[0].tolist() == [[1, 1], [1, 1]]


def test_a_write_that_fails_leaves_what_was_there(monkeypatch):
    x, y = nd.ones((2, 2)), nd.ones((2, 2))
    nd.softmax(y, out=x)
    before = x.asnumpy()
    monkeypatch.setattr(registry["softmax"], "plans", {})
    nd.softmax(y, out=x)
    let_compute(monkeypatch, "softmax", lambda *_, **__: 1 / 0)
    nd.softmax(y, out=x)
    with pytest.raises(Exception, match="division by zero"):
        x.wait_to_read()
    assert (x._chunk.data == before).all()


# -- how long the way is ---------------------------------------------------------------------------


def calls(call: Callable[[], Any]) -> int:
    """How many Python functions of the library `call()` calls in this thread."""
    home, n = str(PACKAGE), 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal n
        n += event == "call" and frame.f_code.co_filename.startswith(home)

    nd.waitall()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return n


@not_checked
def test_calls_of_the_five_ways():
    x, wide, net = nd.ones((4, 4)), nd.ones((64, 64)), nn.Dense(3, in_units=4)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")

    def forward() -> Any:
        with autograd.record():
            return net(x).sum()

    def step() -> None:
        trainer.step(4)

    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "dot 4x4": (lambda: nd.dot(x, x), 8),
        "dot 64x64": (lambda: nd.dot(wide, wide), 25),
        "x + 1 tiny": (lambda: x + 1, 4),
        "x + 1 16 KB": (lambda: wide + 1, 25),
        "forward": (forward, 47),
        "backward": (lambda: heads.pop().backward(), 95),
        "step": (step, 105),
    }
    for _ in range(3):
        heads = [forward()]
        found = {name: calls(way) for name, (way, _) in ways.items()}
    over = {name: n for name, n in found.items() if n > ways[name][1]}
    assert not over, over
