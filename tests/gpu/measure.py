"""Microbenchmarks of a GPU, as rows of a table: what an operation, a byte and a product cost.

Each function measures on `ctx` and returns (what, figure, unit). A time is the median over repeats,
from the first call to the end of the wait for the GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from d2lmini import Context, autograd, cpu, gluon, nd
from d2lmini.device.cuda.module import allow_tf32


class Row(NamedTuple):
    """One line of the table."""

    what: str
    figure: float
    unit: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.figure:.4g} | {self.unit} |"


def seconds(run: Callable[[], object], repeats: int) -> float:
    """The median time of `run`, which ends with a wait; once before for what is made only once."""
    run()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def launches(ctx: Context, n: int = 2000, repeats: int = 5) -> Iterator[Row]:
    """What an operation on a small array costs in a chain, and what issuing it costs the caller."""
    x = nd.ones((32, 32), ctx=ctx)
    pushed = []

    def chain() -> None:
        y = x
        begin = time.perf_counter()
        for _ in range(n):
            y = y + 1
        pushed.append(time.perf_counter() - begin)
        y.wait_to_read()

    yield Row("an addition of 32 x 32, in a chain", seconds(chain, repeats) / n * 1e6, "us")
    yield Row("the same, until the call returns", statistics.median(pushed) / n * 1e6, "us")


def copies(ctx: Context, mbytes: int = 256, repeats: int = 5) -> Iterator[Row]:
    """Rates of large copies in each direction, through pinned memory, and within the device."""
    gbytes = mbytes / 1e3
    host = nd.array(np.ones(mbytes * 250_000, "float32"))
    x = host.as_in_context(ctx)
    back = nd.zeros(host.shape)
    nd.waitall()

    def wait(copy: Callable[[], object]) -> Callable[[], object]:
        return lambda: (copy(), nd.waitall())

    yield Row("host to device", gbytes / seconds(wait(lambda: host.copyto(x)), repeats), "GB/s")
    yield Row("device to host", gbytes / seconds(wait(lambda: x.copyto(back)), repeats), "GB/s")
    y = nd.zeros(host.shape, ctx=ctx)
    # It is read once and written once.
    yield Row("within the device", 2 * gbytes / seconds(wait(lambda: x.copyto(y)), repeats), "GB/s")


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    before = allow_tf32(on)
    try:
        yield
    finally:
        allow_tf32(before)


def products(ctx: Context, n: int = 4096, repeats: int = 10) -> Iterator[Row]:
    """Rates of n x n products in float32, with TF32 allowed, and in float16."""
    for dtype, on in (("float32", False), ("float32", True), ("float16", False)):
        a = nd.ones((n, n), ctx=ctx, dtype=dtype)

        def run(a: nd.NDArray = a) -> None:
            y = nd.dot(a, a)
            y.wait_to_read()

        with tf32(on):
            rate = 2 * n**3 / seconds(run, repeats) / 1e12
        yield Row(f"{n} x {n} product, {dtype}{', TF32' if on else ''}", rate, "TFLOP/s")


def training(ctx: Context, batch: int = 256, width: int = 1024, repeats: int = 20) -> Iterator[Row]:
    """A training step of an MLP with two hidden layers: as it is written, compiled, and replayed.
    The figure of the last stands only if its programs were graphs."""
    x = nd.random.uniform(shape=(batch, 784), ctx=ctx)
    y = nd.zeros((batch,), ctx=ctx)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for name, options in (
        ("eager", None), ("compiled", {}), ("compiled, static_alloc", {"static_alloc": True}),
        ("CUDA graphs", {"static_alloc": True, "static_shape": True}),
    ):  # fmt: skip
        net = gluon.nn.HybridSequential()
        for _ in range(2):
            net.add(gluon.nn.Dense(width, activation="relu"))
        net.add(gluon.nn.Dense(10))
        net.initialize(ctx=ctx)
        if options is not None:
            net.hybridize(**options)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

        def step(net: gluon.Block = net, trainer: gluon.Trainer = trainer) -> None:
            with autograd.record():
                total = loss(net(x), y)
            total.backward()
            trainer.step(batch)
            nd.waitall()

        figure = seconds(step, repeats) * 1e3
        if name == "CUDA graphs" and any("op by op" in line for line in net.cuda_graphs()):
            name = f"{name}, in vain: {'; '.join(net.cuda_graphs())}"
        yield Row(f"a step of the MLP, {name}", figure, "ms")


def all_rows(ctx: Context | None = None, **small: dict) -> Iterator[Row]:
    """All of them; `small` gives arguments by the name of the function."""
    for measure in (launches, copies, products, training):
        yield from measure(ctx or cpu(), **small.get(measure.__name__, {}))
