"""Block, HybridBlock, Sequential: names, children, copies, files."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

from d2lmini import autograd, nd, sym
from d2lmini.gluon import Block, HybridBlock, nn


class Net(nn.Block):
    """Two layers named in its scope, one outside."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a = nn.Dense(3)
            self.b = nn.Dense(2, in_units=3)
        self.c = nn.Dense(4, prefix="c_")

    def forward(self, x):
        return self.c(self.b(self.a(x)))


class Linear(nn.HybridBlock):
    """Parameters of its own: an unknown size, a constant."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.weight = self.params.get("weight", shape=(0, units), allow_deferred_init=True)
        self.shift = self.params.get_constant("shift", [1.0] * units)

    def infer_shape(self, x):
        self.weight.shape = (x.shape[1], self.units)

    def hybrid_forward(self, F, x, weight, shift):
        return F.broadcast_add(F.dot(x, weight), shift)


def mlp(*units, row=nn.Sequential, **kwargs):
    net = row(**kwargs)
    net.add(*[nn.Dense(n) for n in units])
    return net


def values(net):
    return {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}


def same(a, b):
    a, b = values(a), values(b)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def in_fresh_thread(function):
    """What `function` gives in a thread where nothing was named yet."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


# ---- names


def test_scopes_are_per_thread():
    net = nn.Sequential(prefix="net_")
    with net.name_scope():
        assert in_fresh_thread(lambda: nn.Dense(1).name) == "dense0"


# ---- children and parameters


def test_what_may_be_a_child():
    class Early(Block):
        def __init__(self):
            self.layer = nn.Dense(1)

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) before setting 'layer'"):
        Early()
    for parent in (HybridBlock(), nn.HybridSequential()):
        with pytest.raises(ValueError, match="Children of HybridBlock must also be HybridBlock"):
            parent.register_child(Block())
    with pytest.raises(ValueError, match="If you are using Sequential, please try HybridSeq"):
        HybridBlock().child = Block()
    with pytest.raises(TypeError, match="a child must be a Block, got 5"):
        nn.Sequential().add(5)


def test_containers_of_blocks_are_warned_of():
    class Lists(Block):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Dense(2)]
            self.table = {"a": (1, [nn.Dense(3)])}
            self.known = nn.Dense(1)
            self.alias = [self.known, 3]

    with pytest.warns(UserWarning) as warned:
        found = Lists().collect_params()
    assert len(found) == 2
    texts = [str(w.message) for w in warned]
    assert [text.split(" ")[0] for text in texts] == ['"Lists.layers"', '"Lists.table"']
    assert "is an unregistered container with Blocks" in texts[0]


def test_a_net_is_freed_without_the_collector():
    net = Net()
    net.initialize()
    net(nd.ones((1, 2)))
    gone = weakref.ref(net)
    gc.disable()
    try:
        del net
        assert gone() is None
    finally:
        gc.enable()


# ---- copies


def test_copies_and_pickles():
    net = mlp(3, 2)
    net.add(Linear(2))
    with net.name_scope():
        nn.Dense(1)
    net.initialize()
    net(nd.ones((1, 2)))
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert same(net, twin) and repr(twin) == repr(net)
        twin[0].weight.data()[:] = 0
        assert net[0].weight.data().asnumpy().any()
        assert twin[2].weight._place() == " (2.weight of Sequential)"
        assert net[2].weight._place() == " (2.weight of Sequential)"
        with autograd.record():
            y = twin(nd.ones((1, 2)))
        y.backward()
        assert twin[1].bias.grad().asnumpy().any() and not net[1].bias.grad().asnumpy().any()
        with twin.name_scope():
            assert nn.Dense(1).name.endswith("_dense1")
    unready = pickle.loads(pickle.dumps(mlp(2)))
    unready.initialize()
    assert unready(nd.ones((1, 3))).shape == (1, 2)


# -- names of Symbols ------------------------------------------------------------------------------


class Doubled(HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x) * 2


class Outer(HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.inner = Doubled()
            self.dense = nn.Dense(2, in_units=3)

    def hybrid_forward(self, F, x):
        return F.exp(self.dense(self.inner(x)))


def test_symbols_are_named_after_the_blocks_that_make_them():
    """The names are MXNet's."""
    y = Outer(prefix="outer_")(sym.var("x"))
    assert y.get_internals().list_outputs() == [
        "x", "outer_doubled0_relu0_output", "outer_doubled0__mulscalar0_output",
        "outer_dense0_weight", "outer_dense0_bias", "outer_dense0_fwd_output", "outer_exp0_output",
    ]  # fmt: skip
