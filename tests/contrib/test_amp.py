"""Mixed precision: casts of calls, steps that are skipped, and nets that learn all the same."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from gpu_kinds import some_gpus

import d2lmini as mx
from d2lmini import autograd, cpu, gluon, nd, sym
from d2lmini.contrib import amp
from d2lmini.gluon import nn, rnn
from d2lmini.ndarray import NDArray, dispatch

HALF, SINGLE = np.float16, np.float32


def ones(*shape: int, dtype: str = "float32") -> Any:
    return nd.ones(shape, dtype=dtype)


# -- which calls are cast --------------------------------------------------------------------------

CASTS = [
    ("FullyConnected(f, f, no_bias=True, num_hidden=2)", HALF),
    ("FullyConnected(d, d, no_bias=True, num_hidden=2)", np.float64),
    ("softmax(h)", SINGLE),
    ("softmax(f)", SINGLE),
    ("sum(h)", SINGLE),
    ("relu(h)", HALF),
    ("relu(f)", SINGLE),
    ("add(h, f)", SINGLE),
    ("add(f, h)", SINGLE),
    ("add(h, h)", HALF),
    ("elemwise_mul(h, f)", SINGLE),
    ("dot(h, f)", SINGLE),
    ("concat(h, f, h)", SINGLE),
    ("where(i, h, f)", SINGLE),
    ("where(i, h, h)", HALF),
    ("power(h, 3)", SINGLE),
    ("Activation(h, act_type='softrelu')", SINGLE),
    ("Activation(h, act_type='relu')", HALF),
    ("LeakyReLU(h, act_type='elu')", SINGLE),
    ("LeakyReLU(h, act_type='leaky')", HALF),
    ("LayerNorm(h, h[0], h[0])", SINGLE),
    ("LeakyReLU(h, h[0], act_type='prelu')", HALF),
    ("LeakyReLU(h, f[0], act_type='prelu')", SINGLE),
    ("LeakyReLU(f, h[0], act_type='prelu')", SINGLE),
    ("take(h, i)", HALF),
    ("take(h, f)", HALF),
    ("pick(h, f[0])", HALF),
    ("Embedding(h, f, input_dim=2, output_dim=2)", SINGLE),
    ("broadcast_like(h, f)", HALF),
    ("SequenceMask(h, f[0], use_sequence_length=True)", HALF),
]
ARRAYS = {
    name: ones(2, 2, dtype=dtype)
    for name, dtype in zip("fhid", ("float32", "float16", "int32", "float64"))
}


@pytest.mark.parametrize(("call", "dtype"), CASTS)
def test_a_call_is_cast_on_arrays_and_on_symbols(call: str, dtype: Any):
    symbols = {name: sym.var(name) for name in ARRAYS}
    rows = {f"{name}[0]": f"{name}_row" for name in ARRAYS}
    symbols |= {row: sym.var(row) for row in rows.values()}
    text = call
    for name, row in rows.items():
        text = text.replace(name, row)
    with amp.init():
        y = eval(f"nd.{call}", {"nd": nd, **ARRAYS})
        graph = eval(f"sym.{text}", {"sym": sym, **symbols})
    assert y.dtype is dtype
    values = {**ARRAYS, **{f"{name}_row": x[0] for name, x in ARRAYS.items()}}
    (z,) = graph.eval(**{name: values[name] for name in graph.list_inputs()})
    assert z.dtype is dtype
    np.testing.assert_array_equal(y.asnumpy(), z.asnumpy())


def test_scopes_nest_and_survive_errors():
    h = ARRAYS["h"]
    with amp.init("float16"):
        with pytest.raises(ZeroDivisionError), amp.init(None):
            assert (nd.relu(h).dtype, nd.exp(h).dtype) == (HALF, HALF)
            raise ZeroDivisionError
        assert (nd.relu(h).dtype, nd.exp(h).dtype) == (HALF, SINGLE)


def test_other_threads_are_cast():
    found = []
    with amp.init():
        thread = threading.Thread(target=lambda: found.append(nd.exp(ARRAYS["h"]).dtype))
        thread.start()
        thread.join()
    assert found == [SINGLE]


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda: amp.init("int8"), AssertionError, "only float16 or bfloat16.*got 'int8'"),
        (lambda: amp.init("float8"), AssertionError, "only float16 or bfloat16.*got 'float8'"),
        (lambda: amp.init_trainer(a_trainer()), AssertionError, r"forget to call amp.init\(\)"),
        (lambda: amp.scale_loss(1, a_trainer()).__enter__(), AssertionError, "amp.init"),
        (lambda: amp.list_fp32_ops(), AttributeError, "left out"),
        (lambda: amp.convert_symbol(3), AttributeError, "left out.*within amp.init"),
    ],
)
def test_errors(call: Any, kind: Any, says: str):
    with pytest.raises(kind, match=says):
        call()
    assert NDArray._apply is dispatch.apply


def a_trainer() -> gluon.Trainer:
    net = nn.Dense(1, in_units=1)
    net.initialize()
    return gluon.Trainer(net.collect_params(), "sgd")


# -- scaled losses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("on_kvstore", [True, False])
def test_a_step_with_an_overflow_is_skipped_on_all_devices(on_kvstore: bool):
    with some_gpus("virtual", 2) as ctxs, amp.init():
        param = gluon.Parameter("weight", shape=(2,))
        param.initialize(init="ones", ctx=ctxs)
        options = {"learning_rate": 1.0}
        trainer = gluon.Trainer([param], "sgd", options, update_on_kvstore=on_kvstore)
        amp.init_trainer(trainer)
        for bad, weight in ((1.0, 0.5), (np.inf, 0.5), (1.0, 0.0)):
            with autograd.record():
                losses = [(param.data(c) * nd.ones(2, ctx=c)).sum() for c in ctxs]
                with amp.scale_loss(losses, trainer) as scaled:
                    autograd.backward(scaled)
            param.list_grad()[1][0] *= bad  # on one device alone
            trainer.step(4)
            for data in param.list_data():
                np.testing.assert_array_equal(data.asnumpy(), [weight] * 2)


# -- nets learn all the same -----------------------------------------------------------------------


class Residual(nn.HybridBlock):
    """The block of a small residual net."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.first, self.norm = nn.Conv2D(4, 3, padding=1), nn.BatchNorm()
        self.second, self.skip = nn.Conv2D(4, 3, padding=1), nn.Conv2D(4, 1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.norm(self.first(x)))) + self.skip(x))


class Transformer(nn.HybridBlock):
    """A block with one head of attention."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.q, self.k, self.v = (nn.Dense(8, flatten=False) for _ in "qkv")
        self.norm, self.out = nn.LayerNorm(), nn.Dense(3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        scores = F.batch_dot(self.q(x), self.k(x), transpose_b=True) / 8**0.5
        return self.out(self.norm(F.batch_dot(F.softmax(scores), self.v(x)) + x))


def sequential(*layers: Any) -> Any:
    net = nn.HybridSequential()
    net.add(*layers)
    return net


NETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: sequential(nn.Dense(16, activation="relu"), nn.Dense(3)), (10,)),
    "lenet": (
        lambda: sequential(
            nn.Conv2D(6, 3, activation="tanh"), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(3)
        ),
        (1, 8, 8),
    ),
    "resnet": (lambda: sequential(Residual(), nn.Flatten(), nn.Dense(3)), (2, 5, 5)),
    "transformer": (Transformer, (4, 8)),
    "lstm": (
        lambda: sequential(rnn.LSTM(8, layout="NTC", input_size=4), nn.Dense(3, in_units=24)),
        (3, 4),
    ),
}
SIZE = 48


def train(name: str, dtype: str | None, hybrid: bool, ctxs: Any = None, steps: int = 15) -> tuple:
    """(accuracy, dtype of the outputs, parameters) after a few steps on one batch."""
    mx.random.seed(1)
    rng = np.random.default_rng(1)
    make, shape = NETS[name]
    images, labels = rng.standard_normal((SIZE, *shape)).astype("float32"), np.arange(SIZE) % 3
    images.reshape(SIZE, -1)[np.arange(SIZE), labels] += 4
    ctxs = ctxs or [cpu()]
    net, loss = make(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier(), ctx=ctxs)
    if hybrid:
        net.hybridize()
    parts = [gluon.utils.split_and_load(a, ctxs) for a in (images, labels.astype("float32"))]
    with amp.init(dtype):
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
        if dtype is not None:
            amp.init_trainer(trainer)
        for _ in range(steps):
            with autograd.record():
                losses = [loss(net(X), y).mean() for X, y in zip(*parts, strict=True)]
                if dtype is None:
                    autograd.backward(losses)
                else:
                    with amp.scale_loss(losses, trainer) as scaled:
                        autograd.backward(scaled)
            trainer.step(len(ctxs))
        outputs = [net(X) for X in parts[0]]
    found = np.concatenate([y.asnumpy().astype("float32") for y in outputs])
    weights = [p.data(ctxs[0]).asnumpy() for p in net.collect_params().values()]
    return (found.argmax(1) == labels).mean(), outputs[0].dtype, weights


@pytest.mark.parametrize("name", NETS)
def test_a_net_learns_as_in_float32_and_eager_equals_hybridized(name: str):
    in_float32, _, _ = train(name, None, hybrid=True)
    eager, dtype, weights = train(name, "float16", hybrid=False)
    hybridized, _, same = train(name, "float16", hybrid=True)
    assert dtype is HALF
    assert in_float32 > 0.9 and eager >= in_float32 - 0.05
    assert eager == hybridized
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_bfloat16_learns_too():
    accuracy, dtype, weights = train("mlp", "bfloat16", hybrid=False)
    _, _, same = train("mlp", "bfloat16", hybrid=True)
    assert accuracy > 0.9 and dtype.__name__ == "bfloat16"
    for one, other in zip(weights, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_net_is_exported_with_and_without_casts(tmp_path):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = nd.random.normal(shape=(3, 5))
    with amp.init():
        y = net(x)
    for name, casts in (("with", True), ("without", False)):
        net.export(str(tmp_path / name), remove_amp_cast=not casts)
        graph, params = (str(tmp_path / name) + end for end in ("-symbol.json", "-0000.params"))
        assert ("amp_cast" in (tmp_path / f"{name}-symbol.json").read_text()) == casts
        again = gluon.SymbolBlock.imports(graph, ["data"], params)(x)
        assert again.dtype == (HALF if casts else SINGLE) and y.dtype == HALF
        np.testing.assert_allclose(y.asnumpy(), again.asnumpy(), rtol=5e-3, atol=2e-3)
