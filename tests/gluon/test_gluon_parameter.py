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


def made(name="w_weight", shape=(2, 3), ctx=None, init="ones", **how):
    parameter = Parameter(name, shape=shape, **how)
    parameter.initialize(init, ctx=ctx)
    return parameter


# ---- the three states


@pytest.mark.parametrize("ask", ["data", "grad", "list_data", "list_grad"])
def test_declared(ask):
    parameter = Parameter("w", shape=(2, 3))
    with pytest.raises(RuntimeError, match=r"'w' has not been initialized. Note that") as failed:
        getattr(parameter, ask)()
    assert failed.type is RuntimeError
    with pytest.raises(RuntimeError, match=r"'w' has not been initialized$"):
        parameter.list_ctx()
    with pytest.raises(ValueError, match="Cannot reset context for Parameter 'w'"):
        parameter.reset_ctx(cpu(1))
    with pytest.raises(AssertionError, match="'w' has not been initialized"):
        parameter.set_data(nd.ones((2, 3)))
    parameter.zero_grad()


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


def test_unknown_shape_must_be_allowed():
    for shape in [(2, 0), (2, -1), None, ()]:
        with pytest.raises(ValueError, match="Cannot initialize Parameter 'w' because it has inv"):
            Parameter("w", shape=shape).initialize()


def test_initialize_twice():
    parameter = made()
    with pytest.warns(UserWarning, match="'w_weight' is already initialized, ignoring. Set force"):
        parameter.initialize("zeros")
    assert parameter.data().sum().asscalar() == 6
    parameter.initialize("zeros", force_reinit=True)
    assert parameter.data().sum().asscalar() == 0


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


# ---- its arrays


def test_sparse_kinds():
    for what in ("stype", "grad_stype"):
        with pytest.raises(AssertionError, match=f"^{what} for Parameter 'w' must be one of"):
            Parameter("w", shape=(1,), **{what: "foo"})
    for stype in ("row_sparse", "csr"):
        with pytest.raises(MXNetError, match=f"'{stype}' is left out .* use 'default'"):
            Parameter("w", shape=(1,), stype=stype)
    parameter = made(grad_stype="row_sparse")
    assert parameter.data().stype == "default"
    with pytest.raises(AttributeError, match=r"row_sparse_data is left out"):
        parameter.row_sparse_data


class Store:
    """A Trainer whose store holds the values."""

    _kv_initialized = _update_on_kvstore = True

    def __init__(self):
        self._params_to_init = []
        self.resets = 0

    def _reset_kvstore(self):
        self.resets += 1


def test_setting_data_tells_the_store():
    parameter = made()
    trainer = Store()
    parameter._set_trainer(trainer)
    parameter.set_data(nd.zeros((2, 3)))
    assert trainer.resets == 1
    trainer._params_to_init = [parameter]
    parameter.set_data(nd.zeros((2, 3)))
    assert trainer.resets == 1


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
    with pytest.warns(UserWarning, match='"c" does not support grad_req other than "null", and'):
        constant.grad_req = "write"
    constant.grad_req = "null"
    with pytest.raises(RuntimeError, match="because grad_req='null'"):
        constant.grad()
    assert Constant("c", nd.array([1, 2], dtype="int32")).dtype == np.int32
    assert pickle.loads(pickle.dumps(constant)).list_ctx() == TWO


# ---- ParameterDict


def test_get():
    params = ParameterDict("net_")
    weight = params.get("weight", shape=(2, 0), allow_deferred_init=True)
    assert weight.name == "net_weight" and params["net_weight"] is weight
    assert params.get("weight", shape=(0, 5)) is weight and weight.shape == (2, 5)
    assert params.get("weight", init="ones").init == "ones"
    assert params.get("weight", dtype="float32", init=None) is weight
    for attribute, wanted, stored in [
        ("shape", (3, 5), r"\(2, 5\)"),
        ("shape", 3, r"\(2, 5\)"),
        ("dtype", "float16", "<class 'numpy.float32'>"),
        ("grad_req", "null", "write"),
        ("lr_mult", 5, "1.0"),
        ("init", "zeros", "ones"),
    ]:
        with pytest.raises(
            AssertionError,
            match=f"Cannot retrieve Parameter 'net_weight' .* attribute '{attribute}': "
            rf"desired '\(?{wanted if attribute != 'shape' else ''}.*' vs stored '{stored}'",
        ):
            params.get("weight", **{attribute: wanted})
    with pytest.raises(TypeError, match="foo"):
        params.get("other", foo=1)
    with pytest.raises(KeyError, match="x"):
        params["x"]


def test_dict_protocol_and_repr():
    assert repr(ParameterDict()) == "(\n\n)"
    params = ParameterDict("net_")
    assert repr(params) == "net_ (\n\n)"
    weight = params.get("weight", shape=(2, 3))
    constant = params.get_constant("c", [1, 2])
    assert list(params) == list(params.keys()) == ["net_weight", "net_c"]
    assert list(params.values()) == [weight, constant]
    assert dict(params.items()) == {"net_weight": weight, "net_c": constant}
    assert "net_weight" in params and "weight" not in params and len(params) == 2
    assert params.prefix == "net_"
    assert repr(params) == (
        "net_ (\n  Parameter net_weight (shape=(2, 3), dtype=<class 'numpy.float32'>)\n"
        "  Constant net_c (shape=(2,), dtype=<class 'numpy.float32'>)\n)"
    )


def test_get_constant():
    params = ParameterDict("net_")
    constant = params.get_constant("c", [1, 2])
    assert constant.name == "net_c"
    assert params.get_constant("c") is constant
    assert params.get_constant("c", [1, 2]) is constant
    assert params.get_constant("c", nd.array([1, 2])) is constant
    with pytest.raises(AssertionError, match="'net_c' already exists but its value"):
        params.get_constant("c", [1, 3])
    with pytest.raises(KeyError, match=r"No constant named 'net_d'. Please specify value"):
        params.get_constant("d")
    params.get("weight", shape=(1,))
    with pytest.raises(AssertionError, match="'net_weight' already exists but it is not a const"):
        params.get_constant("weight", [1])


def test_update():
    params, other = ParameterDict("a_"), ParameterDict("b_")
    weight = other.get("weight")
    params.update(other)
    params.update(other)
    assert params["b_weight"] is weight
    clash = ParameterDict("b_")
    clash.get("weight")
    with pytest.raises(AssertionError, match="different Parameters with the same name 'b_weight'"):
        params.update(clash)


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


def test_errors_of_save(saved, tmp_path):
    with pytest.raises(ValueError, match=r"Prefix 'foo_' is to be striped .* 'net_weight' does"):
        saved[0].save(tmp_path / "x", strip_prefix="foo_")
    with pytest.raises(RuntimeError, match="'net_weight' has not been initialized"):
        like(weight=(1,)).save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_errors_of_load(saved, tmp_path):
    _, path = saved
    both = {"weight": (2, 3), "bias": (3,)}
    for shapes, words in [
        ({**both, "gamma": (1,)}, "'net_gamma' is missing in file: .* 'net_weight', 'net_bias'"),
        ({"weight": (2, 3)}, "'net_bias' loaded from file: .* choices are: 'net_weight'"),
        ({"weight": (2, 4), "bias": (3,)}, r"expected \(2, 4\) vs saved \(2, 3\)"),
        ({"weight": (2, 3, 0), "bias": (3,)}, r"expected \(2, 3, 0\) vs saved \(2, 3\)"),
    ]:
        with pytest.raises(AssertionError, match=words):
            like(**shapes).load(path)
    like(**both, gamma=(1,)).load(path, allow_missing=True)
    like(weight=(2, 3)).load(path, ignore_extra=True)
    with pytest.raises(AssertionError, match="restore_prefix is 'foo_' but Parameters name 'net_w"):
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
    with pytest.raises(AssertionError, match="arrays without names"):
        there.load(path)
