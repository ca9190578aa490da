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

from d2lmini import Context, autograd, cpu, cpu_pinned, engine, gluon, nd
from d2lmini.cuda.module import allow_tf32
from d2lmini.device.devices import device_of


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
    """Rates of large copies in each direction, from memory of both kinds, and within the device."""
    gbytes = mbytes / 1e3
    host = nd.array(np.ones(mbytes * 250_000, "float32"))
    x = host.as_in_context(ctx)
    back = nd.zeros(host.shape)
    nd.waitall()

    def wait(copy: Callable[[], object]) -> Callable[[], object]:
        return lambda: (copy(), nd.waitall())

    yield Row("host to device", gbytes / seconds(wait(lambda: host.copyto(x)), repeats), "GB/s")
    yield Row("device to host", gbytes / seconds(wait(lambda: x.copyto(back)), repeats), "GB/s")
    pinned, out = (a.as_in_context(cpu_pinned()) for a in (host, back))
    rate = gbytes / seconds(wait(lambda: pinned.copyto(x)), repeats)
    yield Row("pinned host memory to device", rate, "GB/s")
    rate = gbytes / seconds(wait(lambda: x.copyto(out)), repeats)
    yield Row("device to pinned host memory", rate, "GB/s")
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
    """Rates of dot, batch_dot and a 3 x 3 convolution in float32, with TF32 allowed, in float16."""
    m, channels, size = n // 4, max(n // 32, 2), 56 if n > 1000 else 8
    conv = {"kernel": (3, 3), "pad": (1, 1), "num_filter": channels, "no_bias": True}
    for dtype, on in (("float32", False), ("float32", True), ("float16", False)):
        a = nd.ones((n, n), ctx=ctx, dtype=dtype)
        b = nd.ones((16, m, m), ctx=ctx, dtype=dtype)
        x = nd.ones((64 if n > 1000 else 2, channels, size, size), ctx=ctx, dtype=dtype)
        w = nd.ones((channels, channels, 3, 3), ctx=ctx, dtype=dtype)
        runs = {
            f"{n} x {n} product": (lambda a=a: nd.dot(a, a), 2 * n**3),
            f"16 products of {m} x {m}": (lambda b=b: nd.batch_dot(b, b), 32 * m**3),
            f"3 x 3 convolution, {channels} channels, {size} x {size}": (
                lambda x=x, w=w: nd.Convolution(x, w, **conv),
                2 * x.size * channels * 9,
            ),
        }
        for name, (run, flops) in runs.items():
            with tf32(on):
                rate = flops / seconds(lambda run=run: run().wait_to_read(), repeats) / 1e12
            yield Row(f"{name}, {dtype}{', TF32' if on else ''}", rate, "TFLOP/s")


def overlap(ctx: Context, n: int = 8192, times: int = 10, mbytes: int = 128) -> Iterator[Row]:
    """How much of a copy from pinned memory passes while products are computed, by events of the
    two streams; nothing on a device that has no streams."""
    device = device_of(ctx)
    if device.kind != "cuda":
        return
    compute, into = (device._lanes[name].stream.handle for name in ("compute", "in"))
    cuda = device.xp.cuda
    a = nd.ones((n, n), ctx=ctx)
    host = nd.array(np.ones(mbytes * 250_000, "float32"), ctx=cpu_pinned())
    x = host.as_in_context(ctx)
    nd.dot(a, a).wait_to_read()
    nd.waitall()
    with cuda.Device(device.ordinal):
        events = [cuda.Event() for _ in range(4)]
        events[0].record(compute)
        kept = [nd.dot(a, a) for _ in range(times)]
        while engine.stats().pending:  # until they are issued
            time.sleep(1e-4)
        events[1].record(compute)
        events[2].record(into)
        host.copyto(x)
        while engine.stats().pending:
            time.sleep(1e-4)
        events[3].record(into)
        nd.waitall()
        for event in events:
            event.synchronize()
        end, begin_copy, end_copy = (cuda.get_elapsed_time(events[0], e) for e in events[1:])
    del kept
    share = max(0.0, min(end, end_copy) - begin_copy) / max(end_copy - begin_copy, 1e-9)
    yield Row("a copy from pinned memory that passed during products", 100 * share, "%")


def lstm(ctx: Context, hidden: int = 256, steps: int = 128, repeats: int = 10) -> Iterator[Row]:
    """Forward of an LSTM layer, alone and with backward."""
    net = gluon.rnn.LSTM(hidden, 1, layout="NTC", input_size=hidden)
    net.initialize(ctx=ctx)
    x = nd.ones((32, steps, hidden), ctx=ctx)

    def both() -> None:
        with autograd.record():
            y = net(x)
        y.backward()
        nd.waitall()

    what = f"LSTM of {hidden}, {steps} steps"
    yield Row(what, seconds(lambda: net(x).wait_to_read(), repeats) * 1e3, "ms")
    yield Row(f"{what}, and backward", seconds(both, repeats) * 1e3, "ms")


def all_rows(ctx: Context | None = None, **small: dict) -> Iterator[Row]:
    """All of them; `small` gives arguments by the name of the function."""
    for measure in (launches, copies, overlap, products, lstm):
        yield from measure(ctx or cpu(), **small.get(measure.__name__, {}))
