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


class Residual(gluon.nn.HybridBlock):
    """Two convolutions with a connection around them."""

    def __init__(self, channels: int, strides: int = 1):
        super().__init__()
        conv, norm = gluon.nn.Conv2D, gluon.nn.BatchNorm
        with self.name_scope():
            self.body = gluon.nn.HybridSequential()
            self.body.add(
                conv(channels, 3, strides, 1), norm(), gluon.nn.Activation("relu"),
                conv(channels, 3, 1, 1), norm(),
            )  # fmt: skip
            self.around = conv(channels, 1, strides) if strides > 1 else None

    def hybrid_forward(self, F, x):
        return F.relu(self.body(x) + (x if self.around is None else self.around(x)))


def _mlp(width: int) -> list[gluon.Block]:
    layers = [gluon.nn.Dense(width, activation="relu") for _ in range(2)]
    return [*layers, gluon.nn.Dense(10)]


def _lenet(width: int) -> list[gluon.Block]:
    nn = gluon.nn
    return [
        nn.Conv2D(6, 5, padding=2, activation="sigmoid"), nn.AvgPool2D(2, 2),
        nn.Conv2D(16, 5, activation="sigmoid"), nn.AvgPool2D(2, 2),
        nn.Dense(120, activation="sigmoid"), nn.Dense(84, activation="sigmoid"), nn.Dense(10),
    ]  # fmt: skip


def _resnet18(width: int) -> list[gluon.Block]:
    nn, w = gluon.nn, max(width // 16, 2)
    layers = [nn.Conv2D(w, 3, 1, 1), nn.BatchNorm(), nn.Activation("relu")]
    for stage in range(4):
        layers += [Residual(w << stage, 2 if stage else 1), Residual(w << stage)]
    return [*layers, nn.GlobalAvgPool2D(), nn.Dense(10)]


#: Name: the layers, and the shape of an example.
NETS = {
    "MLP": (_mlp, (784,)),
    "LeNet": (_lenet, (1, 28, 28)),
    "ResNet-18": (_resnet18, (3, 32, 32)),
}
WAYS = {
    "eager": None,
    "compiled": {},
    "CUDA graphs": {"static_alloc": True, "static_shape": True},
}


def training(ctx: Context, batch: int = 256, width: int = 1024, repeats: int = 20) -> Iterator[Row]:
    """A training step of each net: as it is written, compiled, and replayed. The figures of the
    last stand only if they were graphs."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for what, (layers, shape) in NETS.items():
        x, y = nd.random.uniform(shape=(batch, *shape), ctx=ctx), nd.zeros((batch,), ctx=ctx)
        for name, options in WAYS.items():
            net = gluon.nn.HybridSequential()
            net.add(*layers(width))
            net.initialize(ctx=ctx)
            if options is not None:
                net.hybridize(**options)
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

            def step(net=net, trainer=trainer, x=x, y=y) -> None:
                with autograd.record():
                    total = loss(net(x), y)
                total.backward()
                trainer.step(batch)
                nd.waitall()

            for _ in range(3):  # until they are recorded
                step()
            figure = seconds(step, repeats) * 1e3
            lines = net.cuda_graphs() if "graph" in name else []
            if any("op by op" in line for line in lines):
                name = f"{name}, in vain: {'; '.join(lines)}"
            yield Row(f"a step of {what}, batch {batch}, {name}", figure, "ms")


def peer(batch: int = 256, width: int = 1024, repeats: int = 20) -> Iterator[Row]:
    """The eager steps of MLP and LeNet in PyTorch on the same GPU; nothing where it is not
    installed."""
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    nn = torch.nn
    relu, sigmoid = nn.ReLU, nn.Sigmoid
    nets = {
        "MLP": [nn.Flatten(), nn.Linear(784, width), relu(), nn.Linear(width, width), relu(),
                nn.Linear(width, 10)],
        "LeNet": [nn.Conv2d(1, 6, 5, padding=2), sigmoid(), nn.AvgPool2d(2),
                  nn.Conv2d(6, 16, 5), sigmoid(), nn.AvgPool2d(2), nn.Flatten(),
                  nn.Linear(400, 120), sigmoid(), nn.Linear(120, 84), sigmoid(),
                  nn.Linear(84, 10)],
    }  # fmt: skip
    loss = nn.CrossEntropyLoss()
    for what, layers in nets.items():
        net = nn.Sequential(*layers).cuda()
        x = torch.rand(batch, *NETS[what][1], device="cuda")
        y = torch.zeros(batch, dtype=torch.long, device="cuda")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(net=net, x=x, y=y, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
            torch.cuda.synchronize()

        step()
        figure = seconds(step, repeats) * 1e3
        yield Row(f"PyTorch {torch.__version__}: a step of {what}, batch {batch}", figure, "ms")


def all_rows(ctx: Context | None = None, **small: dict) -> Iterator[Row]:
    """All of them; `small` gives arguments by the name of the function."""
    for measure in (launches, copies, overlap, products, lstm, training):
        yield from measure(ctx or cpu(), **small.get(measure.__name__, {}))
    if not small:
        yield from peer()
