"""Blocks within Blocks: as deep when they are hybridized as when they run eagerly."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import autograd, gluon, nd
from d2lmini.gluon import nn


class Wrapper(gluon.HybridBlock):
    """A Block around another one."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def hybrid_forward(self, F, x):
        return self.inner(x)


class PlainWrapper(Wrapper):
    """The same with a plain `forward`."""

    def forward(self, x):
        return self.inner(x)


def train(net, x):
    with autograd.record():
        y = net(x)
    y.backward()
    return y.asnumpy(), [p.grad().asnumpy() for p in net.collect_params().values()]


def same(found, wanted):
    for a, b in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
        np.testing.assert_allclose(a, b, 1e-6)


@pytest.mark.parametrize("kind", [Wrapper, PlainWrapper])
def test_what_runs_eagerly_can_be_hybridized(kind):
    net = nn.Dense(4)
    for _ in range(150):
        net = kind(net)
    net.initialize()
    x = nd.ones((2, 3))
    wanted = train(net, x)
    net.hybridize()
    same(train(net, x), wanted)


def test_a_container_with_a_hook_or_a_program_of_its_own_is_called():
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2))
    net = nn.HybridSequential()
    net.add(inner)
    net.initialize()
    x, seen = nd.ones((2, 3)), []
    inner.register_forward_hook(lambda *_: seen.append("after"))
    inner.register_forward_pre_hook(lambda *_: seen.append("before"))
    net(x)
    assert seen == ["before", "after"]
    net = nn.HybridSequential()
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2))
    net.add(inner)
    net.initialize()
    inner.hybridize()
    net(x)
    assert len(inner.program()) == 1
    net.hybridize()
    net(x)
    assert (len(net.program()), len(inner.program())) == (1, 0)
