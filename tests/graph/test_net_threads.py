"""One net in several threads: no call goes by what another thread's call has left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from d2lmini import autograd, init, nd
from d2lmini.gluon import HybridBlock, nn


def together(*functions: Callable[[], None]) -> None:
    """Run them at once; the first error of one is raised."""
    problems: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


class Slow(init.Initializer):
    """Lets the others come while it fills an array."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.others = threading.Event()
        self.filled: list[str] = []

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        self.begun.set()
        self.others.wait(0.2)
        self.filled.append(name)
        nd.random.normal(shape=arr.shape, out=arr)


@pytest.mark.parametrize("hybridized", [False, True])
def test_deferred_parameters_are_made_once(hybridized: bool):
    net, how = nn.Dense(3), Slow()
    net.initialize(how)
    net.hybridize(hybridized)
    x = nd.random.normal(shape=(2, 5))
    found: list[tuple[np.ndarray, np.ndarray]] = []

    def first() -> None:
        with autograd.record():
            y = net(x)
        (g,) = autograd.grad(y, [net.weight.data()])
        found.append((y.asnumpy(), g.asnumpy()))

    def second() -> None:
        assert how.begun.wait(10)
        first()

    together(first, second, second)
    assert len(how.filled) == 1
    for y, g in found:
        np.testing.assert_array_equal(y, net(x).asnumpy())
        np.testing.assert_allclose(g, np.tile(x.asnumpy().sum(0), (3, 1)), rtol=1e-5)


class Once(HybridBlock):
    """Its Python waits until another thread calls it too, or for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []
        self.begun = threading.Event()

    def hybrid_forward(self, F: object, x: nd.NDArray) -> nd.NDArray:
        self.calls.append(1)
        self.begun.set()
        threading.Event().wait(0.1)
        return x * 2


def test_python_runs_once_in_first_calls_at_once():
    net = Once()
    net.hybridize()

    def second() -> None:
        assert net.begun.wait(10)
        assert net(nd.ones(3)).asnumpy().tolist() == [2, 2, 2]

    together(lambda: net(nd.ones(2)).wait_to_read(), second, second)
    assert net.calls == [1]
    assert len(net.program()) == 2  # for two shapes
