"""Calls of one hybridized net with ever new shapes, and calls that fail."""

from __future__ import annotations

import gc
import linecache

import pytest

from d2lmini import autograd, nd
from d2lmini.base import MXNetError
from d2lmini.gluon import HybridBlock, nn
from d2lmini.graph import cached_op

X, Z = nd.array([1.0, 2]), nd.array([[1.0, 2], [3, 4]])


# -- many shapes -----------------------------------------------------------------------------------


class Shaped(HybridBlock):
    def forward(self, x):
        return (x * x.shape[0]).sum(axis=0)


@pytest.mark.parametrize("kind", [nn.Dense, Shaped])
def test_what_is_kept_of_many_shapes_is_bounded(kind, monkeypatch):
    monkeypatch.setattr(cached_op, "MOST_BYTES", 100_000)
    net = kind(3, in_units=2) if kind is nn.Dense else kind()
    net.initialize()
    net.hybridize()
    gc.collect()
    files = len(linecache.cache)
    for n in range(1, 120):
        x = nd.ones((n, 2))
        x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        net(x).wait_to_read()
    compiled = net._compiled()
    programs = net.program()
    assert len(compiled.cache._programs) == cached_op.LEAST
    assert len(linecache.cache) - files <= len(programs) + 4
    assert len(compiled.placed) <= len(programs) + 1
    # One that was forgotten is compiled again.
    before = net(nd.ones((119, 2))).asnumpy()
    for n in (1, 119, 2, 119):
        y = net(nd.ones((n, 2)))
    assert y.asnumpy().tolist() == before.tolist()


# -- errors name the line in the Block -------------------------------------------------------------


class Failing(HybridBlock):
    """Each call fails for the second input, in a line that says so."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def hybrid_forward(self, F, x, y):
        if self.call == "shape":
            return F.tanh(x) + y  # the shape
        if self.call == "dtype":
            return F.concat(x, y)  # the dtype
        if self.call == "run":
            return F.take(x, F.reshape(y, (-1,)), mode="raise") * 2  # the run
        return F.shuffle(x) * 2 + y  # the backward


@pytest.mark.parametrize(
    ("call", "other"),
    [
        ("shape", lambda: nd.ones((2, 4))),
        ("dtype", lambda: nd.ones((2, 3), dtype="float64")),
        ("run", lambda: nd.full((2, 3), 7)),
        ("backward", lambda: nd.ones((2, 3))),
    ],
)
@pytest.mark.parametrize("active", [True, False])
def test_an_error_names_the_line_in_the_block(call, other, active):
    net = Failing(call)
    net.hybridize(active)
    x = nd.ones((2, 3))
    if call != "backward":
        net(x, nd.zeros((2, 3))).wait_to_read()
    else:
        x.attach_grad()
    with pytest.raises(MXNetError) as caught:
        with autograd.record():
            y = net(x, other())
        if call == "backward":
            y.backward()
        y.wait_to_read()
    frames = [str(entry.statement) for entry in caught.traceback]
    if active or call == "run":
        assert f"# the {call}" in str(caught.value)
    elif call != "backward":  # where an eager call names the line of backward()
        assert any(f"# the {call}" in line for line in frames)
