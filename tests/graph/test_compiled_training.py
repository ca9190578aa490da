"""Compiled calls on autograd's tape: whatever holds of an eager operation holds of them.

The eager computation of the same formula is the oracle.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import d2lmini
from d2lmini import MXNetError, autograd, cpu, engine, nd, storage, sym
from d2lmini.graph.cached_op import CachedOp
from d2lmini.ops.core import registry

x, w = sym.var("x"), sym.var("w")


def formula(F: Any, x: Any, w: Any) -> Any:
    return F.tanh(x * w) * x + F.exp(w * 0.5)


COMPILED = CachedOp(formula(sym, x, w), name="formula")


def eager(x: Any, w: Any) -> Any:
    return formula(nd, x, w)


@pytest.fixture(autouse=True, params=[0.0, 100.0], ids=["pushed", "inline"])
def threaded(request: Any) -> Iterator[None]:
    with engine.use("threaded", workers=2):
        engine.current.inline_below = request.param
        yield
        nd.waitall()


def leaves(*reqs: str, n: int = 3) -> list[Any]:
    rng = np.random.default_rng(n)
    values = [nd.array(rng.normal(size=n)) for _ in reqs]
    for value, req in zip(values, reqs):
        value.attach_grad(req)
    return values


def recorded(call: Callable, *inputs: Any, **how: Any) -> Any:
    with autograd.record(**how):
        return call(*inputs)


def alike(run: Callable[[Callable], list[Any]]) -> None:
    """`run`, given the compiled and the eager call, must give like arrays."""
    ours, theirs = ([y.asnumpy() for y in run(call)] for call in (COMPILED, eager))
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("n", [3, 5000])
def test_gradients(n: int):
    def run(call: Callable) -> list[Any]:
        a, b = leaves("write", "write", n=n)
        y = recorded(call, a, b)
        y.backward()
        return [y, a.grad, b.grad]

    alike(run)


def test_gradients_of_gradients_draw_the_same_and_change_nothing_twice():
    data, state = sym.var("data"), [sym.var(n) for n in ("gamma", "beta", "mean", "var")]
    net = sym.BatchNorm(data, *state, fix_gamma=False, momentum=0.5)
    f = CachedOp(sym.Dropout(net, p=0.5) ** 2)

    def eager(data: Any, *state: Any) -> Any:
        return nd.Dropout(nd.BatchNorm(data, *state, fix_gamma=False, momentum=0.5), p=0.5) ** 2

    found = []
    for call in (f, eager):
        rng = np.random.default_rng(0)
        a = nd.array(rng.normal(size=(4, 3)))
        gamma, beta, mean, var = (nd.array(rng.uniform(0.5, 1, size=3)) for _ in range(4))
        for each in (a, gamma, beta):
            each.attach_grad()
        d2lmini.random.seed(1)
        with autograd.record():
            y = call(a, gamma, beta, mean, var)
            (g,) = autograd.grad(y, [a], create_graph=True)
            z = (g * g).sum()
        z.backward()
        found.append(
            [v.asnumpy() for v in (y, g, mean, var, a.grad, gamma.grad, nd.random.uniform())]
        )
    for one, two in zip(*found):
        np.testing.assert_allclose(one, two, rtol=2e-4, atol=1e-5)


def test_the_tape_is_freed_with_the_outputs():
    a, b = leaves("write", "write", n=5000)
    gc.disable()
    try:
        recorded(COMPILED, a, b)
        nd.waitall()
        before = storage.stats(cpu()).live
        for _ in range(3):
            recorded(COMPILED, a, b)
            nd.waitall()
            assert storage.stats(cpu()).live == before
    finally:
        gc.enable()


def test_a_copy_between_devices_in_a_graph():
    """MXNet's files have them; a graph lies on one device."""
    (a,) = leaves("write")
    y = recorded(CachedOp(registry["_copyto"](x, dtype="float32") * x), a)
    y.backward()
    np.testing.assert_array_equal(a.grad.asnumpy(), (2 * a).asnumpy())


def test_an_error_in_backward_is_raised_at_the_wait():
    go = nd.array([0, 5])
    f = CachedOp(sym.take(x, w, mode="raise", name="pick") * x)
    a = nd.ones(2)
    a.attach_grad()
    with autograd.record():
        y = f(a, go)
    y.backward()
    with pytest.raises(MXNetError, match="pick"):
        a.grad.asnumpy()
    with pytest.raises(MXNetError, match="pick"):
        y.asnumpy()
