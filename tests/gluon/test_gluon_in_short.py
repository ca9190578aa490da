"""What every net passes through - names, states of parameters, calls, steps - in tests of some
milliseconds each, which are worth running first."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import MXNetError, autograd, cpu, gluon, init, nd, sym
from d2lmini.gluon import Parameter, ParameterDict, Trainer, nn
from d2lmini.symbol.naming import NameManager

TWO = [cpu(0), cpu(1)]


@pytest.fixture(autouse=True)
def fresh_names():
    with NameManager():
        yield


def tell(*arrays):
    return [x.asnumpy().tolist() for x in arrays]


# -- names -----------------------------------------------------------------------------------------


def test_names_in_and_out_of_scopes():
    assert [nn.Dense(1).name, nn.Dense(1).prefix, nn.Flatten().name] == [
        "dense0", "dense1_", "flatten0",
    ]  # fmt: skip
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        first, bare = nn.Dense(1), nn.HybridSequential(prefix="")
        with bare.name_scope():  # leaves the naming to the scope around it
            inside, node = nn.Dense(1), sym.var("x") * 2
        own = nn.Dense(1, prefix="own_")
        with own.name_scope():
            deep = nn.Dense(1)
    assert [b.name for b in (first, bare, inside, own, deep)] == [
        "net_dense0", "net", "net_dense1", "net_own", "net_own_dense0",
    ]  # fmt: skip
    assert first.params.prefix == first.prefix == "net_dense0_" and bare.prefix == "net_"
    assert node.name == "net__mulscalar0" and (sym.var("x") * 2).name == "_mulscalar0"
    assert nn.Dense(1).name == "dense2"
    with net.name_scope():
        assert nn.Dense(1).name == "net_dense2"


def test_shared_parameters():
    a = nn.Dense(2, in_units=3, prefix="a_")
    b = nn.Dense(2, in_units=3, params=a.params)
    net = nn.Sequential(params=a.params, prefix="net_")
    with net.name_scope():
        c = nn.Dense(2, in_units=3, prefix="")
    assert b.weight is a.weight and b.prefix == "dense0_" and b.params.prefix == "a_"
    assert list(b.collect_params()) == ["a_weight", "a_bias"]
    assert c.params.prefix == "a_" and c.weight is a.weight and c.prefix == "net_"


def test_children_are_collected_called_and_applied_in_order():
    class Net(gluon.Block):
        def __init__(self):
            super().__init__(prefix="net_")
            self.w = self.params.get("w", shape=(1,))
            self.second = nn.Dense(1, in_units=1, prefix="b_")
            self.register_child(nn.Dense(1, in_units=1, prefix="a_"))

        def forward(self, x, y=None):
            return x if y is None else y

    net, seen = Net(), []
    assert list(net._children) == ["second", "1"]
    assert list(net.collect_params()) == ["net_w", "b_weight", "b_bias", "a_weight", "a_bias"]
    assert list(net.collect_params("b_")) == ["b_weight", "b_bias"]
    assert list(net.collect_params("net_|.*bias")) == ["net_w", "b_bias", "a_bias"]
    assert net.apply(lambda block: seen.append(block.name)) is net and seen == ["b", "a", "net"]
    assert net._path_to("x") == "x of Net" and net.second._path_to("bias") == "second.bias of Net"
    before = net.register_forward_pre_hook(lambda *given: seen.append(given))
    after = net.register_forward_hook(lambda *given: seen.append(given))
    assert net(5) == 5 and net(6, 7) == 7
    assert seen[3:] == [(net, (5,)), (net, (5,), 5), (net, (6, 7)), (net, (6, 7), 7)]
    before.detach(), after.detach(), after.detach()
    assert net(5) == 5 and len(seen) == 7
    with pytest.raises(AssertionError, match="attached twice"):
        before.attach({}, print)
    with pytest.raises(TypeError, match=r"Changing attribute type for second .*Dense.*int"):
        net.second = 3
    with pytest.raises(AssertionError, match="Overriding Parameter attribute w"):
        net.w = Parameter("x")
    with pytest.raises(NotImplementedError, match="Block has no forward"):
        gluon.Block()(1)


# -- parameters ------------------------------------------------------------------------------------


def test_a_parameter_goes_through_its_states():
    p = Parameter("p", shape=(2, 0), allow_deferred_init=True, init="ones")
    assert (p.grad_req, p.lr_mult, p.wd_mult, p.shape) == ("write", 1, 1, (2, 0))
    for ask in (p.data, p.list_data, p.grad, p.list_ctx):
        with pytest.raises(RuntimeError, match="'p' has not been initialized"):
            ask()
    p.initialize(ctx=[cpu(1), cpu(0), cpu(1)])
    assert p.list_ctx() == TWO[::-1]
    with pytest.raises(AssertionError, match=r"shape \(3, 1\) is incompatible with given .*2, 0"):
        p.shape = (3, 1)
    p.shape = (0, 3)
    assert p.shape == (2, 3)
    p._finish_deferred_init()
    assert tell(*p.list_data()) == [[[1] * 3] * 2] * 2 and tell(p.grad(cpu(1))) == [[[0] * 3] * 2]
    assert p.data(cpu(1)).context == cpu(1) and p.data().context == cpu(0)
    with cpu(1):
        assert p.data().context == cpu(1)
    with pytest.raises(RuntimeError, match=r"on context cpu\(2\). It was only .*cpu\(1\), cpu"):
        p.data(cpu(2))
    with pytest.warns(UserWarning, match="'p' is already initialized, ignoring"):
        p.initialize("zeros")
    p.initialize("zeros", ctx=cpu(1), force_reinit=True)
    assert tell(p.data()) == [[[0] * 3] * 2] and p.list_ctx() == [cpu(1)] == [p.grad().context]
    with pytest.raises(RuntimeError, match="was not initialized on context"):
        p.data(cpu(0))


def test_grad_req():
    p = Parameter("p", shape=2, init="ones")
    p.initialize()
    seen = []
    for req, expected in (("write", 4), ("add", 8), ("write", 4)):
        p.grad_req = req
        assert not p.grad().asnumpy().any() and p.grad_req == req
        for _ in range(2):
            with autograd.record():
                y = p.data() * 4
            y.backward()
        seen.append(tell(p.grad()) == [[expected] * 2])
    grad = p.grad()
    p.grad_req = "write"  # as before: nothing is made anew
    assert all(seen) and p.grad() is grad
    p.zero_grad()
    assert tell(grad) == [[0, 0]]
    p.grad_req = "null"
    p.zero_grad()
    for ask in (p.grad, p.list_grad):
        with pytest.raises(RuntimeError, match="'p' because grad_req='null'"):
            ask()
    with autograd.record():
        assert (p.data() * 2)._node is None
    with pytest.raises(AssertionError, match=r"grad_req must be one of .*'sum'"):
        p.grad_req = "sum"
    assert Parameter("q", differentiable=False).grad_req == "null"
    with pytest.raises(AssertionError, match="stype for Parameter 'q' must be one of"):
        Parameter("q", stype="dense")


def test_values_are_set_cast_and_moved():
    p = Parameter("p", shape=(2,), init="ones", lr_mult=2, wd_mult=0)
    with pytest.raises(ValueError, match="Cannot reset context for Parameter 'p'"):
        p.reset_ctx(cpu(1))
    with pytest.raises(AssertionError, match="'p' has not been initialized"):
        p.set_data(nd.ones(2))
    p.initialize(ctx=TWO)
    arrays = p.list_data()
    p.set_data([3, 4])
    assert tell(*arrays) == [[3, 4]] * 2
    arrays[1][:] = 7
    p.grad(cpu(1))[:] = 2
    p.cast("float64")
    assert {x.dtype for x in (*p.list_data(), *p.list_grad())} == {np.float64}
    assert p.dtype == "float64"
    assert tell(*p.list_data(), *p.list_grad()) == [[3, 4], [7, 7], [0, 0], [2, 2]]
    p.reset_ctx(cpu(2))
    assert p.list_ctx() == [cpu(2)] and tell(p.data(), p.grad()) == [[5, 5.5], [0, 0]]
    p.dtype = "float32"
    assert p.data().dtype == np.float32
    attributes = p.var().list_attr()
    assert p.var() is p.var() and p.var().name == "p"
    assert {k: attributes[k] for k in ("__shape__", "__dtype__", "lr_mult", "__wd_mult__")} == {
        "__shape__": "(2,)", "__dtype__": "0", "lr_mult": "2", "__wd_mult__": "0",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"Cannot initialize Parameter 'q'.* shape: \(0,\)"):
        Parameter("q", shape=(0,)).initialize()
    with pytest.raises(MXNetError, match="'float3' not understood"):
        p.cast("float3")
    assert p.dtype == "float32"


def test_who_initializes():
    """`init` of the call, else the parameter's own, else the default."""
    for given, own, default, expected in [
        (None, None, "ones", 1), (None, init.Constant(5), "ones", 5), ("zeros", "ones", "ones", 0),
    ]:  # fmt: skip
        p = Parameter("bias", shape=(2,), init=own)
        p.initialize(given, None, default)
        assert tell(p.data()) == [[expected] * 2]
    params = ParameterDict("p_")
    params.get("a", shape=1, init="ones"), params.get("b", shape=(1,))
    params.initialize(init.Constant(3), ctx=TWO)
    assert [tell(*p.list_data()) for p in params.values()] == [[[1], [1]], [[3], [3]]]
    assert params.list_ctx() == TWO and params.prefix == "p_"
    params.setattr("grad_req", "null")
    assert [p.grad_req for p in params.values()] == ["null"] * 2
    params.reset_ctx(cpu(1))
    assert params.list_ctx() == [cpu(1)]
    with pytest.raises(AssertionError, match="'dtype': desired 'float16' vs stored"):
        params.get("a", dtype="float16")
    assert params.get("a", shape=(0,), dtype=np.float32, init=None) is params["p_a"]
    assert params.get("b", init="zeros").init == "zeros"
    other = ParameterDict("p_")
    other.get("b")
    with pytest.raises(AssertionError, match="with the same name 'p_b'"):
        params.update(other)
    for constant, same in (([1.0, 2], True), (np.array([1, 2]), True), ([1, 3], False)):
        params.get_constant("c", [1, 2])
        if same:
            assert params.get_constant("c", constant) is params["p_c"]
        else:
            with pytest.raises(AssertionError, match="'p_c' already exists but its value"):
                params.get_constant("c", constant)


def test_files_of_parameters(tmp_path):
    path = tmp_path / "p"
    net = nn.Dense(2, in_units=1, prefix="net_")
    net.initialize("ones")
    shared = nn.Sequential(prefix="s_")
    shared.add(net, nn.Dense(2, in_units=1, params=net.params))
    for deduplicate, names in ((False, ["0.w", "0.b", "1.w", "1.b"]), (True, ["1.w", "1.b"])):
        shared.save_parameters(path, deduplicate)
        assert [name[:3] for name in nd.load(str(path))] == names
    net.collect_params().save(path, strip_prefix="net_")
    assert [*nd.load(str(path))] == ["weight", "bias"]
    with pytest.raises(ValueError, match=r"Prefix 's_' is to be stripped .*'net_weight'"):
        net.collect_params().save(path, strip_prefix="s_")
    half = nn.Dense(2, prefix="net_", dtype="float16")
    for how, dtype in (({}, np.float16), ({"dtype_source": "saved"}, np.float32)):
        with pytest.raises(
            AssertionError, match=r"dtype incompatible expected float16 vs saved .*32"
        ):
            half.load_parameters(path)
        half.load_parameters(path, ctx=cpu(1), cast_dtype=True, **how)
        assert half.weight.data().dtype == dtype and half.weight.list_ctx() == [cpu(1)]
        assert tell(half.weight.data()) == [[[1], [1]]] and half.weight.shape == (2, 1)
    with pytest.raises(AssertionError, match="dtype_source must be 'current' or 'saved', got 'f'"):
        half.load_parameters(path, dtype_source="f")


# -- calls -----------------------------------------------------------------------------------------


class Add(gluon.HybridBlock):
    """x + y * w, or x + w; counts how often its Python runs, and with which F."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.w = self.params.get("w", shape=(1,), init="ones")
        self.ran = []

    def hybrid_forward(self, F, x, y=None, w=None):
        self.ran.append(F.__name__.rpartition(".")[2])
        return F.broadcast_add(x, w) if y is None else x + F.broadcast_mul(y, w)


def test_an_eager_and_a_compiled_call():
    net, x = Add(), nd.array([1, 2])
    net.initialize(ctx=TWO)
    assert tell(net(x), net(x, x), net(x, None)) == [[2, 3], [2, 4], [2, 3]]
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(2\)"):
        net(nd.ones(2, ctx=cpu(2)))
    with pytest.raises(ValueError, match=r"one NDArray or one Symbol .* Add got int, int"):
        net(1, 2)
    with pytest.raises(RuntimeError, match="Add is not hybridized"):
        net.program()
    net.hybridize()
    net.ran.clear()
    other = nd.array([5], ctx=cpu(1))
    assert tell(net(x), net(x), net(nd.zeros((1, 3))), net(other)) == [
        [2, 3], [2, 3], [[1, 1, 1]], [6],
    ]  # fmt: skip
    assert net.ran == ["symbol"] and net(other).context == cpu(1)
    with pytest.raises(ValueError, match=r"argument structure .* Stored format = \[0\], input"):
        net(x, x)
    net.w.set_data(nd.array([10]))  # its arrays are those of the program
    assert tell(net(x), net(x, None)) == [[11, 12], [11, 12]]
    net.initialize(None, TWO, force_reinit=True)  # other arrays
    assert tell(net(x)) == [[2, 3]] and net.ran == ["symbol"]
    net.hybridize()  # forgets its programs
    with pytest.raises(ValueError, match=r"multiple contexts .* Add got cpu\(0\) and cpu\(1\)"):
        net(x, other)
    with pytest.raises(ValueError, match=r"got 3 of type <class 'int'>. A value that is no array"):
        net(x, 3)
    assert tell(net(x, x)) == [[2, 4]] and net.ran == ["symbol"] * 2
    assert len(net.program(x, x)) == 1 and str(net.program()) == str(net.program()[0])
    with autograd.record():
        y = net(x, x)
    y.backward(nd.array([1, 10]))
    assert tell(net.w.grad(cpu(0))) == [[21]] and len(net.program()) > 1
    net.hybridize(False)
    net.ran.clear()
    assert tell(net(x)) == [[2, 3]] and net.ran == ["ndarray"]
    with pytest.raises(
        TypeError, match=r"unknown flags \['bulk', 'fast'\]; known are backend, cle"
    ):
        net.hybridize(fast=1, bulk=2)


def test_modes_and_nested_values_of_a_compiled_net():
    class Nested(gluon.HybridBlock):
        def hybrid_forward(self, F, x, pair):
            a, (b, _) = pair
            return [x + a, (F.Dropout(b, p=0.5), x)]

    net, one = Nested(), nd.ones(200)
    net.hybridize()
    for _ in range(2):
        first, (kept, same) = net(one, [one, (one * 2, None)])
        assert tell(first, kept, same) == [[2] * 200, [2] * 200, [1] * 200]
        with autograd.train_mode():
            _, (dropped, _) = net(one, [one, (one * 2, None)])
        assert set(dropped.asnumpy().tolist()) == {0, 4}
    with pytest.raises(ValueError, match="argument structure"):
        net(one, [one, one])


# -- steps -----------------------------------------------------------------------------------------


def step_of(contexts, batch_size=1, **how):
    """The weights after a step with the gradients 1, 2, ... on the devices; the Trainer."""
    p = Parameter("p", shape=(1,), init="zeros")
    p.initialize(ctx=contexts)
    trainer = Trainer([p], "sgd", {"learning_rate": 1.0}, **how)
    with autograd.record():
        losses = [x * (i + 1) for i, x in enumerate(p.list_data())]
    autograd.backward(losses)
    trainer.step(batch_size)
    return [value[0] for value in tell(*p.list_data())], trainer


@pytest.mark.parametrize("kind", ["device", "local", None])
@pytest.mark.parametrize("on_kvstore", [None, True, False])
def test_a_step_sums_divides_and_updates(kind, on_kvstore):
    assert step_of([cpu(0)], 4, kvstore=kind, update_on_kvstore=on_kvstore)[0] == [-0.25]
    if kind:
        weights, trainer = step_of(TWO, 2, kvstore=kind, update_on_kvstore=on_kvstore)
        assert weights == [-1.5, -1.5]
        for call in (trainer.allreduce_grads, lambda: trainer.update(1)):
            if on_kvstore is not False:
                with pytest.raises(AssertionError, match=r"\(\) when parameters are updated on kv"):
                    call()


def test_the_parts_of_a_step(monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    weights, trainer = step_of(TWO, 1)
    assert weights == [-3, -3]
    (p,) = trainer._params
    with autograd.record():
        losses = [x * 5 for x in p.list_data()]
    autograd.backward(losses)
    trainer.allreduce_grads()
    assert tell(*p.list_grad()) == [[10], [10]] and tell(p.data()) == [[-3]]
    trainer.set_learning_rate(0.5)
    trainer.update(2)
    assert tell(*p.list_data()) == [[-5.5], [-5.5]] and trainer.learning_rate == 0.5
    with pytest.raises(UserWarning, match="`p` on context"):
        trainer.update(2)
    trainer.update(2, ignore_stale_grad=True)
    assert tell(p.data()) == [[-5.5]]
    with pytest.raises(TypeError, match="expected a name, a KVStore or None, got 5"):
        step_of([cpu(0)], kvstore=5)
    with pytest.raises(MXNetError, match="compression_params"):
        Trainer([p], "sgd", compression_params={"type": "2bit"})
    with pytest.raises(ValueError, match="must be a list or dict of Parameters, got"):
        Trainer([5], "sgd")


def test_a_step_leaves_what_has_no_gradient():
    params = {name: Parameter(name, shape=(1,), init="ones") for name in "ba"}
    for p in params.values():
        p.initialize()
    params["a"].grad_req = "null"
    trainer = Trainer(params, "sgd", {"learning_rate": 1.0, "rescale_grad": 0.5})
    with autograd.record():
        y = params["a"].data() * params["b"].data() * 8
    y.backward()
    trainer.step(2)
    assert [tell(params[name].data()) for name in "ab"] == [[[1]], [[-1]]]
    assert [p.name for p in trainer._params] == ["a", "b"]  # a dict's in the order of names
    params["b"].set_data(nd.array([7]))
    with pytest.raises(UserWarning, match="`b`"):
        trainer.step(2)
