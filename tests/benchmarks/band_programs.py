"""The programs to which the bands of predictions were fitted; each gives a function to run.

Those of "workers" run on one worker and on two, of "devices" on two devices and on one, of "waits"
with and without the waits at each step, of "links" on two devices with slow links and with links
half as fast, of "speeds" on two slow devices and on two that are twice as fast.
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

#: A program that waits at each step; `False`: the same program without these waits.
RunWaits = Callable[[bool], None]


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


def convolution(layers: Sequence[Any], shape: tuple[int, ...], hybrid: bool) -> Run:
    net = gluon.nn.HybridSequential()
    net.add(*layers, gluon.nn.Dense(10))
    return training(net, shape, 3, hybrid)


def recurrent(layer: Any, n: int, length: int, times: int) -> Run:
    """The layer on some sequences of that length."""
    layer.initialize()
    inputs = arrays_of(n, length, 16, 32)
    layer(inputs[0]).wait_to_read()
    return on_arrays(layer, inputs, times)


def beside(
    function: Callable[[], object], op: Callable[[Any], Any], arrays: Sequence[Any], times: int
) -> Run:
    """A chain of a function, and an operation on each of the arrays."""

    def run(_: Sequence[Context]) -> None:
        line = engine.new_var()
        for _ in range(times):
            engine.push(function, writes=[line])
            for x in arrays:
                op(x)
        nd.waitall()

    return run


def gathers() -> Run:
    table = nd.random.uniform(shape=(20_000, 64))
    places = [nd.array(np.random.RandomState(k).randint(0, 20_000, 4000)) for k in range(4)]
    return on_arrays(lambda at: nd.take(table, at), places, 6)


def waits_at_each_step() -> Run:
    arrays = arrays_of(3, 250, 250)

    def run(_: Sequence[Context]) -> None:
        for _ in range(8):
            results = [nd.dot(x, x).tanh() for x in arrays]
            for result in results:
                result.wait_to_read()

    return run


def asks_for_numbers() -> Run:
    arrays = arrays_of(4, 300, 200)

    def run(_: Sequence[Context]) -> None:
        for _ in range(6):
            sum(float(nd.log1p(x).sum().asscalar()) for x in arrays)

    return run


def round_about(n: int, times: int) -> Run:
    """Sums of neighbours among four arrays, each written in its turn."""
    arrays = arrays_of(4, n, n)

    def run(_: Sequence[Context]) -> None:
        for _ in range(times):
            for k in range(4):
                arrays[k] = (arrays[k] + arrays[(k + 1) % 4]) * 0.5
        nd.waitall()

    return run


def chain_beside_chains() -> Run:
    arrays = arrays_of(3, 350, 350)

    def run(_: Sequence[Context]) -> None:
        long = arrays[0]
        for k in range(10):
            long = nd.sigmoid(nd.dot(long, arrays[0]) / 350)
            arrays[1 + k % 2].sqrt()
        nd.waitall()

    return run


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


def device_waits(n: int, steps: int) -> Run:
    def run(devices: Sequence[Context]) -> None:
        for _ in range(steps):
            each = [nd.dot(x, x) for x in (nd.ones((n, n), ctx=ctx) for ctx in devices)]
            for result in each:
                result.asnumpy()

    return run


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


def waits_for_each(op: Callable[[Any], Any], steps: int, *shape: int) -> RunWaits:
    """The operation on four arrays in turns."""
    arrays = arrays_of(4, *shape)
    return waits_after(lambda k: op(arrays[k % 4]), steps)


def wait_beside_python() -> RunWaits:
    x, host = nd.random.uniform(shape=(400, 400)), sum_of_squares(12_000)

    def step(_: int) -> Any:
        result = nd.tanh(nd.dot(x, x))
        host()
        return result

    return waits_after(step, 12)


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


PROGRAMS: dict[str, dict[str, Callable[[], Any]]] = {
    "workers": {
        "mlp_eager": lambda: training(mlp(256, 128, 10), (128, 784), 4, hybrid=False),
        "mlp_eager_narrow": lambda: training(mlp(64, 64, 64, 10), (64, 64), 4, hybrid=False),
        "mlp_hybrid": lambda: training(mlp(256, 128, 10), (128, 784), 6, hybrid=True),
        "mlp_wide": lambda: training(mlp(1024, 512, 10), (256, 784), 2, hybrid=True),
        "python_tasks": lambda: pushed(sum_of_squares(10_000), 40, 4),
        "python_tasks_long": lambda: pushed(sum_of_squares(60_000), 10, 5),
        "sort_many": lambda: on_arrays(nd.sort, arrays_of(4, 100_000), 2),
        "topk_many": lambda: on_arrays(lambda x: nd.topk(x, k=5), arrays_of(4, 64, 2000), 2),
        "products": lambda: on_arrays(lambda x: nd.dot(x, x), arrays_of(4, 300, 300), 6),
        "products_large": lambda: on_arrays(lambda x: nd.dot(x, x), arrays_of(2, 900, 900), 2),
        "exps": lambda: on_arrays(nd.exp, arrays_of(4, 400, 500), 12),
        "tanhs_of_small": lambda: on_arrays(nd.tanh, arrays_of(8, 100, 200), 20),
        "additions_large": lambda: on_arrays(lambda x: x + 1, arrays_of(2, 2000, 1500), 8),
        "copies_mid": lambda: on_arrays(lambda x: x.copy(), arrays_of(4, 700, 500), 12),
        "convolution": lambda: convolution(
            [gluon.nn.Conv2D(8, 5, activation="relu"), gluon.nn.MaxPool2D(2)],
            (16, 1, 28, 28),
            False,
        ),
        "convolution_hybrid": lambda: convolution(
            [gluon.nn.Conv2D(12, 3, activation="relu"), gluon.nn.BatchNorm()], (16, 3, 20, 20), True
        ),
        "lstm": lambda: recurrent(gluon.rnn.LSTM(64), 1, 20, 6),
        "gru_in_two_chains": lambda: recurrent(gluon.rnn.GRU(48), 2, 15, 4),
        "sleeps_and_products": lambda: beside(
            lambda: time.sleep(0.003), lambda x: nd.dot(x, x), arrays_of(3, 300, 300), 6
        ),
        "python_and_exps": lambda: beside(
            sum_of_squares(15_000), nd.exp, arrays_of(2, 400, 500), 8
        ),
        "reductions": lambda: on_arrays(
            lambda x: (x.sum(axis=1), x.max(axis=0), x.mean()), arrays_of(3, 500, 400), 6
        ),
        "softmaxes": lambda: on_arrays(
            lambda x: nd.log_softmax(nd.softmax(x)), arrays_of(4, 200, 300), 5
        ),
        "random_numbers": lambda: on_arrays(
            lambda n: nd.random.normal(shape=(n,)), [150_000, 120_000, 90_000], 6
        ),
        "gathers": gathers,
        "waits_at_each_step": waits_at_each_step,
        "asks_for_numbers": asks_for_numbers,
        "tiny_operations": lambda: round_about(40, 60),
        "middling_operations": lambda: round_about(250, 25),
        "transposes": lambda: on_arrays(lambda x: nd.transpose(x) + 0, arrays_of(3, 800, 600), 5),
        "where_and_clip": lambda: on_arrays(
            lambda x: nd.where(x > 0.5, x, x.clip(0.1, 0.4)), arrays_of(3, 400, 400), 6
        ),
        "chain_beside_chains": chain_beside_chains,
        "batches_then_mlp": batches_then_mlp,
    },
    "devices": {
        "device_products": lambda: on_each_device(lambda x: nd.dot(x, x) / 400, 8, 400, 400),
        "device_exps": lambda: on_each_device(lambda x: nd.exp(-x), 20, 400, 500),
        "device_additions": lambda: on_each_device(lambda x: x + 1, 12, 1500, 1500),
        "device_sorts": lambda: on_each_device(nd.sort, 4, 120_000),
        "device_tiny": lambda: on_each_device(lambda x: (x + 1) * 0.5, 80, 20, 20),
        "device_reductions": lambda: on_each_device(
            lambda x: x - x.max(axis=1, keepdims=True), 12, 500, 500
        ),
        "device_mixed": lambda: on_each_device(lambda x: nd.dot(nd.tanh(x), x) / 300, 8, 300, 300),
        "device_softmaxes": lambda: on_each_device(lambda x: nd.softmax(x) * 3, 10, 300, 400),
        "device_waits": lambda: device_waits(300, 6),
        "device_exchange": device_exchange,
        "device_mlp": lambda: device_training((512, 256, 128), 128, 4),
        "device_mlp_narrow": lambda: device_training((64, 64, 32), 64, 5),
        "device_gathers": device_gathers,
        "device_python": device_python,
    },
    "waits": {
        "wait_for_each_product": lambda: waits_for_each(lambda x: nd.dot(x, x), 16, 300, 300),
        "wait_for_each_exp": lambda: waits_for_each(nd.exp, 24, 400, 500),
        "wait_beside_python": wait_beside_python,
        "wait_then_numpy": wait_then_numpy,
        "wait_in_training": wait_in_training,
        "wait_for_small": lambda: waits_for_each(lambda x: (x + 1).tanh(), 40, 150, 200),
        "wait_for_sleeps": wait_for_sleeps,
    },
    "links": {
        "sent_large": lambda: sent([150_000] * 8, back=False),
        "sent_mixed": lambda: sent([20_000, 160_000, 40_000, 80_000] * 3, back=False),
        "sent_and_back": lambda: sent([30_000, 90_000, 60_000] * 3, back=True),
        "link_training": lambda: device_training((256, 128, 64), 64, 3),
        "link_exchange": device_exchange,
    },
    "speeds": {
        "speed_products": lambda: on_each_device(lambda x: nd.dot(x, x) / 200, 6, 200, 200),
        "speed_exps": lambda: on_each_device(lambda x: nd.exp(-x), 10, 400, 500),
        "speed_training": lambda: device_training((256, 128, 64), 64, 4),
        "speed_waits": lambda: device_waits(200, 5),
        "speed_exchange": device_exchange,
    },
}
