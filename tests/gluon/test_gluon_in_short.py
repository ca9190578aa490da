"""What every net passes through: names, states of parameters, calls; in tests of milliseconds."""

from __future__ import annotations

import pytest

from d2lmini import addons, autograd, cpu, gluon, init, nd, sym
from d2lmini.gluon import Parameter, nn
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


# -- parameters ------------------------------------------------------------------------------------


class Noted(init.Initializer):
    """Fills with ones, and notes what it was asked for."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def _init_weight(self, name, arr):
        self.calls.append((str(name), arr.shape, autograd.is_recording(), autograd.is_training()))
        arr[:] = 1


def test_a_parameter_goes_through_its_states():
    fill = Noted()
    p = Parameter("p", shape=(2, 0), allow_deferred_init=True, init=fill)
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
    with autograd.record():
        p._finish_deferred_init()
        p._finish_deferred_init()
    assert fill.calls == [("p", (2, 3), False, False)]  # once, and not recorded
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


def test_an_eager_and_a_compiled_call(monkeypatch):
    net, x, other = Add(), nd.array([1, 2]), nd.array([5], ctx=cpu(1))
    net.initialize(ctx=TWO)
    assert tell(net(x), net(x, x), net(x, None)) == [[2, 3], [2, 4], [2, 3]]
    with pytest.raises(ValueError, match=r"one NDArray or one Symbol .* Add got int, int"):
        net(1, 2)
    with pytest.raises(RuntimeError, match="Add is not hybridized"):
        net.program()
    net.hybridize()
    net.ran.clear()
    assert tell(net(x), net(x), net(nd.zeros((1, 3))), net(other)) == [
        [2, 3], [2, 3], [[1, 1, 1]], [6],
    ]  # fmt: skip
    for k in (1, 10):
        with autograd.record():
            y = net(x)
        y.backward(nd.array([k, k]))
        assert tell(net.w.grad(cpu(0))) == [[2 * k]]
    assert net.ran == ["symbol"] and net(other).context == cpu(1)
    with pytest.raises(ValueError, match=r"argument structure .* Stored format = \[0\], input"):
        net(x, x)
    net.w.set_data(nd.array([10]))  # into the arrays that the program has
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
    net.hybridize(False)
    net.ran.clear()
    assert tell(net(x)) == [[2, 3]] and net.ran == ["ndarray"]
    monkeypatch.setattr(addons, "find", lambda name: lambda *given: (name, *given))
    assert net.export_onnx("path", 1, 2) == ("export_onnx", net, "path", (1, 2))
