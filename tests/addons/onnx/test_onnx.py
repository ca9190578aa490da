"""Nets and ops written as ONNX, run by onnxruntime: the same numbers as here.

Needs the packages onnx and onnxruntime (`pip install d2lmini[onnx,test]`); skipped without.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from op_rows.table import ROWS, each, find
from symbol_values import evaluate

from d2lmini import d2l, init, nd, sym
from d2lmini.base import MXNetError
from d2lmini.gluon import nn
from d2lmini.gluon.compiled import flatten
from d2lmini.graph.ir import Node
from d2lmini.ops.composed import Composed
from d2lmini.ops.core import Op, Spec, registry

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from d2lmini.onnx import export_model, export_onnx  # noqa: E402
from d2lmini.onnx.formulas import FORMULAS  # noqa: E402
from d2lmini.onnx.graph import OF_SHAPE, export  # noqa: E402


def run(model: Any, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime gives for a model, or a file."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in values.items() if k in wanted})


# -- every op --------------------------------------------------------------------------------------


SUPPORTED = {op.name for op in registry.values() if op.onnx is not None} | {*FORMULAS, *OF_SHAPE}


def convertible(case: Any) -> bool:
    op = find(case.op)
    if not isinstance(op, Op) or (op.name not in SUPPORTED and not isinstance(op, Composed)):
        return False
    return bool(case.inputs) and all(map(ordinary, case.inputs))


def ordinary(array: Any) -> bool:
    """Neither empty nor with numbers at the edge of what a dtype holds, where libraries differ."""
    if not isinstance(array, np.ndarray) or not array.size or array.dtype == bool:
        return False
    return bool(np.isfinite(array).all() and abs(array.astype("float64")).max() < 1e6)


CASES = [case for case in ROWS if convertible(case)]


def symbol_of(case: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The row as a Symbol of variables x0, x1, ..., and their values."""
    op = find(case.op)
    given = tuple(nd.array(i, dtype=i.dtype) for i in case.inputs)
    bound, attrs = op.bind(given, dict(case.attrs))
    places, values, left = [], {}, list(case.inputs)
    for x in bound:
        if x is None:
            places.append(None)
            continue
        name = f"x{len(values)}"
        values[name] = left.pop(0)
        places.append((Node(None, name), 0))
    node = Node(op, "y", tuple(places), attrs)
    return sym.Symbol(tuple((node, i) for i in range(node.n_outputs))), values


#: Why a row may be refused.
REFUSED = (
    "negative power of unsigned", "has no counterpart in MXNet's files",
    "lengths have no converter",
    "a window lies in the padding",
    "has no converter for integers", "above a_max", "to integers has no converter",
    "beyond the padding has no converter",
    "pool_type='sum'", "mode='always' draws", "output_mean_var",
    "axis other than", "projections and clipped states", "layout", "only one input, to the nearest",
)  # fmt: skip


def for_whole_numbers(case: Any) -> bool:
    """Most of ONNX's functions are for floating numbers only, and so is division by zero."""
    return any(i.dtype.kind in "iu" for i in case.inputs[:1])


@pytest.mark.law
@each(CASES)
def test_op_equals_onnxruntime(case: Any):
    symbol, values = symbol_of(case)
    inputs = {k: Spec(v.shape, v.dtype) for k, v in values.items()}
    try:
        model = export(symbol, {}, inputs)
    except MXNetError as problem:
        text = str(problem)
        known = any(words in text for words in REFUSED)
        known = known or ("this op has no converter" in text and find(case.op).onnx is None)
        assert known or ("would not be valid" in text and for_whole_numbers(case)), text
        pytest.skip(text[:150])
    if for_whole_numbers(case) and case.op in ("broadcast_div", "broadcast_power"):
        pytest.skip("a negative power or a division by zero of whole numbers")
    try:
        theirs = run(model, values)
    except Exception as problem:
        if "NOT_IMPLEMENTED" in str(problem) or "does not support double yet" in str(problem):
            pytest.skip(f"onnxruntime does not do this: {str(problem)[:150]}")
        raise
    for mine, y in zip(evaluate(symbol, values), theirs, strict=True):
        assert mine.shape == y.shape
        assert mine.dtype == y.dtype
        half = mine.dtype == np.float16
        np.testing.assert_allclose(
            y.astype("float64"), mine.astype("float64"), rtol=1e-2 if half else 2e-4,
            atol=1e-2 if half else 1e-4,
        )  # fmt: skip


def test_every_converter_was_asked():
    asked = {find(case.op).name for case in CASES}
    of_nothing = {"_zeros", "_ones", "_full"}  # known, if their shape does not follow the batch
    assert SUPPORTED - of_nothing <= asked


# -- nets ------------------------------------------------------------------------------------------


def random(*shape: int, seed: int = 0) -> Any:
    return nd.array(np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32"))


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(32, activation="relu"), nn.Dropout(0.5), nn.Dense(5, activation="sigmoid"))
    return net


def lenet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, activation="sigmoid"), nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(16, kernel_size=5, activation="sigmoid"), nn.AvgPool2D(pool_size=2, strides=2),
        nn.Dense(120, activation="tanh"), nn.Dense(84, activation="relu"), nn.Dense(10),
    )  # fmt: skip
    return net


class Residual(nn.HybridBlock):
    def __init__(self, channels: int, strides: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(channels, kernel_size=3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(channels, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2D(channels, kernel_size=1, strides=strides) if strides > 1 else None
        self.bn1, self.bn2 = nn.BatchNorm(), nn.BatchNorm()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.conv3(x) if self.conv3 else x))


def resnet18():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(64, kernel_size=3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
    for stage, channels in enumerate((64, 128, 256, 512)):
        net.add(Residual(channels, 1 if stage == 0 else 2), Residual(channels))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


class Seen(nn.HybridBlock):
    """A plain forward, with shapes, slices, a constant and a normalization."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.norm, self.embedding = nn.LayerNorm(), nn.Embedding(10, 8)

    def forward(self, x: Any) -> Any:
        y = self.embedding(x)
        y = self.norm(y.reshape((x.shape[0], -1, 4)))[:, 1:, ::2]
        return nd.concat(y, y * nd.arange(2), dim=2).softmax(axis=-1).sum(axis=1)


NETS = {
    "mlp": (mlp, (3, 7)),
    "lenet": (lenet, (2, 1, 28, 28)),
    "resnet18": (resnet18, (2, 1, 28, 28)),
    "resnet18 of plain blocks": (lambda: d2l.resnet18(10), (2, 1, 28, 28)),
    "plain forward": (Seen, (2, 3)),
}


def check(net: Any, path: str, inputs: list[Any]) -> None:
    """onnxruntime makes of a file what the net makes of these inputs."""
    expected = net(*inputs)
    expected = flatten(list(expected))[0] if isinstance(expected, (list, tuple)) else [expected]
    names = [i.name for i in runtime.InferenceSession(path).get_inputs()]
    got = run(path, {n: x.asnumpy() for n, x in zip(names, inputs, strict=True)})
    for y, e in zip(got, expected, strict=True):
        assert y.shape == e.shape
        assert np.abs(e.asnumpy()).max() > 1e-3
        np.testing.assert_allclose(y, e.asnumpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_net(name: str, tmp_path: Any):
    make, shape = NETS[name]
    net = make()
    net.initialize(init.Xavier())
    x = random(*shape) if name != "plain forward" else nd.array([[1, 2, 3], [9, 0, 4]])
    path = str(tmp_path / "net.onnx")
    assert export_onnx(net, path, (x,)) == path
    check(net, path, [x])


# -- integers ---------------------------------------------------------------------------


def of(function: Any) -> Any:
    net = nn.HybridLambda(function)
    net.initialize(init.Uniform(0.5))
    return net


#: Functions of integers that ONNX's operators compute as ours do.
OF_INTEGERS = {
    "roundings": lambda F, x: F.round(x) + F.floor(x) + F.ceil(x) + F.rint(x),
    "sums": lambda F, x: F.add_n(x, F.relu(x)) - F.square(x) + F.sum(x) * F.max(x),
    "numbers": lambda F, x: (x * 2.7 > 5) + F.clip(x, -3, 8.5),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers(name: str, dtype: str, tmp_path: Any):
    net = of(lambda F, x: OF_INTEGERS[name](F, F.cast(x, dtype=dtype)))
    x = nd.array([[8, 27, -64, 0, 1, 7, 9]])
    (got,) = run(net.export_onnx(str(tmp_path / "a.onnx"), x), {"data": x.asnumpy()})
    np.testing.assert_array_equal(got, net(x).asnumpy())


# -- files of Symbols ------------------------------------------------------------------------------


def classifier() -> tuple[Any, dict[str, Any]]:
    x = sym.BatchNorm(sym.FullyConnected(sym.var("data"), num_hidden=4, name="fc"), name="bn")
    params = {
        "arg:fc_weight": random(4, 6), "arg:fc_bias": random(4), "arg:bn_gamma": random(4, seed=1),
        "arg:bn_beta": random(4, seed=2), "aux:bn_moving_mean": random(4, seed=3),
        "aux:bn_moving_var": nd.ones(4),
    }  # fmt: skip
    return sym.SoftmaxOutput(x, sym.var("softmax_label"), name="softmax"), params


def test_export_model(tmp_path: Any):
    """A Symbol for training, as old programs have it: the label is not asked for."""
    symbol, params = classifier()
    symbol.save(tmp_path / "net-symbol.json")
    nd.save(str(tmp_path / "net-0000.params"), params)
    files = (str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params"))
    x = random(3, 6).asnumpy()
    values = {k.split(":")[1]: v.asnumpy() for k, v in params.items()}
    expected = evaluate(symbol, {**values, "data": x, "softmax_label": np.zeros(3, "float32")})
    for source in ((symbol, params), files):
        path = export_model(*source, [(3, 6)], np.float32, str(tmp_path / "net.onnx"))
        np.testing.assert_allclose(run(path, {"data": x})[0], expected[0], rtol=1e-5)
    model = onnx.load(path)
    assert [o.name for o in model.graph.output] == ["softmax_output"]
    assert [i.name for i in model.graph.input] == ["data"]


# -- errors ----------------------------------------------------------------------------------------


def test_an_op_without_a_converter_is_named():
    y = sym.gammaln(sym.var("x"), name="root") + 1
    with pytest.raises(MXNetError, match=r"node 'root': gammaln: this op has no converter"):
        export(y, {}, {"x": Spec((2, 2), "float32")})


def test_calls_that_do_not_fit():
    symbol, params = classifier()
    with pytest.raises(MXNetError, match="2 shapes for 1 inputs: data"):
        export_model(symbol, params, [(3, 6), (3,)])
    with pytest.raises(MXNetError, match="'w' is neither a parameter nor an input"):
        export(sym.var("x") + sym.var("w"), {}, {"x": Spec((2,), "float32")})
    with pytest.raises(TypeError, match="expected a Symbol or a file, got int"):
        export_model(3, params, [(3, 6)])


def test_without_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install d2lmini\[onnx\]"):
        export(sym.relu(sym.var("x")), {}, {"x": Spec((2,), "float32")})


ALIAS = """
import d2lmini
d2lmini.install_as_mxnet()
import mxnet as mx
from mxnet.contrib import onnx as onnx_mxnet
from mxnet.contrib.onnx import export_model
assert mx.onnx.export_model is mx.contrib.onnx.export_model is export_model
assert onnx_mxnet.export_model is export_model
"""


def test_old_programs_find_it():
    done = subprocess.run([sys.executable, "-c", ALIAS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
