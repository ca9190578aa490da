"""The short road of operations on tiny arrays: who goes it, and that it is the same to all eyes."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d2lmini import instrument, nd
from d2lmini.gluon import nn
from d2lmini.ops.core import registry


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


def test_a_small_net_takes_it_from_the_second_call_on():
    net, x = dense(), nd.ones((1, 3))
    net(x)
    assert short(lambda: net(x)) == LAYERS


def test_a_net_of_which_a_graph_was_made_takes_it_too():
    # The compiler asks for the same plans, with attributes that are not remembered by their words.
    for each in ("FullyConnected", "Activation"):
        registry[each].plans.clear()
    compiled, net, x = dense(), dense(), nd.ones((1, 3))
    compiled.hybridize()
    compiled(x)
    net(x)
    assert short(lambda: net(x)) == LAYERS


def test_it_takes_no_bias_for_an_input_left_out():
    layer, x = nn.Dense(3, use_bias=False), nd.ones((2, 4))
    layer.initialize()
    layer(x)
    assert short(lambda: layer(x)) == ["FullyConnected"]


def test_equal_attributes_of_other_types_are_others():
    x = nd.array([[1, 2], [3, 4]])
    for axis, expected in ((1, [3, 7]), (True, [3, 7]), (0, [4, 6]), (1, [3, 7])):
        for _ in range(2):
            assert x.sum(axis=axis).asnumpy().tolist() == expected
    assert x.clip(0, 2).asnumpy().tolist() == x.clip(False, 2.0).asnumpy().tolist()


def test_attributes_that_are_copied_are_nobodys_plan():
    op = registry["FullyConnected"]
    inputs = nd.ones((1, 2)), nd.ones((3, 2)), nd.ones(3)
    _, attrs = op.bind(inputs, {"num_hidden": 3})
    assert op.bind(inputs, {"num_hidden": 3})[1] is attrs
    for other in (copy.copy(attrs), copy.deepcopy(attrs), pickle.loads(pickle.dumps(attrs))):
        assert other == attrs and type(other) is dict


def test_a_view_in_another_shape_shares_memory_and_keeps_its_own():
    x = nd.ones((2, 3))
    flat = x.reshape((6,))
    for _ in range(3):
        assert (x + 1).shape == (2, 3)
        assert (flat + 1).shape == (6,)
        assert nd.tanh(flat).shape == (6,) and nd.tanh(x).shape == (2, 3)
    assert short(lambda: nd.tanh(x)) == ["tanh"]


def test_an_operation_that_gives_its_input_gives_a_copy_of_it_each_time():
    x = nd.ones((2, 3))
    for _ in range(3):
        y = nd.Dropout(x, p=0.5)  # not while training
        z = x.transpose((0, 1))
        y += 1
        z += 1
    assert x.asnumpy().tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_fails_on_it_fails_on_the_long_road(monkeypatch):
    """Which keeps the error on the output."""
    x = nd.ones((2, 2))
    monkeypatch.setattr(registry["relu"], "plans", {})  # they hold what it computes
    nd.relu(x)
    monkeypatch.setattr(registry["relu"], "compute", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(registry["relu"], "ufunc", None)
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

    monkeypatch.setattr(registry["sigmoid"], "compute", interrupted)
    with instrument.listening(Short()) as heard:
        y = nd.sigmoid(x)
        nd.waitall()
    assert heard.names == ["sigmoid"]
    assert seen[0].asnumpy().tolist() == [[2, 2], [2, 2]] and y.shape == (2, 2)


def test_numpys_errors_are_the_callers_setting_in_every_thread():
    found = []

    def divide() -> None:
        with np.errstate(divide="raise"):
            found.append((1 / nd.zeros((2,))).asnumpy().tolist())
            with pytest.raises(FloatingPointError):
                np.ones(2) / np.zeros(2)

    threads = [threading.Thread(target=divide) for _ in range(3)]
    for each in threads:
        each.start()
    divide()
    for each in threads:
        each.join()
    assert found == [[np.inf, np.inf]] * 4


def test_attributes_given_once_are_those_of_each_call_after_it():
    x = nd.array([[-1, 2], [3, -4]])
    for _ in range(4):
        for least, expected in ((0, [[0, 1], [1, 0]]), (-2, [[-1, 1], [1, -2]])):
            assert nd.clip(x, a_min=least, a_max=1).asnumpy().tolist() == expected
            assert nd.clip(x, least, 1).asnumpy().tolist() == expected
    assert short(lambda: nd.clip(x, a_min=0, a_max=1)) == ["clip"]
