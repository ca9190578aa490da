"""Block, HybridBlock, Sequential: names, children, calls, deferred shapes, files."""

import copy
import gc
import json
import pickle
import threading
import weakref

import numpy as np
import pytest

from d2lmini import autograd, cpu, gluon, init, nd
from d2lmini.base import MXNetError
from d2lmini.gluon import Block, DeferredInitializationError, HybridBlock, Parameter, nn

TWO = [cpu(0), cpu(1)]


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


def test_attributes_keep_their_kind():
    net = Net()
    for wrong in (nn.Flatten(), 5, None):
        with pytest.raises(
            TypeError, match=r"Changing attribute type for a from .*Dense'> to .* is"
        ):
            net.a = wrong
    other = nn.Dense(7)
    net.a = other
    assert net.a is other and next(iter(net._children.values())) is other
    linear = Linear(2)
    with pytest.raises(TypeError, match="Changing attribute type for weight"):
        linear.weight = 3
    with pytest.raises(AssertionError, match="Overriding Parameter attribute weight is not all"):
        linear.weight = Parameter("other", shape=(2, 2))
    linear.bias = None
    linear.bias = linear.params.get("bias", shape=(2,))
    assert list(linear._reg_params) == ["weight", "shift", "bias"]


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


# ---- Sequential


# ---- calls


def test_no_forward():
    with pytest.raises(NotImplementedError, match=r"Block has no forward\(\)"):
        Block()(nd.ones(1))
    with pytest.raises(NotImplementedError, match=r"HybridBlock has no hybrid_forward\(\)"):
        HybridBlock()(nd.ones(1))
    with pytest.raises(TypeError, match="positional argument"):
        nn.Dense(1)()
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        nn.Dense(1)(x=nd.ones(1))


def test_hooks():
    class Double(Block):
        def forward(self, x):
            seen.append("forward")
            return x * 2

    seen = []
    net, x = Double(), nd.ones(1)
    before = net.register_forward_pre_hook(lambda *what: seen.append(("before", *what)))
    after = net.register_forward_hook(lambda *what: seen.append(("after", *what)))
    y = net(x)
    assert seen == [("before", net, (x,)), "forward", ("after", net, (x,), y)]
    for handle in (before, after, after):
        handle.detach()
    seen.clear()
    with net.register_forward_hook(lambda *what: "ignored") as handle:
        assert net(x).asscalar() == 2
        with pytest.raises(AssertionError, match="cannot be attached twice"):
            handle.attach(net._forward_hooks, print)
    net(x)
    assert seen == ["forward"] * 2 and not net._forward_hooks


def test_hybrid_forward_gets_nd_and_the_parameters_of_the_context():
    class Spy(HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(2,), init="ones")

        def hybrid_forward(self, F, x, y=None, *, w):
            seen.append((F, w))
            return x

    seen = []
    net = Spy()
    net.initialize(ctx=TWO)
    for ctx in TWO:
        net(nd.ones(2, ctx=ctx))
        assert seen[-1][0] is nd and seen[-1][1] is net.w.data(ctx)
    net([nd.ones(2, ctx=cpu(1))], None)
    assert seen[-1][1] is net.w.data(cpu(1)), "the first array counts, however nested"
    net(None, nd.ones(2, ctx=cpu(1)))
    assert seen[-1][1] is net.w.data(cpu(1))
    with pytest.raises(RuntimeError, match=r"was not initialized on context cpu\(2\)"):
        net(nd.ones(2, ctx=cpu(2)))
    for wrong in (3, None, [1, 2], np.ones(2)):
        with pytest.raises(ValueError, match="there must be one NDArray or one Symbol in the inp"):
            net(wrong)


def test_initialization_is_put_off_until_the_first_call():
    calls = []

    class Noted(init.Initializer):
        def _init_weight(self, name, data):
            calls.append((str(name).split("_")[-1], data.shape, autograd.is_recording()))
            data[:] = 1

    net = mlp(2, 3)
    net.add(Linear(2))
    net.initialize(Noted(), ctx=TWO)
    assert calls == []
    with pytest.raises(DeferredInitializationError, match=r"\(2\.weight of Sequential\) has not"):
        net[2].weight.data()
    with autograd.record():
        y = net(nd.ones((4, 5)))
    assert calls == [
        ("weight", (2, 5), False),
        ("weight", (3, 2), False),
        ("weight", (3, 2), False),
    ]
    assert y.asnumpy().tolist() == [[31, 31]] * 4
    y.backward()
    assert net[2].weight.grad(cpu(0)).asnumpy()[0, 0] == 40
    net(nd.ones((1, 5), ctx=cpu(1)))
    assert len(calls) == 3
    with pytest.raises(MXNetError):
        net(nd.ones((4, 6)))


def test_a_shape_that_nobody_infers():
    class Forgot(HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(2, 0), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.dot(x, w)

    net = nn.HybridSequential()
    net.add(Forgot())
    net.initialize()
    with pytest.raises(
        ValueError,
        match=r"shape cannot be inferred. '.*w' \(0\.w of HybridSequential\) has shape \(2, 0\), "
        r"and the ops that use it do not say more. Give its whole shape, or write "
        r"Forgot.infer_shape\(self, \*inputs\)",
    ):
        net(nd.ones((1, 2)))

    class Half(Forgot):
        def infer_shape(self, x):
            self.w.shape = (x.shape[1], 0)

    net = Half()
    net.initialize()
    with pytest.raises(ValueError, match=r"invalid shape: \(2, 0\). Please specify in_units"):
        net(nd.ones((1, 2)))

    class Fails(Forgot):
        def infer_shape(self, x):
            raise MXNetError("Fails: needs data of 7 axes")

    net = Fails()
    net.initialize()
    with pytest.raises(ValueError, match=r"cannot be inferred. Fails: needs data of 7 axes"):
        net(nd.ones((1, 2)))


def test_force_reinit_and_cast():
    net = mlp(3, 2)
    net.initialize("ones")
    x = nd.ones((1, 2))
    assert net(x).asnumpy().tolist() == [[6, 6]]
    net.initialize(init.Constant(2), force_reinit=True)
    assert net(x).asnumpy().tolist() == [[24, 24]]
    net.cast("float16")
    assert net(x.astype("float16")).dtype == np.float16
    with autograd.record():
        y = net(x.astype("float16"))
    y.backward()
    assert net[0].weight.grad().dtype == np.float16
    assert net[0].weight.grad().asnumpy().tolist() == [[4, 4]] * 3
    net.zero_grad()
    assert net[0].weight.grad().asnumpy().sum() == 0


# ---- hybridize


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


# ---- files


@pytest.fixture
def saved(tmp_path):
    net = mlp(3, 1)
    net.initialize()
    net(nd.ones((1, 2)))
    path = tmp_path / "net.params"
    net.save_parameters(path)
    return net, path


def test_save_and_load_parameters(saved):
    net, path = saved
    assert list(nd.load(path)) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    other = mlp(3, 1)
    other.load_parameters(path)
    assert same(net, other) and other[0].weight.list_ctx() == [cpu(0)]
    other = mlp(3, 1)
    other.load_parameters(path, ctx=TWO)
    assert other[0].weight.list_ctx() == TWO
    x = nd.ones((1, 2), ctx=cpu(1))
    assert other(x).asscalar() == net(nd.ones((1, 2))).asscalar()
    other = mlp(3, 1)
    other.initialize(ctx=cpu(1))
    other.load_parameters(path)
    assert other[0].weight.list_ctx() == [cpu(1)]
    with autograd.record():
        y = other(x)
    y.backward()
    assert other[1].bias.grad().asnumpy().tolist() == [1]
    with pytest.raises(
        AssertionError, match=r"on \[cpu\(0\)\] because it was previous initialized"
    ):
        other.load_parameters(path, ctx=cpu(0))
    nn.Flatten().load_parameters(path, ignore_extra=True)


def test_errors_of_load_parameters(saved, tmp_path):
    _, path = saved
    with pytest.raises(ValueError, match=r"'1.weight' loaded from file .* is not present"):
        mlp(3).load_parameters(path)
    mlp(3).load_parameters(path, ignore_extra=True)
    with pytest.raises(AssertionError, match=r"'2.weight' is missing in file .*: '0.weight', '0.b"):
        mlp(3, 1, 2).load_parameters(path)
    mlp(3, 1, 2).load_parameters(path, allow_missing=True)
    with pytest.raises(
        AssertionError,
        match=r"'.*weight' \(0\.weight of Sequential\) .* expected \(4, 0\) vs saved \(3, 2\)",
    ):
        mlp(4, 1).load_parameters(path)
    half = mlp(3, 1)
    half.cast("float16")
    with pytest.raises(AssertionError, match="Set cast_dtype=True"):
        half.load_parameters(path)
    half.load_parameters(path, cast_dtype=True)
    assert half[0].weight.data().dtype == np.float16
    half.load_parameters(path, cast_dtype=True, dtype_source="saved")
    assert half[0].weight.data().dtype == np.float32
    with pytest.raises(RuntimeError, match="has not been initialized"):
        mlp(3).save_parameters(tmp_path / "x")
    waiting = mlp(3)
    waiting.initialize()
    with pytest.raises(DeferredInitializationError):
        waiting.save_parameters(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    nd.save(path, [nd.ones(1)])
    with pytest.raises(ValueError, match="arrays without names"):
        mlp(3).load_parameters(path)
    nd.save(path, {})
    nn.Flatten().load_parameters(path)


def test_shared_parameters_in_files(tmp_path):
    def tied():
        net = nn.Sequential()
        first = nn.Dense(3, in_units=3)
        net.add(first, nn.Dense(3, in_units=3, params=first.params))
        return net

    net = tied()
    net.initialize()
    path = tmp_path / "tied.params"
    for deduplicate, names in [
        (False, "0.weight 0.bias 1.weight 1.bias"),
        (True, "1.weight 1.bias"),
    ]:
        net.save_parameters(path, deduplicate=deduplicate)
        assert list(nd.load(path)) == names.split()
        other = tied()
        other.load_parameters(path)
        assert same(net, other)


def test_the_older_names(tmp_path):
    net = nn.Sequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(2, in_units=2))
    net.initialize()
    path = tmp_path / "net.params"
    with pytest.warns(UserWarning, match="save_params is deprecated. Please use save_parameters."):
        net.save_params(path)
    assert list(nd.load(path)) == ["dense0_weight", "dense0_bias"]
    other = nn.Sequential(prefix="other_")
    with other.name_scope():
        other.add(nn.Dense(2))
    with pytest.warns(UserWarning, match="load_params is deprecated. Please use load_parameters."):
        other.load_params(path)
    assert same(net, other)


def test_save_and_load_of_the_whole_net(tmp_path):
    prefix = str(tmp_path / "whole")
    net = nn.Sequential(prefix="net_")
    with net.name_scope():
        net.add(mlp(2, row=nn.HybridSequential), Linear(3))
    net.initialize()
    net(nd.ones((1, 2)))
    net.save(prefix)
    tree = json.loads((tmp_path / "whole-model.json").read_text())
    assert tree["sequential0"]["orig_name"] == "net"
    assert list(tree["sequential0"]["children"].values()) == ["0", "1"]
    other = nn.Sequential()
    other.add(mlp(2, row=nn.HybridSequential), Linear(3))
    other.load(prefix)
    assert same(net, other)
    assert list(other.collect_params()) == list(net.collect_params())
    assert [b.name for b in other] == [b.name for b in net] and other.name == "net"
    other.load(prefix)
    tree["sequential0"]["hybridsequential1"]["hybridized"] = True
    (tmp_path / "whole-model.json").write_text(json.dumps(tree))
    other.load(prefix)
    assert other[0]._active
    for wrong, words in [
        (mlp(2, 3), "here is dense1, there hybridsequential1"),
        (nn.HybridSequential(), "here is hybridsequential0, there sequential0"),
    ]:
        with pytest.raises(ValueError, match=words):
            wrong.load(prefix)
    short = nn.Sequential()
    short.add(mlp(2, row=nn.HybridSequential))
    with pytest.raises(ValueError, match=r"saved with children \['0', '1'\], here it has \['0'\]"):
        short.load(prefix)


# ---- summary


# ---- nested arguments


def test_names_where_mxnet_has_them():
    assert gluon.block.HybridBlock is HybridBlock is nn.HybridBlock
    assert gluon.block.SymbolBlock is gluon.SymbolBlock
    assert gluon.nn.Block is Block
    assert {"nn", "rnn", "loss", "data", "Trainer", "utils"} <= set(dir(gluon))
    with pytest.raises(AttributeError, match="model_zoo is left out of d2lmini"):
        gluon.model_zoo
    with pytest.raises(AttributeError, match="contrib is left out of d2lmini, as all of"):
        gluon.contrib
    with pytest.raises(AttributeError, match="gluon has no 'nothing'; it has Block"):
        gluon.nothing
