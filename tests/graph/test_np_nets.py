"""Nets whose `forward` computes with `np` and `npx`, compiled: what they give is what they give
eagerly, class, shape, dtype and numbers; and MXNet reads the files that `export` writes of them."""

from __future__ import annotations

import numpy as onp
import pytest
from oracle import Oracle

from d2lmini import autograd, np, npx
from d2lmini.base import util
from d2lmini.gluon import HybridBlock, SymbolBlock
from d2lmini.symbol import NotImplementedForSymbol

#: Expressions of an array x (2, 3, 4); all their results are arrays.
FUNCTIONS = [
    "(x + 1, 2 - x, x * x, x / 3, x ** 2, 2 ** x, -x, abs(x), x @ x.transpose(0, 2, 1))",
    "(x > 0, x == x, (x > 0) * x, (x > 0).astype('float32'), x.astype('int32') + 1)",
    "(x[0], x[:, 1:], x[..., None], x[:, None], x[0, 0, 0], x[-1, -1], x[0][1], x[:, 1, 2])",
    "(x[0, 1, 2, None], x[None, 0, 0, 1, None], x[np.array(1, dtype='int32')])",
    "(x[::-1], x[:, ::-2])",
    "(x[[1, 0]], x[:, [0, 2]], x[onp.array([1, 1, 0])])",
    "x[np.array([1, 0], dtype='int32')]",
    "(x.sum(), x.mean(), x.sum() * 2, x / x.max(), x - x.mean(), x.sum() > 0)",
    "(x.sum(axis=(0, 1)), x.mean(axis=1, keepdims=True), x.var(axis=0), x.cumsum(axis=1))",
    "(x.reshape(-1), x.reshape(4, -1), x.T, np.expand_dims(x, 0), x.flatten(), x.swapaxes(0, 1))",
    "(np.concatenate([x, x], axis=1), np.stack([x, x]), np.split(x, 2, axis=2), np.tile(x, 2))",
    "(np.where(x > 0, x, 0), np.maximum(x, 0.5), np.exp(x), np.log(abs(x) + 1), np.tanh(x))",
    "(np.dot(x, np.arange(4)), np.dot(x, w), np.broadcast_to(x[0, 0], (3, 4)))",
    "(npx.relu(x), npx.softmax(x), npx.log_softmax(x, axis=1), npx.sigmoid(x))",
    "(npx.batch_dot(x, x, transpose_b=True), npx.one_hot(np.arange(3), 4) * x[0])",
    "(np.zeros(4) + x[0, 0], np.ones_like(x), np.eye(4) * x[0, :1].T, np.arange(4) * x)",
    "[row * 2 for row in x]",
    "(onp.exp(x), onp.sum(x), onp.float64(2) * x, onp.mean(x, axis=0))",
    "(x.argmax(axis=1), x.argmax(), x.argsort(), np.sort(x, axis=1))",
    "(np.linalg.norm(x), np.sum(x, axis=1))",
]


class Net(HybridBlock):
    """An expression of x as a net; `w` is an array of the surroundings."""

    def __init__(self, text):
        super().__init__()
        self.scope = {"np": np, "npx": npx, "onp": onp, "w": np.arange(4) / 2}
        self.text = text

    def forward(self, x):
        return eval(self.text, self.scope, {"x": x})


def data():
    return np.arange(24).reshape(2, 3, 4) / 7 - 1


def flat(value):
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in flat(item)]
    return [value]


def same(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert type(a) is type(b) is np.ndarray
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        onp.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("static_alloc", [False, True])
@pytest.mark.parametrize("text", FUNCTIONS)
def test_compiled_equals_eager(text, static_alloc):
    net = Net(text)
    found = []
    for compiled in (False, True):
        net.hybridize(compiled, static_alloc=static_alloc)
        x = data()
        for _ in range(2):
            x.attach_grad()
            with autograd.record():
                outputs = flat(net(x))
                smooth = [y for y in outputs if y.dtype == "float32"]
                total = sum((y * y).sum() for y in smooth) if smooth else x.sum()
            total.backward()
        found.append([*outputs, total, x.grad, *flat(net(x))])
    same(found[1], found[0])


def outputs_of_file(mx, path, x):
    """What the files at `path` give for x: shapes, dtypes and numbers."""
    mx.npx.set_np()
    try:
        names = path + "-symbol.json", ["data"], path + "-0000.params"
        found = mx.gluon.SymbolBlock.imports(*names)(mx.np.array(x))
        found = found if isinstance(found, (list, tuple)) else [found]
        return [(y.shape, str(y.dtype), y.asnumpy()) for y in found]
    finally:
        mx.npx.reset_np()


def exported(text, tmp_path):
    net = Net(text)
    net.hybridize()
    expected = flat(net(data()))
    with util.np_shape():
        net.export(str(tmp_path / "net"))
    return str(tmp_path / "net"), expected


@pytest.mark.parametrize("text", FUNCTIONS)
def test_exported_net_gives_the_same(text, tmp_path):
    path, expected = exported(text, tmp_path)
    net = SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
    same(flat(net(data())), expected)


@pytest.mark.parametrize("text", FUNCTIONS)
def test_mxnet_reads_the_exported_net(text, tmp_path, mxnet: Oracle):
    path, expected = exported(text, tmp_path)
    found = mxnet.ask(outputs_of_file, path, data().asnumpy())
    assert len(found) == len(expected)
    for (shape, dtype, numbers), y in zip(found, expected):
        assert (shape, dtype) == (y.shape, str(y.dtype))
        onp.testing.assert_allclose(numbers, y.asnumpy(), rtol=1e-5, atol=1e-6)


# -- both kinds of arrays, and the fast path -------------------------------------------------------


@pytest.mark.parametrize(
    "text, what",
    [
        ("np.nonzero(x)", "np.nonzero"), ("x[x > 0]", "mask as an index"),
        ("x * float(x[0, 0, 0])", "float"), ("x if x.sum() > 0 else -x", "bool"),
        ("np.median(x)", "np.median"), ("x * x.max().item()", "item"),
        ("np.percentile(x, 50)", "np.percentile"), ("np.quantile(x, 0.5)", "np.quantile"),
        ("np.linalg.eig(np.eye(2) * x[0, 0, 0])", "np.linalg.eig"),
        ("np.linalg.eigvals(np.eye(2) * x[0, 0, 0])", "np.linalg.eigvals"),
        ("f'{x.mean():.2f}'", "a number as text"),
    ],
)  # fmt: skip
def test_values_in_a_trace_are_refused(text, what):
    net = Net(text)
    net(data())
    net.hybridize()
    with pytest.raises(NotImplementedForSymbol, match=f"{what}.* is not implemented(.|\n)*  at "):
        net(data())
