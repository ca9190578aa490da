"""The rows of `workloads.py` as a user of MXNet writes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from workloads import Clock, Sizes

from d2lmini import autograd, cpu, engine, gluon, gpu, init, nd
from d2lmini.gluon import nn

# What failed and was never read is told by a warning at the next wait: no time of that may count.
warnings.simplefilter("error")

CTX = gpu(0)
GRAPH = {"static_alloc": True, "static_shape": True}

Once = Callable[[], float]
wait = nd.waitall


def matrix(n: int, dtype: str = "float32", ctx: Any = CTX) -> nd.NDArray:
    return nd.random.uniform(shape=(n, n), ctx=ctx).astype(dtype)


# -- operations ------------------------------------------------------------------------------------


def issue(clock: Clock, sizes: Sizes) -> Once:
    x = matrix(sizes.plane)
    return clock.until_return(lambda: nd.dot(x, x), 8)


def product(clock: Clock, sizes: Sizes, dtype: str) -> Once:
    x = matrix(sizes.product, dtype)
    return clock.of(lambda: nd.dot(x, x))


def add(clock: Clock, sizes: Sizes) -> Once:
    x = matrix(sizes.plane)
    return clock.of(lambda: x + 1, sizes.times)


def chain(clock: Clock, sizes: Sizes) -> Once:
    x = nd.ones((2, 2), ctx=CTX)

    def next_one() -> None:
        nonlocal x
        x = x + 1

    return clock.of(next_one, sizes.times)


def normal(clock: Clock, sizes: Sizes) -> Once:
    shape = (sizes.plane, sizes.plane)
    return clock.of(lambda: nd.random.normal(shape=shape, ctx=CTX), sizes.times // 20 + 1)


class Gelu(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh((x + F.square(x) * x * 0.044715) * 0.7978845) * 0.5 * x + x * 0.5


def gelu(clock: Clock, sizes: Sizes) -> Once:
    net, x = Gelu(), matrix(sizes.plane)
    net.hybridize(**GRAPH)
    return clock.of(lambda: net(x), sizes.times // 10 + 1)


# -- nets ------------------------------------------------------------------------------------------


class Residual(gluon.HybridBlock):
    """Two convolutions with a connection around them."""

    def __init__(self, channels: int, narrows: bool):
        super().__init__()
        stride = 2 if narrows else 1
        self.body = nn.HybridSequential()
        self.body.add(
            nn.Conv2D(channels, 3, stride, 1), nn.BatchNorm(), nn.Activation("relu"),
            nn.Conv2D(channels, 3, 1, 1), nn.BatchNorm(),
        )  # fmt: skip
        self.around = nn.Conv2D(channels, 1, stride) if narrows else None

    def hybrid_forward(self, F, x):
        return F.relu(self.body(x) + (x if self.around is None else self.around(x)))


def mlp(*widths: int) -> list[gluon.Block]:
    return [*(nn.Dense(n, activation="relu") for n in widths[:-1]), nn.Dense(widths[-1])]


def lenet() -> list[gluon.Block]:
    return [
        nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2),
        nn.Conv2D(50, 3, activation="relu"), nn.MaxPool2D(2, 2), *mlp(128, 10),
    ]  # fmt: skip


def resnet18(channels: int) -> list[gluon.Block]:
    layers = [nn.Conv2D(channels, 3, 1, 1), nn.BatchNorm(), nn.Activation("relu")]
    for stage in range(4):
        width = channels << stage
        layers += [Residual(width, stage > 0), Residual(width, False)]
    return [*layers, nn.GlobalAvgPool2D(), nn.Dense(10)]


def net_of(layers: list[gluon.Block], way: str) -> gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize(init.Normal(0.01), ctx=CTX)
    if way != "eager":
        net.hybridize(**(GRAPH if way == "graph" else {}))
    return net


def inference(clock: Clock, sizes: Sizes, way: str) -> Once:
    net = net_of(mlp(sizes.hidden // 8, sizes.hidden // 16, 2), way)
    x = nd.random.normal(shape=(1, sizes.hidden // 4), ctx=CTX)
    return clock.of(lambda: net(x), sizes.times // 2)


def training(
    clock: Clock, sizes: Sizes, layers: list, x: nd.NDArray, y: nd.NDArray, loss: Any, way: str
) -> Once:
    net = net_of(layers, way)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

    def step() -> None:
        with autograd.record():
            l = loss(net(x), y)
        l.backward()
        trainer.step(len(x))

    def step_as_graph() -> None:
        with engine.bulk(1000):
            step()

    return clock.of(step_as_graph if way == "graph" else step, sizes.steps)


def train_mlp(clock: Clock, sizes: Sizes, way: str) -> Once:
    n = sizes.hidden
    x, y = nd.random.normal(shape=(sizes.batch, n // 4), ctx=CTX), nd.ones(sizes.batch, ctx=CTX)
    return training(clock, sizes, mlp(n, n // 4, 1), x, y, gluon.loss.L2Loss(), way)


def train_images(clock: Clock, sizes: Sizes, way: str, small: bool) -> Once:
    n = sizes.images if small else sizes.images // 2
    shape, layers = ((1, 28, 28), lenet()) if small else ((3, 32, 32), resnet18(sizes.channels))
    x, y = nd.random.normal(shape=(n, *shape), ctx=CTX), nd.arange(n, ctx=CTX) % 10
    return training(clock, sizes, layers, x, y, gluon.loss.SoftmaxCrossEntropyLoss(), way)


def gru(clock: Clock, sizes: Sizes) -> Once:
    cell = gluon.rnn.GRUCell(256)
    cell.initialize(ctx=CTX)
    x = nd.random.normal(shape=(32, sizes.sequence, 128), ctx=CTX)

    def step() -> None:
        with autograd.record():
            outputs, _ = cell.unroll(sizes.sequence, x, merge_outputs=True)
            l = outputs.sum()
        l.backward()

    return clock.of(step)


# -- the book's programs of several devices --------------------------------------------------------


def parallel(clock: Clock, sizes: Sizes, cpus: bool, gpus: bool) -> Once:
    here, there = matrix(sizes.book[0], ctx=cpu()), matrix(sizes.book[1])
    works = [(here, 10)] * cpus + [(there, 50)] * gpus
    return clock.of(lambda: [nd.dot(x, x) for x, n in works for _ in range(n)])


def overlap(clock: Clock, sizes: Sizes, computes: bool, copies: bool) -> Once:
    x = matrix(sizes.book[2])
    fixed = [nd.dot(x, x) for _ in range(20)]

    def run() -> None:
        results = [nd.dot(x, x) for _ in range(20)] if computes else fixed
        if copies:
            for y in results:
                y.copyto(cpu())

    wait()
    return clock.of(run)


WAYS = ("eager", "compiled", "graph")
WORKS: dict[str, Callable[[Clock, Sizes], Once]] = {
    "issue": issue,
    **{f"product {dtype}": partial(product, dtype=dtype) for dtype in ("float32", "float16")},
    "add": add,
    "chain": chain,
    **{f"MLP {way}": partial(inference, way=way) for way in WAYS},
    **{f"step {way}": partial(train_mlp, way=way) for way in WAYS},
    **{f"LeNet {way}": partial(train_images, way=way, small=True) for way in WAYS},
    **{f"ResNet-18 {way}": partial(train_images, way=way, small=False) for way in WAYS},
    "gelu": gelu,
    "normal": normal,
    "GRU": gru,
    "parallel cpu": partial(parallel, cpus=True, gpus=False),
    "parallel gpu": partial(parallel, cpus=False, gpus=True),
    "parallel both": partial(parallel, cpus=True, gpus=True),
    "overlap compute": partial(overlap, computes=True, copies=False),
    "overlap copy": partial(overlap, computes=False, copies=True),
    "overlap both": partial(overlap, computes=True, copies=True),
}
