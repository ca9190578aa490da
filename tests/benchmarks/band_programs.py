"""The programs to which the bands of predictions were fitted; each gives a function to run.

`FITTED.workers` run on one worker and on two, `FITTED.devices` on two devices and on one,
`FITTED.waits` with and without the waits at each step, `FITTED.links` on two devices with slow
links and with links half as fast, `FITTED.speeds` on two slow devices and on two that are twice as
fast. Those that judge the bands, and that no constant was fitted to, are in `new_band_programs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from d2lmini import autograd, engine, gluon, nd
from d2lmini.context import Context

#: A program gets the devices that it is to use, none for the CPU; it returns when all is done.
Run = Callable[[Sequence[Context]], None]
Make = Callable[[], Run]


#: A program that waits at each step; `False`: the same program without these waits.
RunWaits = Callable[[bool], None]
MakeWaits = Callable[[], RunWaits]


class Programs:
    """Programs by name, by what is asked about them. Each method adds a program."""

    def __init__(self) -> None:
        self.workers: dict[str, Make] = {}
        self.devices: dict[str, Make] = {}
        self.waits: dict[str, MakeWaits] = {}
        self.links: dict[str, Make] = {}
        self.speeds: dict[str, Make] = {}

    def on_workers(self, make: Make) -> Make:
        self.workers[make.__name__] = make
        return make

    def on_devices(self, make: Make) -> Make:
        self.devices[make.__name__] = make
        return make

    def with_waits(self, make: MakeWaits) -> MakeWaits:
        self.waits[make.__name__] = make
        return make

    def over_links(self, make: Make) -> Make:
        self.links[make.__name__] = make
        return make

    def at_speeds(self, make: Make) -> Make:
        self.speeds[make.__name__] = make
        return make


FITTED = Programs()


def training(net: Any, shape: tuple[int, ...], steps: int, hybrid: bool, classes: int = 10) -> Run:
    net.initialize()
    if hybrid:
        net.hybridize()
    x = nd.random.uniform(shape=shape)
    y = nd.array(np.arange(shape[0]) % classes)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

    def run(_: Sequence[Context]) -> None:
        for _ in range(steps):
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            trainer.step(shape[0])
        nd.waitall()

    return run


def mlp(*sizes: int) -> Any:
    net = gluon.nn.HybridSequential()
    for size in sizes[:-1]:
        net.add(gluon.nn.Dense(size, activation="relu"))
    net.add(gluon.nn.Dense(sizes[-1]))
    return net


def pushed(function: Callable[[], object], tasks: int, chains: int) -> Run:
    """Tasks of a function in some chains."""

    def run(_: Sequence[Context]) -> None:
        variables = [engine.new_var() for _ in range(chains)]
        for k in range(tasks):
            engine.push(function, writes=[variables[k % chains]])
        engine.waitall()

    return run


def on_arrays(op: Callable[[Any], Any], arrays: Sequence[Any], times: int) -> Run:
    """An operation on each of the arrays, some times."""

    def run(_: Sequence[Context]) -> None:
        for _ in range(times):
            for x in arrays:
                op(x)
        nd.waitall()

    return run


def arrays_of(n: int, *shape: int) -> list[Any]:
    return [nd.random.uniform(shape=shape) for _ in range(n)]


def sum_of_squares(n: int) -> Callable[[], int]:
    return lambda: sum(k * k for k in range(n))


# -- on workers ------------------------------------------------------------------------------------


@FITTED.on_workers
def mlp_eager() -> Run:
    return training(mlp(256, 128, 10), (128, 784), 4, hybrid=False)


@FITTED.on_workers
def mlp_eager_narrow() -> Run:
    return training(mlp(64, 64, 64, 10), (64, 64), 4, hybrid=False)


@FITTED.on_workers
def mlp_hybrid() -> Run:
    return training(mlp(256, 128, 10), (128, 784), 6, hybrid=True)


@FITTED.on_workers
def mlp_wide() -> Run:
    return training(mlp(1024, 512, 10), (256, 784), 2, hybrid=True)


@FITTED.on_workers
def python_tasks() -> Run:
    return pushed(sum_of_squares(10_000), 40, 4)


@FITTED.on_workers
def python_tasks_long() -> Run:
    return pushed(sum_of_squares(60_000), 10, 5)


@FITTED.on_workers
def sort_many() -> Run:
    return on_arrays(nd.sort, arrays_of(4, 100_000), 2)


@FITTED.on_workers
def topk_many() -> Run:
    return on_arrays(lambda x: nd.topk(x, k=5), arrays_of(4, 64, 2000), 2)


@FITTED.on_workers
def products() -> Run:
    return on_arrays(lambda x: nd.dot(x, x), arrays_of(4, 300, 300), 6)


@FITTED.on_workers
def products_large() -> Run:
    return on_arrays(lambda x: nd.dot(x, x), arrays_of(2, 900, 900), 2)


@FITTED.on_workers
def exps() -> Run:
    return on_arrays(nd.exp, arrays_of(4, 400, 500), 12)


@FITTED.on_workers
def tanhs_of_small() -> Run:
    return on_arrays(nd.tanh, arrays_of(8, 100, 200), 20)


@FITTED.on_workers
def additions_large() -> Run:
    return on_arrays(lambda x: x + 1, arrays_of(2, 2000, 1500), 8)


@FITTED.on_workers
def copies_mid() -> Run:
    return on_arrays(lambda x: x.copy(), arrays_of(4, 700, 500), 12)


@FITTED.on_workers
def convolution() -> Run:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 5, activation="relu"), gluon.nn.MaxPool2D(2), gluon.nn.Dense(10))
    return training(net, (16, 1, 28, 28), 3, hybrid=False)


@FITTED.on_workers
def convolution_hybrid() -> Run:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(12, 3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(10))
    return training(net, (16, 3, 20, 20), 3, hybrid=True)


@FITTED.on_workers
def lstm() -> Run:
    layer = gluon.rnn.LSTM(64)
    layer.initialize()
    x = nd.random.uniform(shape=(20, 16, 32))
    layer(x).wait_to_read()
    return on_arrays(layer, [x], 6)


@FITTED.on_workers
def gru_in_two_chains() -> Run:
    layer = gluon.rnn.GRU(48)
    layer.initialize()
    inputs = arrays_of(2, 15, 16, 32)
    layer(inputs[0]).wait_to_read()
    return on_arrays(layer, inputs, 4)


@FITTED.on_workers
def sleeps_and_products() -> Run:
    arrays = arrays_of(3, 300, 300)

    def run(_: Sequence[Context]) -> None:
        line = engine.new_var()
        for _ in range(6):
            engine.push(lambda: time.sleep(0.003), writes=[line])
            for x in arrays:
                nd.dot(x, x)
        nd.waitall()

    return run


@FITTED.on_workers
def python_and_exps() -> Run:
    arrays = arrays_of(2, 400, 500)

    def run(_: Sequence[Context]) -> None:
        line = engine.new_var()
        for _ in range(8):
            engine.push(sum_of_squares(15_000), writes=[line])
            for x in arrays:
                nd.exp(x)
        nd.waitall()

    return run


@FITTED.on_workers
def reductions() -> Run:
    return on_arrays(lambda x: (x.sum(axis=1), x.max(axis=0), x.mean()), arrays_of(3, 500, 400), 6)


@FITTED.on_workers
def softmaxes() -> Run:
    return on_arrays(lambda x: nd.log_softmax(nd.softmax(x)), arrays_of(4, 200, 300), 5)


@FITTED.on_workers
def random_numbers() -> Run:
    return on_arrays(lambda n: nd.random.normal(shape=(n,)), [150_000, 120_000, 90_000], 6)


@FITTED.on_workers
def gathers() -> Run:
    table = nd.random.uniform(shape=(20_000, 64))
    places = [nd.array(np.random.RandomState(k).randint(0, 20_000, 4000)) for k in range(4)]
    return on_arrays(lambda at: nd.take(table, at), places, 6)


@FITTED.on_workers
def waits_at_each_step() -> Run:
    arrays = arrays_of(3, 250, 250)

    def run(_: Sequence[Context]) -> None:
        for _ in range(8):
            results = [nd.dot(x, x).tanh() for x in arrays]
            for result in results:
                result.wait_to_read()

    return run


@FITTED.on_workers
def asks_for_numbers() -> Run:
    arrays = arrays_of(4, 300, 200)

    def run(_: Sequence[Context]) -> None:
        for _ in range(6):
            sum(float(nd.log1p(x).sum().asscalar()) for x in arrays)

    return run


@FITTED.on_workers
def tiny_operations() -> Run:
    arrays = arrays_of(4, 40, 40)

    def run(_: Sequence[Context]) -> None:
        for _ in range(60):
            for k in range(4):
                arrays[k] = (arrays[k] + arrays[(k + 1) % 4]) * 0.5
        nd.waitall()

    return run


@FITTED.on_workers
def middling_operations() -> Run:
    arrays = arrays_of(4, 250, 250)

    def run(_: Sequence[Context]) -> None:
        for _ in range(25):
            for k in range(4):
                arrays[k] = (arrays[k] + arrays[(k + 1) % 4]) * 0.5
        nd.waitall()

    return run


@FITTED.on_workers
def transposes() -> Run:
    return on_arrays(lambda x: nd.transpose(x) + 0, arrays_of(3, 800, 600), 5)


@FITTED.on_workers
def where_and_clip() -> Run:
    return on_arrays(lambda x: nd.where(x > 0.5, x, x.clip(0.1, 0.4)), arrays_of(3, 400, 400), 6)


@FITTED.on_workers
def chain_beside_chains() -> Run:
    arrays = arrays_of(3, 350, 350)

    def run(_: Sequence[Context]) -> None:
        long = arrays[0]
        for k in range(10):
            long = nd.sigmoid(nd.dot(long, arrays[0]) / 350)
            arrays[1 + k % 2].sqrt()
        nd.waitall()

    return run


@FITTED.on_workers
def batches_then_mlp() -> Run:
    step = training(mlp(128, 10), (64, 300), 1, hybrid=True)

    def run(devices: Sequence[Context]) -> None:
        for k in range(5):
            engine.push(sum_of_squares(8_000), writes=[engine.new_var()])
            nd.array(np.full((64, 300), k)) / 255
            step(devices)

    return run


# -- on devices ------------------------------------------------------------------------------------


def on_each_device(op: Callable[[Any], Any], steps: int, *shape: int) -> Run:
    """The same operation on each device, in a chain."""
    start = np.random.RandomState(0).rand(*shape).astype("float32")

    def run(devices: Sequence[Context]) -> None:
        values = [nd.array(start, ctx=ctx) for ctx in devices]
        for _ in range(steps):
            values = [op(x) for x in values]
        nd.waitall()

    return run


@FITTED.on_devices
def device_products() -> Run:
    return on_each_device(lambda x: nd.dot(x, x) / 400, 8, 400, 400)


@FITTED.on_devices
def device_exps() -> Run:
    return on_each_device(lambda x: nd.exp(-x), 20, 400, 500)


@FITTED.on_devices
def device_additions() -> Run:
    return on_each_device(lambda x: x + 1, 12, 1500, 1500)


@FITTED.on_devices
def device_sorts() -> Run:
    return on_each_device(nd.sort, 4, 120_000)


@FITTED.on_devices
def device_tiny() -> Run:
    return on_each_device(lambda x: (x + 1) * 0.5, 80, 20, 20)


@FITTED.on_devices
def device_reductions() -> Run:
    return on_each_device(lambda x: x - x.max(axis=1, keepdims=True), 12, 500, 500)


@FITTED.on_devices
def device_mixed() -> Run:
    return on_each_device(lambda x: nd.dot(nd.tanh(x), x) / 300, 8, 300, 300)


@FITTED.on_devices
def device_softmaxes() -> Run:
    return on_each_device(lambda x: nd.softmax(x) * 3, 10, 300, 400)


@FITTED.on_devices
def device_waits() -> Run:
    def run(devices: Sequence[Context]) -> None:
        for _ in range(6):
            each = [nd.dot(x, x) for x in (nd.ones((300, 300), ctx=ctx) for ctx in devices)]
            for result in each:
                result.asnumpy()

    return run


@FITTED.on_devices
def device_exchange() -> Run:
    def run(devices: Sequence[Context]) -> None:
        values = [nd.ones((400, 400), ctx=ctx) for ctx in devices]
        for _ in range(6):
            results = [nd.dot(x, x) / 400 for x in values]
            other = results[1].as_in_context(devices[0])
            total = results[0] + other
            values = [total.as_in_context(ctx) * 0.5 for ctx in devices]
        nd.waitall()

    return run


def device_training(sizes: tuple[int, ...], batch: int, steps: int) -> Run:
    """Forward and backward on each device, gradients summed on the first."""
    rng = np.random.RandomState(0)
    shapes = list(pairwise(sizes))
    weights = [(rng.rand(*shape) / shape[0]).astype("float32") for shape in shapes]
    batch_of = rng.rand(batch, sizes[0]).astype("float32")

    def run(devices: Sequence[Context]) -> None:
        parts = [[nd.array(w, ctx=ctx) for w in weights] for ctx in devices]
        inputs = [nd.array(batch_of, ctx=ctx) for ctx in devices]
        for part in parts:
            for weight in part:
                weight.attach_grad()
        for _ in range(steps):
            losses = []
            with autograd.record():
                for x, part in zip(inputs, parts, strict=True):
                    for weight in part:
                        x = nd.relu(nd.dot(x, weight))
                    losses.append(x.sum())
            autograd.backward(losses)
            for layer in range(len(shapes)):
                grads = [part[layer].grad.as_in_context(devices[0]) for part in parts]
                total = grads[0] + grads[1]
                for part, ctx in zip(parts, devices, strict=True):
                    part[layer] -= 1e-6 * total.as_in_context(ctx)
        nd.waitall()

    return run


@FITTED.on_devices
def device_mlp() -> Run:
    return device_training((512, 256, 128), 128, 4)


@FITTED.on_devices
def device_mlp_narrow() -> Run:
    return device_training((64, 64, 32), 64, 5)


@FITTED.on_devices
def device_gathers() -> Run:
    places = np.random.RandomState(1).randint(0, 5000, 3000)

    def run(devices: Sequence[Context]) -> None:
        tables = [nd.ones((5000, 64), ctx=ctx) for ctx in devices]
        at = [nd.array(places, ctx=ctx) for ctx in devices]
        for _ in range(8):
            for table, where in zip(tables, at, strict=True):
                nd.take(table, where) * 2
        nd.waitall()

    return run


@FITTED.on_devices
def device_python() -> Run:
    def run(devices: Sequence[Context]) -> None:
        chains = [engine.new_var() for _ in devices]
        for _ in range(8):
            for chain, ctx in zip(chains, devices, strict=True):
                engine.push(sum_of_squares(15_000), writes=[chain], ctx=ctx)
        engine.waitall()

    return run


# -- with waits ------------------------------------------------------------------------------------


def waits_after(step: Callable[[int], Any], steps: int) -> RunWaits:
    """Steps that each give an array, which the program waits for."""

    def run(waits: bool) -> None:
        for k in range(steps):
            result = step(k)
            if waits:
                result.wait_to_read()
        nd.waitall()

    return run


@FITTED.with_waits
def wait_for_each_product() -> RunWaits:
    arrays = arrays_of(4, 300, 300)
    return waits_after(lambda k: nd.dot(arrays[k % 4], arrays[k % 4]), 16)


@FITTED.with_waits
def wait_for_each_exp() -> RunWaits:
    arrays = arrays_of(4, 400, 500)
    return waits_after(lambda k: nd.exp(arrays[k % 4]), 24)


@FITTED.with_waits
def wait_beside_python() -> RunWaits:
    x, host = nd.random.uniform(shape=(400, 400)), sum_of_squares(12_000)

    def step(_: int) -> Any:
        result = nd.tanh(nd.dot(x, x))
        host()
        return result

    return waits_after(step, 12)


@FITTED.with_waits
def wait_then_numpy() -> RunWaits:
    x, y = nd.random.uniform(shape=(400, 400)), np.random.RandomState(0).rand(150_000)

    def run(waits: bool) -> None:
        for _ in range(10):
            result = nd.log1p(nd.dot(x, x))
            if waits:
                result.wait_to_read()
            np.sort(y)
        nd.waitall()

    return run


@FITTED.with_waits
def wait_in_training() -> RunWaits:
    net = mlp(256, 128, 10)
    net.initialize()
    net.hybridize()
    x, y = nd.random.uniform(shape=(128, 784)), nd.array(np.arange(128) % 10)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

    def step(_: int) -> Any:
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(128)
        return value

    return waits_after(step, 6)


@FITTED.with_waits
def wait_for_small() -> RunWaits:
    arrays = arrays_of(4, 150, 200)
    return waits_after(lambda k: (arrays[k % 4] + 1).tanh(), 40)


@FITTED.with_waits
def wait_for_sleeps() -> RunWaits:
    x = nd.random.uniform(shape=(300, 300))

    def run(waits: bool) -> None:
        line = engine.new_var()
        for _ in range(8):
            engine.push(lambda: time.sleep(0.003), writes=[line])
            nd.dot(x, x)
            if waits:
                engine.wait_for_var(line)
        nd.waitall()

    return run


# -- over links, and at other speeds ---------------------------------------------------------------


def sent(sizes: Sequence[int], back: bool) -> Run:
    """Arrays that go to the devices by turns, and are used there; results may come back."""
    arrays = [nd.random.uniform(shape=(size,)) for size in sizes]

    def run(devices: Sequence[Context]) -> None:
        for k, array in enumerate(arrays):
            result = array.as_in_context(devices[k % len(devices)]) * 2 + 1
            if back:
                result.as_in_context(array.context)
        nd.waitall()

    return run


@FITTED.over_links
def sent_large() -> Run:
    return sent([150_000] * 8, back=False)


@FITTED.over_links
def sent_mixed() -> Run:
    return sent([20_000, 160_000, 40_000, 80_000] * 3, back=False)


@FITTED.over_links
def sent_and_back() -> Run:
    return sent([30_000, 90_000, 60_000] * 3, back=True)


@FITTED.over_links
def link_training() -> Run:
    return device_training((256, 128, 64), 64, 3)


@FITTED.over_links
def link_exchange() -> Run:
    return device_exchange()


@FITTED.at_speeds
def speed_products() -> Run:
    return on_each_device(lambda x: nd.dot(x, x) / 200, 6, 200, 200)


@FITTED.at_speeds
def speed_exps() -> Run:
    return on_each_device(lambda x: nd.exp(-x), 10, 400, 500)


@FITTED.at_speeds
def speed_training() -> Run:
    return device_training((256, 128, 64), 64, 4)


@FITTED.at_speeds
def speed_waits() -> Run:
    def run(devices: Sequence[Context]) -> None:
        for _ in range(5):
            each = [nd.dot(x, x) for x in (nd.ones((200, 200), ctx=ctx) for ctx in devices)]
            for result in each:
                result.asnumpy()

    return run


@FITTED.at_speeds
def speed_exchange() -> Run:
    return device_exchange()
