"""How long the tape lives, what it holds meanwhile, and that freeing it never recurses.

The garbage collector is off: what a cycle kept alive would show.
"""

from __future__ import annotations

import gc
import threading

import pytest

from d2lmini import autograd, engine, nd, storage

MB = 1 << 20
N = MB // 4  # float32 elements of a megabyte


@pytest.fixture(autouse=True)
def no_collector():
    gc.disable()
    yield
    gc.enable()


def live() -> int:
    nd.waitall()
    return storage.stats().live


def leaf(shape=N) -> nd.NDArray:
    x = nd.ones(shape) * 0.5
    x.attach_grad()
    return x


class Identity(autograd.Function):
    """Passes everything on and says so when backward comes by."""

    def __init__(self, seen=lambda: None):
        self.seen = seen

    def forward(self, x):
        return x

    def backward(self, g):
        self.seen()
        return g


# Every kind of node: what it keeps is the output, an input, several of either, nothing.
PROGRAMS = {
    "saves its output": lambda x: x.tanh().sigmoid(),
    "saves its inputs": lambda x: x * x * x,
    "saves nothing": lambda x: (x + 1) * 2,
    "several outputs": lambda x: nd.split(x.reshape((2, -1)).tanh(), num_outputs=2, axis=0)[1],
    "saves several outputs": lambda x: nd.topk(x.reshape((8, -1)), k=2, ret_typ="both")[0],
    "any number of inputs": lambda x: nd.concat(x, x.tanh(), x, dim=0),
    "hidden outputs": lambda x: nd.BatchNorm(
        x.reshape((-1, 4)), nd.ones(4), nd.ones(4), nd.zeros(4), nd.ones(4)
    ),
    "a view": lambda x: x.reshape((4, -1))[1:3].tanh(),
    "in another layout": lambda x: nd.transpose(x.reshape((4, -1))).exp(),
    "an index": lambda x: x[nd.array([1, 2, 1])],
    "a graph beside": lambda x: (x.tanh(), (x * 3).exp())[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("then", ["nothing", "backward", "retained", "grad", "second order"])
def test_memory_returns_when_the_head_dies(name: str, then: str):
    x = leaf()
    for _ in range(2):  # programs keep small arenas from call to call
        use(PROGRAMS[name], x, then)
    before = live()
    use(PROGRAMS[name], x, then)
    assert live() == before


def use(program, x, then: str) -> None:
    """Record the program and go back."""
    with autograd.record():
        y = program(x)
        if then == "second order":
            (g,) = autograd.grad(y, [x], create_graph=True)
            z = (g * g).sum()
    if then == "backward":
        y.backward()
    elif then == "retained":
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
    elif then == "grad":
        autograd.grad(y, [x])
    elif then == "second order" and z._node is not None:
        z.backward()


def test_saved_memory_is_given_back_on_the_way():
    """In the middle of a chain backward has given back what the later half had saved."""
    x = leaf()
    seen = []
    with engine.use("naive"):
        with autograd.record():
            y = x
            for _ in range(10):
                y = y.tanh()
            y = Identity(lambda: seen.append(storage.stats().live))(y)
            for _ in range(10):
                y = y.tanh()
            y = y.sum()
        begin = live()
        y.backward()
        end = live()
    # At most: the gradient that arrives, the one before it and what is being computed from.
    assert begin - 10 * MB <= seen[0] <= begin - 6 * MB
    assert end == begin - 20 * MB


@pytest.mark.parametrize("then", ["dropped", "backward"])
@pytest.mark.parametrize(
    ("step", "nodes"),
    [
        pytest.param(lambda z: z.tanh(), 1, id="output"),
        pytest.param(lambda z: z + 1, 1, id="nothing"),
        pytest.param(lambda z: z * z, 1, id="inputs"),
        pytest.param(lambda z: z.reshape((2, 2)), 1, id="view"),
        pytest.param(lambda z: Identity()(z), 1, id="Function"),
        pytest.param(
            lambda z: nd.split(nd.concat(z, z, dim=0), num_outputs=2, axis=0)[0],
            2,
            id="several outputs",
        ),
    ],
)
def test_deep_chains_do_not_overflow_the_stack(step, nodes: int, then: str):
    """Neither walking nor freeing calls itself: a small stack will do."""
    x = nd.ones(4) * 0.5
    x.attach_grad()
    before = live()
    problems: list = []

    def run() -> None:
        try:
            with autograd.record():
                z = x
                for _ in range(20_000 // nodes):
                    z = step(z)
            if then == "backward":
                z.backward()
        except BaseException as problem:
            problems.append(problem)

    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert not problems
    assert live() == before
