"""Largest values before activations: what is computed stays, and of fewer numbers."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import autograd, nd, sym
from d2lmini.gluon import nn
from d2lmini.graph.passes import RISING, pool_before_activation
from d2lmini.graph.typed import graph_of

POOLS = {
    "squares": dict(kernel=(2, 2), stride=(2, 2)),
    "overlapping": dict(kernel=(3, 3), stride=(2, 2)),
    "padded": dict(kernel=(3, 2), stride=(1, 2), pad=(1, 1)),
    "hanging over": dict(kernel=(3, 3), stride=(3, 3), pooling_convention="full"),
    "everything": dict(global_pool=True, kernel=(1, 1)),
}


class Net(nn.HybridBlock):
    """An activation and a pooling, of what is given and of that again."""

    def __init__(self, act_type, pool, times=2):
        super().__init__()
        self.act_type, self.pool, self.times = act_type, pool, times

    def hybrid_forward(self, F, x):
        for _ in range(self.times):
            x = F.Pooling(F.Activation(x, act_type=self.act_type), pool_type="max", **self.pool)
        return x


def value_and_gradient(net, x, g):
    x = nd.array(x, dtype=x.dtype)
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward(nd.array(g[: y.size].reshape(y.shape), dtype=x.dtype))
    return y.asnumpy(), x.grad.asnumpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("act_type", RISING)
def test_values_and_gradients_are_those_of_the_order_as_written(act_type, pool, dtype):
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(3, 2, 13, 11)).astype(dtype), rng.normal(size=999).astype(dtype)
    net = Net(act_type, pool)
    expected = value_and_gradient(net, x, g)
    net.hybridize()
    for got, want in zip(value_and_gradient(net, x, g), expected):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(net(nd.array(x, dtype=dtype)).asnumpy(), expected[0])


@pytest.mark.parametrize(
    ("act_type", "pool_type", "dtype"),
    [("softsign", "max", "float32"), ("relu", "avg", "float32"), ("relu", "max", "float16")],
)
def test_the_order_stays_where_it_matters(act_type, pool_type, dtype):
    x = sym.var("x", dtype=dtype)
    y = sym.Activation(sym.cast(x, dtype=dtype), act_type=act_type)
    y = sym.Pooling(y, pool_type=pool_type, **POOLS["squares"])
    before = graph_of(y, x=(1, 1, 4, 4))
    assert pool_before_activation(before) == before
