"""Parameter, Constant and ParameterDict: their states, their copies, their errors."""

import pickle

import numpy as np
import pytest

from d2lmini import autograd, cpu, init, nd
from d2lmini.base import MXNetError
from d2lmini.gluon import Constant, DeferredInitializationError, Parameter, ParameterDict

TWO = [cpu(0), cpu(1)]


class Counted(init.Initializer):
    """Counts up from 0, and notes what it was asked for."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def _init_weight(self, name, arr):
        self.calls.append((str(name), arr.shape, autograd.is_recording(), autograd.is_training()))
        arr[:] = nd.arange(arr.size).reshape(arr.shape)


# ---- the three states


@pytest.mark.parametrize("ask", ["data", "grad", "list_data", "list_grad"])
def test_deferred(ask):
    parameter = Parameter("w", shape=(2, 0), allow_deferred_init=True)
    parameter.initialize(ctx=TWO)
    assert parameter.list_ctx() == TWO
    with pytest.raises(DeferredInitializationError, match="'w' has not been initialized yet"):
        getattr(parameter, ask)()
    assert issubclass(DeferredInitializationError, MXNetError)
    with pytest.raises(ValueError, match=r"invalid shape: \(2, 0\). Please specify in_units"):
        parameter._finish_deferred_init()
    parameter.reset_ctx(cpu(1))
    assert parameter.list_ctx() == [cpu(1)]


def test_deferred_then_there():
    fill = Counted()
    parameter = Parameter("w", shape=(2, 0), allow_deferred_init=True)
    with autograd.record():
        parameter.initialize(fill, ctx=TWO)
        assert fill.calls == []
        parameter.shape = (2, 3)
        parameter._finish_deferred_init()
        parameter._finish_deferred_init()
    assert fill.calls == [("w", (2, 3), False, False)], "once, and not recorded"
    for ctx in TWO:
        assert parameter.data(ctx).context == ctx
        assert parameter.data(ctx).asnumpy().ravel().tolist() == [0, 1, 2, 3, 4, 5]
        assert parameter.grad(ctx).asnumpy().sum() == 0
    parameter.data(cpu(0))[:] = 0
    assert parameter.data(cpu(1)).sum().asscalar() == 15, "the copies are separate"


def test_set_data_while_deferred_is_its_first_value():
    parameter = Parameter("w", shape=(2, 0), dtype="float16", allow_deferred_init=True)
    parameter.initialize()
    parameter.set_data(nd.ones((2, 5)) * 7)
    assert parameter.shape == (2, 5)
    with pytest.raises(DeferredInitializationError):
        parameter.data()
    parameter._finish_deferred_init()
    assert parameter.data().dtype == np.float16
    assert parameter.data().asnumpy().tolist() == [[7] * 5] * 2


# ---- Constant


def test_constant():
    constant = Constant("c", [[1, 2], [3, 4]])
    assert repr(constant) == "Constant c (shape=(2, 2), dtype=<class 'numpy.float32'>)"
    with pytest.raises(RuntimeError, match="'c' has not been initialized"):
        constant.data()
    constant.initialize(ctx=TWO)
    assert constant.data(cpu(1)).asnumpy().tolist() == [[1, 2], [3, 4]]
    constant.data(cpu(0))[:] = 0
    assert constant.value.sum().asscalar() == 10
    constant.grad_req = "write"
    assert constant.grad_req == "null"
    with pytest.raises(RuntimeError, match="because grad_req='null'"):
        constant.grad()
    assert Constant("c", nd.array([1, 2], dtype="int32")).dtype == np.int32
    assert pickle.loads(pickle.dumps(constant)).list_ctx() == TWO


# ---- files


@pytest.fixture
def saved(tmp_path):
    """A ParameterDict with net_weight = ones((2, 3)) and net_bias = zeros(3), and its file."""
    params = ParameterDict("net_")
    params.get("weight", shape=(2, 3), init="ones")
    params.get("bias", shape=(3,), init="zeros")
    params.initialize()
    path = tmp_path / "net.params"
    params.save(path)
    return params, path


def like(**shapes):
    params = ParameterDict("net_")
    for name, shape in shapes.items():
        params.get(name, shape=shape, allow_deferred_init=True)
    return params


def test_errors_of_load(saved, tmp_path):
    _, path = saved
    both = {"weight": (2, 3), "bias": (3,)}
    for shapes, words in [
        ({**both, "gamma": (1,)}, "'net_gamma' is missing in file: .* 'net_weight', 'net_bias'"),
        ({"weight": (2, 3)}, "'net_bias' loaded from file: .* which has 'net_weight'"),
        ({"weight": (2, 4), "bias": (3,)}, r"expected \(2, 4\) vs saved \(2, 3\)"),
        ({"weight": (2, 3, 0), "bias": (3,)}, r"expected \(2, 3, 0\) vs saved \(2, 3\)"),
    ]:
        with pytest.raises(AssertionError, match=words):
            like(**shapes).load(path)
    like(**both, gamma=(1,)).load(path, allow_missing=True)
    like(weight=(2, 3)).load(path, ignore_extra=True)
    with pytest.raises(AssertionError, match=r"'net_weight' is missing .* 'foo_net_weight'"):
        like(**both).load(path, restore_prefix="foo_")
    there = like(**both)
    there.initialize(ctx=cpu(1))
    with pytest.raises(
        AssertionError,
        match=r"on \[cpu\(0\)\] because it was previous initialized on \[cpu\(1\)\]",
    ):
        there.load(path, ctx=cpu(0))
    there.load(path)
    assert there.list_ctx() == [cpu(1)]
    with pytest.raises(MXNetError, match=r"nothing\.params"):
        there.load(tmp_path / "nothing.params")
    nd.save(path, [nd.ones(1)])
    with pytest.raises(ValueError, match="arrays without names"):
        there.load(path)
