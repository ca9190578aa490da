"""`hybridize`: what runs when, what is compiled again and why, what is refused in which words."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

from d2lmini import autograd, cpu, gluon, nd, random, sym
from d2lmini.base import MXNetError
from d2lmini.gluon import HybridBlock, nn, rnn
from d2lmini.symbol import NotImplementedForSymbol

SYM = "d2lmini.symbol"


def mlp(*units: int, **kwargs) -> nn.HybridSequential:
    net = nn.HybridSequential(**kwargs)
    with net.name_scope():
        for n in units[:-1]:
            net.add(nn.Dense(n, activation="relu"))
        net.add(nn.Dense(units[-1]))
    net.initialize()
    return net


def close(a, b):
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


class Told(HybridBlock):
    """Notes each time its Python runs: with which F."""

    def __init__(self):
        super().__init__()
        self.runs = []
        self.dense = nn.Dense(3)

    def hybrid_forward(self, F, x):
        self.runs.append(F.__name__)
        return self.dense(F.tanh(x))


class Shaped(Told):
    """The same with a plain `forward`."""

    hybrid_forward = HybridBlock.hybrid_forward

    def forward(self, x):
        self.runs.append(x.shape)
        return self.dense(nd.tanh(x))


# -- a net as a Symbol -----------------------------------------------------------------------------


def test_a_net_of_a_symbol_is_a_symbol():
    net = mlp(4, 2, prefix="net_")
    y = net(sym.var("data"))
    assert type(y) is sym.Symbol and y.name == "net_dense1_fwd"
    weights = [f"net_dense{i}_{kind}" for i in (0, 1) for kind in ("weight", "bias")]
    assert y.list_arguments() == ["data", *weights]
    inside = y.get_internals().list_outputs()
    assert "net_dense0_fwd_output" in inside and "net_dense0_relu_fwd_output" in inside
    values = {p.name: nd.ones((4, 3) if p.name == weights[0] else p.shape) for p in
              net.collect_params().values() if 0 not in p.shape}  # fmt: skip
    values[weights[0]], values[weights[2]] = nd.ones((4, 3)), nd.ones((2, 4))
    assert y.eval(data=nd.ones((1, 3)), **values)[0].asnumpy().tolist() == [[17, 17]]


def test_labels_of_parameters():
    class Net(HybridBlock):
        def __init__(self):
            super().__init__(prefix="net_")
            self.w = self.params.get("w", shape=(1, 3), lr_mult=2.0, wd_mult=0.0, init="ones")

        def hybrid_forward(self, F, x, w):
            return F.broadcast_mul(x, w)

    y = Net()(sym.var("x"))
    labels = y.attr_dict()["net_w"]
    assert labels == {
        "__shape__": "(1, 3)", "__dtype__": "0", "__storage_type__": "0", "__init__": "ones",
        "__lr_mult__": "2.0", "lr_mult": "2.0", "__wd_mult__": "0.0", "wd_mult": "0.0",
    }  # fmt: skip


def test_shared_parameters_are_one_variable():
    net = nn.HybridSequential()
    first = nn.Dense(3, in_units=3)
    net.add(first, nn.Dense(3, in_units=3, params=first.params))
    assert net(sym.var("data")).list_arguments() == [
        "data", first.weight.name, first.bias.name,
    ]  # fmt: skip
    assert first.weight.var() is first.weight.var()


def test_names_of_cells_in_graphs():
    cell = rnn.LSTMCell(3, prefix="lstm_")
    outputs, _ = cell.unroll(2, sym.var("data"))
    names = sym.Group(outputs).get_internals().list_outputs()
    assert outputs[1].name == "lstm_t1_out"
    assert {"lstm_t0_i2h_output", "lstm_begin_state_0_output", "lstm_t1_slice_output3"} <= {*names}


# -- when the Python runs --------------------------------------------------------------------------


def test_hybrid_forward_runs_once_for_all_shapes_and_modes():
    net = Told()
    net.initialize()
    net.hybridize()
    for n in (2, 2, 5):
        net(nd.ones((n, 4)))
    with autograd.record():
        net(nd.ones((2, 4)))
    assert net.runs == [SYM]
    net.hybridize()
    net(nd.ones((2, 4)))
    assert net.runs == [SYM, SYM]
    net.hybridize(False)
    net(nd.ones((2, 4)))
    assert net.runs[2:] == [nd.__name__]


def test_plain_forward_runs_once_for_each_kind_of_input():
    net = Shaped()
    net.initialize()
    x, more = nd.ones((2, 4)), nd.ones((5, 4))
    eager = net(x), net(more)
    net.hybridize()
    net.runs.clear()
    for _ in range(2):
        close(net(x), eager[0])
        close(net(more), eager[1])
    assert net.runs == [(2, 4), (5, 4)]
    with autograd.train_mode():
        net(x)
        net(x)
    assert net.runs == [(2, 4), (5, 4), (2, 4)]


def test_a_child_with_a_plain_forward_makes_the_whole_trace_one_of_shapes():
    net = nn.HybridSequential()
    inner = Shaped()
    net.add(nn.Dense(4), inner)
    net.initialize()
    x, more = nd.ones((2, 3)), nd.ones((3, 3))
    eager = net(x), net(more)
    net.hybridize()
    inner.runs.clear()
    for _ in range(2):
        close(net(x), eager[0])
        close(net(more), eager[1])
    assert inner.runs == [(2, 4), (3, 4)]


def test_children_run_inside_their_parent():
    """They are hybridized as well, and compiled for themselves when they are called so."""
    net = nn.HybridSequential()
    inner = Told()
    net.add(inner, nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    net(x)
    assert inner.runs == [SYM] and not inner.forward.traces
    inner(x)
    assert inner.runs == [SYM, SYM] and inner.forward.traces


def test_a_sequential_passes_hybridize_on():
    net = nn.Sequential()
    told = Told()
    net.add(told, nn.Lambda(lambda x: x * 2))
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    net(x)
    net(x)
    assert told.runs == [SYM]


def test_python_is_frozen_in_the_trace():
    class Counts(HybridBlock):
        calls = 0

        def hybrid_forward(self, F, x):
            self.calls += 1
            return x * self.calls

    net = Counts()
    net.hybridize()
    x = nd.ones(1)
    assert [net(x).asscalar() for _ in range(3)] == [1, 1, 1]
    net.hybridize(False)
    assert [net(x).asscalar() for _ in range(2)] == [2, 3]


def test_hooks_of_children_rest_and_those_of_the_net_run(capsys):
    net = mlp(3, 2)
    seen = []
    net[0].register_forward_hook(lambda *_: seen.append("child"))
    net.register_forward_hook(lambda *_: seen.append("net"))
    net.register_forward_pre_hook(lambda *_: seen.append("before"))
    net.hybridize()
    x = nd.ones((1, 4))
    net(x)
    seen.clear()
    net(x)
    assert seen == ["before", "net"]


# -- inputs and outputs ----------------------------------------------------------------------------


class Nested(HybridBlock):
    def hybrid_forward(self, F, x, pair, last=None):
        a, (b,) = pair
        total = x + a * b
        return total, [total * 2, (b if last is None else last,)], None


def test_nested_inputs_and_outputs():
    net = Nested()
    x, a, b = nd.ones(2), nd.array([2, 3]), nd.array([4, 5])
    for hybridize in (False, True, True):
        if hybridize and not net._active:
            net.hybridize()
        y, (double, (same,)), nothing = net(x, [a, (b,)])
        assert y.asnumpy().tolist() == [9, 16] and double.asnumpy().tolist() == [18, 32]
        assert same.asnumpy().tolist() == [4, 5] and nothing is None
    assert net(x, [a, [b]], None)[0].asnumpy().tolist() == [9, 16]  # a None at the end is nothing
    with pytest.raises(ValueError, match=r"Stored format = \[0, \[0, \[0\]\]\], input format = "):
        net(x, [a, [b]], x)


def test_an_output_that_comes_twice_is_one_array():
    cell = rnn.RNNCell(3)
    cell.initialize()
    cell.hybridize()
    y, (state,) = cell(nd.ones((2, 4)), cell.begin_state(batch_size=2))
    assert y is state


def test_an_input_as_output_and_inputs_that_nobody_uses():
    class Same(HybridBlock):
        def hybrid_forward(self, F, x, y):
            return y

    net = Same()
    net.hybridize()
    x = nd.ones(3)
    for _ in range(2):
        y = net(nd.zeros(1), x)
        assert y is not x and y.asnumpy().tolist() == [1, 1, 1]
    y[:] = 5
    assert x.asnumpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((3,), "must be one NDArray or one Symbol in the input.* Dense got int"),
        (([1.0],), "must be one NDArray or one Symbol in the input.* Dense got float"),
        ((nd.ones((1, 2)), sym.var("x")), "do not support mixed NDArrays and Symbols"),
        ((nd.ones((1, 2)), 3), "must be \\(nested\\) list of Symbol or NDArray, but got 3 of type"),
        ((nd.ones((1, 2)), nd.ones((1, 2), ctx=cpu(1))), "multiple contexts.* cpu\\(0\\) and cpu"),
    ],
)
def test_inputs_that_cannot_be_compiled(args, message):
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    with pytest.raises(ValueError, match=message):
        net(*args)


def test_children_must_be_hybrid():
    net = nn.HybridSequential()
    with pytest.raises(ValueError, match="Children of HybridBlock must also be HybridBlock, but"):
        net.add(nn.Lambda("relu"))


# -- errors in the trace ---------------------------------------------------------------------------


def branches(x):
    if x.sum() > 0:
        return x
    return -x


@pytest.mark.parametrize(
    ("function", "what", "line"),
    [
        (branches, "bool", r"if x.sum\(\) > 0:"),
        (lambda x: x * float(x.sum()), "float", "lambda x: x"),
        (lambda x: x * int(x.sum()), "int", "lambda x: x"),
        (lambda x: x + x.asnumpy(), "asnumpy", "lambda x: x"),
        (lambda x: x + x.asscalar(), "asscalar", "lambda x: x"),
        (lambda x: x.wait_to_read(), "wait_to_read", "lambda x: x"),
        (lambda x: [x][x.sum()], "index", "lambda x:"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_a_value_is_asked_for_in_the_trace(function, what, line, plain):
    class Net(HybridBlock):
        if plain:

            def forward(self, x):
                return function(x)
        else:

            def hybrid_forward(self, F, x):
                return function(x)

    net = Net()
    net.hybridize()
    for _ in range(2):
        with pytest.raises(
            NotImplementedForSymbol,
            match=rf"(?s)^{what} is not implemented for Symbol .* F.where for a choice by value.* "
            rf"net.hybridize\(False\)\n  at .*test_hybridize.py:\d+: .*{line}",
        ):
            net(nd.ones(3))
    net.hybridize(False)
    if what == "bool":
        assert net(nd.ones(3)).asnumpy().tolist() == [1, 1, 1]


def test_a_shape_is_asked_for_in_hybrid_forward():
    class Net(HybridBlock):
        def hybrid_forward(self, F, x):
            return x.reshape((x.shape[0], -1))

    net = Net()
    net.hybridize()
    with pytest.raises(AttributeError, match=r"no attribute 'shape': .* write a plain `forward"):
        net(nd.ones((2, 3)))


def test_a_wrong_shape_is_an_error_of_the_line_that_makes_it():
    class Net(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.dot(x, x)

    net = Net()
    net.hybridize()
    with pytest.raises(MXNetError, match=r"dot: inner sizes differ: a is \(2, 3\)") as caught:
        net(nd.ones((2, 3)))
    assert any("return F.dot(x, x)" in str(entry) for entry in caught.traceback)


def test_drawing_in_the_trace():
    """In the graph each call draws; beside it the numbers would be frozen, and that is refused."""

    class Noisy(HybridBlock):
        def __init__(self, draw):
            super().__init__()
            self.draw = draw

        def forward(self, x):
            return x + self.draw(x)

    x = nd.zeros(3)
    net = Noisy(lambda x: nd.random.normal(shape=x.shape))
    net(x)
    net.hybridize()
    with pytest.raises(MXNetError, match=r"would be the same in every call .*normal_like"):
        net(x)
    net = Noisy(nd.random.normal_like)
    random.seed(2)
    eager = [net(x).asnumpy() for _ in range(3)]
    net.hybridize()
    random.seed(2)
    np.testing.assert_allclose([net(x).asnumpy() for _ in range(3)], eager)
    assert not np.allclose(eager[0], eager[1])


def test_writing_a_traced_value_into_an_array():
    class Net(HybridBlock):
        def forward(self, x):
            y = nd.zeros(x.shape)
            y[0] = x[0]
            return y

    net = Net()
    net.hybridize()
    with pytest.raises(
        NotImplementedForSymbol, match=r"(?s)written into an array.*y\[0\] = x\[0\]"
    ):
        net(nd.ones((2, 3)))


def test_printing_in_the_trace_is_fine(capsys):
    class Net(HybridBlock):
        def hybrid_forward(self, F, x):
            print("x is", x)
            return x

    net = Net()
    net.hybridize()
    net(nd.ones(1))
    net(nd.ones(1))
    assert capsys.readouterr().out == "x is <Symbol data>\n"


# -- parameters ------------------------------------------------------------------------------------


def test_parameters_may_change_between_calls():
    """In place, by another type, another file, other contexts, anew."""
    net = mlp(3, 2)
    x = nd.random.normal(shape=(2, 4))
    net(x)
    net.hybridize()

    def check(*inputs):
        got = net(*inputs)
        net.hybridize(False)
        close(got, net(*inputs))
        net.hybridize()
        net(*inputs)

    check(x)
    net[0].weight.set_data(nd.ones((3, 4)))
    check(x)
    net.initialize(force_reinit=True)
    check(x)
    net.cast("float64")
    check(x.astype("float64"))
    net.cast("float32")
    net.collect_params().reset_ctx(cpu(1))
    check(x.as_in_context(cpu(1)))
    net.collect_params().reset_ctx([cpu(0), cpu(1)])
    check(x)
    check(x.as_in_context(cpu(1)))


def test_arrays_are_looked_up_again_without_a_new_trace(tmp_path):
    net = Told()
    net.initialize()
    net.hybridize()
    x = nd.ones((1, 2))
    before = net(x)
    net.save_parameters(str(tmp_path / "a.params"))
    net.initialize(init="zeros", force_reinit=True)
    assert net(x).asnumpy().tolist() == [[0, 0, 0]]
    net.load_parameters(str(tmp_path / "a.params"))
    close(net(x), before)
    assert net.runs == [SYM]


def test_one_compiled_set_for_each_context():
    net = mlp(3, 2)
    net.initialize(ctx=[cpu(0), cpu(1)], force_reinit=True)
    net.hybridize()
    x = nd.ones((2, 4))
    for _ in range(2):
        for ctx in (cpu(0), cpu(1)):
            assert net(x.as_in_context(ctx)).context == ctx
    assert len(net.forward.placed) == 2 and len(net.forward.traces) == 1
    with autograd.record():
        losses = [net(x.as_in_context(ctx)).sum() for ctx in (cpu(0), cpu(1))]
    autograd.backward(losses)
    close(net[0].weight.grad(cpu(0)), net[0].weight.grad(cpu(1)))


def test_not_initialized_and_shapes_that_nobody_knows():
    net = nn.Dense(2, in_units=3)
    net.hybridize()
    with pytest.raises(RuntimeError, match=r"Parameter '.*weight'.* has not been initialized"):
        net(nd.ones((1, 3)))

    class Forgot(HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(0, 2), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.broadcast_mul(x.sum(), w)

    net = Forgot()
    net.initialize()
    net.hybridize()
    with pytest.raises(ValueError, match=r"cannot be inferred.*\(0, 2\).* write Forgot.infer_sha"):
        net(nd.ones((1, 2)))


def test_shapes_are_found_in_the_graph():
    """Without an `infer_shape` of one's own, where the ops tell; also for a whole net at once."""

    class Scale(HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(4)
            self.w = self.params.get("w", shape=(0, 0), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.elemwise_mul(self.dense(x), w)

    for hybridize in (False, True):
        net = Scale()
        net.initialize()
        if hybridize:
            net.hybridize()
        net(nd.ones((2, 3)))
        assert net.w.shape == (2, 4) and net.dense.weight.shape == (4, 3)
    net = Scale()
    net.infer_shape(nd.ones((2, 3)))
    assert net.w.shape == (2, 4) and net.dense.weight.shape == (4, 3)
    with pytest.raises(ValueError, match="cannot be inferred"):
        net.infer_shape(nd.ones((3, 5)))


def test_arrays_of_a_plain_forward():
    """A parameter's is looked up at each call and learns; another is used by reference."""

    class Net(HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(3,), init="ones")
            self.shift = nd.ones(3)
            self.dense = nn.Dense(3, in_units=3)

        def forward(self, x):
            y = self.shift * x + self.w.data() * 2 + self.w.list_data()[0]
            return y + self.dense(self.shift.reshape((1, 3)))

    net = Net()
    net.initialize()
    x = nd.ones((2, 3))
    with autograd.record():
        expected = net(x)
    expected.backward()
    grads = {n: p.grad().copy() for n, p in net.collect_params().items()}
    net.hybridize()
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        close(y, expected)
        for n, p in net.collect_params().items():
            close(p.grad(), grads[n])
    net.w.set_data(nd.zeros(3))
    net.shift[:] = 0
    close(net(x) - net.dense.bias.data(), nd.zeros((2, 3)))


# -- what is compiled again ------------------------------------------------------------------------


def test_a_shape_or_a_mode_is_compiled_once():
    net = mlp(3, prefix="net_")
    net.hybridize()
    counts = []
    for n, recording, training in (
        (1, False, False), (1, False, False), (4, False, False), (4, True, True), (4, True, False),
        (1, False, False),
    ):  # fmt: skip
        with autograd.record(training) if recording else nullcontext():
            net(nd.ones((n, 512)))
        counts.append(len(net.program()))
    assert counts == [1, 1, 2, 3, 4, 4]
    net.hybridize(False)
    with pytest.raises(RuntimeError, match="HybridSequential is not hybridized: call hybridize"):
        net.program()


def test_what_changes_the_net_forgets_what_was_compiled():
    net = mlp(3, 2)
    net.add(mlp(2))
    net.hybridize()
    x = nd.ones((1, 4))
    assert net(x).shape == (1, 2)
    net.add(nn.Dense(5))
    net[-1].initialize()
    assert net(x).shape == (1, 5)
    net[2].add(nn.Dense(7))  # deep inside
    net[2][-1].initialize()
    net[-1].initialize(force_reinit=True)
    net[-1].weight._shape = (5, 7)
    net[-1].initialize(force_reinit=True)
    assert net(x).shape == (1, 5)
    told = Told()
    told.initialize()
    told.hybridize()
    told(x)
    told.dense = nn.Dense(6)
    told.dense.initialize()
    assert told(x).shape == (1, 6) and told.runs == [SYM, SYM]


def test_flags():
    net = mlp(2)
    flags = {
        "static_alloc": True, "static_shape": True, "inline_limit": 3, "forward_bulk_size": 4,
        "backward_bulk_size": 5, "backend": None, "clear": True,
    }  # fmt: skip
    net.hybridize(active=True, **flags)
    x = nd.ones((1, 3))
    y = net(x)
    kept = y.asnumpy()
    net(x * 2)
    assert (y.asnumpy() == kept).all()  # static_alloc never overwrites a result
    with pytest.raises(TypeError, match=r"unknown flags \['static'\]; known are backend, clear"):
        net.hybridize(static=True)


def test_copies_and_pickles_compile_for_themselves():
    net = Told()
    net.initialize()
    net.hybridize()
    x = nd.ones((1, 2))
    y = net(x)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin._active and not twin.forward.traces and twin.forward is not net.forward
        close(twin(x), y)
        twin.dense.weight.set_data(nd.zeros((3, 2)))
        assert twin(x).asnumpy().tolist() == [[0, 0, 0]]
    close(net(x), y)


def test_a_net_dies_without_the_garbage_collector():
    import gc
    import weakref

    net = mlp(2)
    net.hybridize()
    net(nd.ones((1, 3))).wait_to_read()
    gc.collect()
    gc.disable()
    try:
        ref = weakref.ref(net)
        del net
        assert ref() is None
    finally:
        gc.enable()


# -- learning --------------------------------------------------------------------------------------


def test_training_is_the_same():
    def trained(hybridize: bool) -> list[float]:
        rng = np.random.default_rng(0)
        net = mlp(8, 1)
        X = nd.array(rng.normal(size=(32, 4)))
        Y = (X * nd.array([1, -2, 3, 0.5])).sum(axis=1)
        net(X)
        for i, p in enumerate(net.collect_params().values()):
            p.set_data(nd.array(np.random.default_rng(i).normal(size=p.shape) / 3))
        if hybridize:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
        loss = gluon.loss.L2Loss()
        if hybridize:
            loss.hybridize()
        curve = []
        for _ in range(20):
            with autograd.record():
                l = loss(net(X), Y)
            l.backward()
            trainer.step(32)
            curve.append(float(l.mean().asscalar()))
        return curve

    eager, compiled = trained(False), trained(True)
    np.testing.assert_allclose(compiled, eager, rtol=1e-3)
    assert eager[-1] < eager[0] / 3


def test_gradients_of_gradients():
    """Of inputs, through a compiled net: slopes of slopes."""

    class Cube(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.sum(x * x * x)

    net = Cube()
    net.hybridize()
    x = nd.array([1, 2, 3])
    x.attach_grad()
    with autograd.record():
        y = net(x)
        (dx,) = autograd.grad(y, [x], create_graph=True)
        z = (dx * dx).sum()  # 9 x^4
    z.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), [36, 288, 972], rtol=1e-5)
    np.testing.assert_allclose(dx.asnumpy(), [3, 12, 27], rtol=1e-6)


def test_grad_req_and_frozen_parameters():
    net = mlp(3, 2)
    net.hybridize()
    x = nd.ones((2, 4))
    net(x)
    net[0].collect_params().setattr("grad_req", "null")
    net[1].collect_params().setattr("grad_req", "add")
    for _ in range(2):
        with autograd.record():
            y = net(x).sum()
        y.backward()
    assert net[1].bias.grad().asnumpy().tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="grad_req='null'"):
        net[0].weight.grad()


def test_two_threads_call_one_net():
    net = mlp(16, 4)
    x = nd.random.normal(shape=(8, 6))
    expected = net(x).asnumpy()
    net.hybridize()
    wrong = []

    def call():
        for _ in range(20):
            if not np.allclose(net(x).asnumpy(), expected, rtol=1e-5, atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- looking inside --------------------------------------------------------------------------------


def test_programs_print_as_python():
    net = mlp(3, 2, prefix="net_")
    net.hybridize()
    assert net.program() == []
    x = nd.ones((1, 4))
    (forward,) = net.program(x)
    assert "def net(" in str(net.program())
    compile(str(forward), "program", "exec")
    with autograd.record():
        y = net(x)
    y.backward()
    names = [program.name for program in net.program()]
    assert names == ["net", "net", "net_backward"]


def test_op_hooks_see_every_op():
    net = mlp(3, 2, prefix="net_")
    told = []
    net.register_op_hook(lambda name, op, array: told.append((name, op, array.shape)))
    x = nd.ones((1, 4))
    y = net(x)
    assert told == []  # as it is written: there is no graph
    net.hybridize()
    close(net(x), y)
    assert told == [
        ("net_dense0_fwd_output", "FullyConnected", (1, 3)),
        ("net_dense0_relu_fwd_output", "Activation", (1, 3)),
        ("net_dense1_fwd_output", "FullyConnected", (1, 2)),
    ]
    told.clear()
    net.register_op_hook(lambda name, op, array: told.append(name), monitor_all=True)
    with autograd.record():
        y = net(x).sum()
    y.backward()
    assert [t for t in told if isinstance(t, str)][:4] == [
        "net_dense0_fwd_data", "net_dense0_fwd_weight", "net_dense0_fwd_bias",
        "net_dense0_fwd_output",
    ]  # fmt: skip


def test_no_warnings_on_the_way():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = mlp(2)
        net.hybridize()
        net(nd.ones((1, 2)))
