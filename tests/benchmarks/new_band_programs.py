"""The programs that judge the bands of predictions: written after the constants were fitted.

The width (`_NOISE`) was set later, from the programs in `band_programs` alone.

Whoever changes the model fits it to these, too, and writes new ones.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from band_programs import (
    Programs,
    Run,
    RunWaits,
    arrays_of,
    device_training,
    mlp,
    on_arrays,
    on_each_device,
    pushed,
    sent,
    sum_of_squares,
    training,
    waits_after,
    waits_for_each,
)

from d2lmini import autograd, engine, gluon, nd
from d2lmini.context import Context


def on_each_array(op: Callable[[Any], Any], steps: int, n: int, *shape: int) -> Run:
    """A chain of the operation from each of n arrays."""
    start = arrays_of(n, *shape)

    def run(_: Sequence[Context]) -> None:
        values = start
        for _ in range(steps):
            values = [op(x) for x in values]
        nd.waitall()

    return run


# -- on workers ------------------------------------------------------------------------------------


def two_networks() -> Run:
    first = training(mlp(128, 10), (64, 256), 1, hybrid=False)
    second = training(mlp(64, 64, 10), (64, 128), 1, hybrid=False)

    def run(devices: Sequence[Context]) -> None:
        for _ in range(3):
            first(devices)
            second(devices)

    return run


def regression_from_scratch() -> Run:
    x, y = nd.random.normal(shape=(2000, 50)), nd.random.normal(shape=(2000, 1))
    w, b = nd.random.normal(shape=(50, 1)), nd.zeros(1)
    w.attach_grad()
    b.attach_grad()

    def run(_: Sequence[Context]) -> None:
        for k in range(0, 2000, 250):
            with autograd.record():
                loss = ((nd.dot(x[k : k + 250], w) + b - y[k : k + 250]) ** 2).mean()
            loss.backward()
            for parameter in (w, b):
                parameter[:] = parameter - 0.01 * parameter.grad
            loss.asscalar()

    return run


def small_convnet_hybrid() -> Run:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(6, 5, activation="sigmoid"), gluon.nn.AvgPool2D(2))
    net.add(gluon.nn.Conv2D(8, 3, activation="sigmoid"), gluon.nn.Dense(10))
    return training(net, (16, 1, 24, 24), 2, hybrid=True)


def layer_norms() -> Run:
    gamma, beta = nd.ones(300), nd.zeros(300)
    return on_arrays(lambda x: nd.LayerNorm(x, gamma, beta), arrays_of(4, 400, 300), 5)


def joined_and_split() -> Run:
    arrays = arrays_of(4, 300, 250)

    def run(_: Sequence[Context]) -> None:
        for _ in range(6):
            joined = nd.concat(*arrays, dim=1)
            [part * 2 for part in nd.split(joined, num_outputs=4, axis=1)]
        nd.waitall()

    return run


def hashes() -> Run:
    """Functions that release the interpreter lock."""
    data = bytes(400_000)
    return pushed(lambda: hashlib.sha256(data).digest(), 30, 3)


def json_tasks() -> Run:
    """Functions that do not."""
    table = [{"row": k, "square": k * k} for k in range(400)]
    return pushed(lambda: json.dumps(table), 30, 3)


def sleeps_beside_python() -> Run:
    sums = sum_of_squares(12_000)

    def run(_: Sequence[Context]) -> None:
        asleep, awake = engine.new_var(), engine.new_var()
        for _ in range(10):
            engine.push(lambda: time.sleep(0.002), writes=[asleep])
            engine.push(sums, writes=[awake])
        engine.waitall()

    return run


def attention() -> Run:
    heads = [arrays_of(3, 8, 64, 48) for _ in range(2)]

    def run(_: Sequence[Context]) -> None:
        for _ in range(4):
            for queries, keys, values in heads:
                scores = nd.batch_dot(queries, keys, transpose_b=True) / 7
                nd.batch_dot(nd.softmax(scores), values)
        nd.waitall()

    return run


def cells_by_hand() -> Run:
    x, w, u = (nd.random.normal(shape=shape) for shape in ((64, 128), (128, 256), (256, 256)))

    def run(_: Sequence[Context]) -> None:
        states = [nd.zeros((64, 256)) for _ in range(2)]
        for _ in range(10):
            states = [nd.tanh(nd.dot(x, w) + nd.dot(h, u) * 0.01) for h in states]
        nd.waitall()

    return run


def embeddings() -> Run:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Embedding(1000, 64), gluon.nn.Dense(10))
    net.initialize()
    batches = [nd.array(np.random.RandomState(k).randint(0, 1000, (64, 30))) for k in range(4)]
    return on_arrays(net, batches, 5)


# -- on devices ------------------------------------------------------------------------------------


def device_regression() -> Run:
    data = np.random.RandomState(0).rand(400, 200).astype("float32")

    def run(devices: Sequence[Context]) -> None:
        inputs = [nd.array(data, ctx=ctx) for ctx in devices]
        weights = [nd.zeros((200, 100), ctx=ctx) for ctx in devices]
        for _ in range(6):
            grads = [
                nd.dot(x, nd.dot(x, w) - 1, transpose_a=True) / 400
                for x, w in zip(inputs, weights, strict=True)
            ]
            total = grads[0] + grads[1].as_in_context(devices[0])
            weights = [w - 0.01 * total.as_in_context(w.context) for w in weights]
        nd.waitall()

    return run


def device_unequal() -> Run:
    def run(devices: Sequence[Context]) -> None:
        large, small = (nd.ones((n, n), ctx=ctx) for n, ctx in zip((400, 200), devices))
        for _ in range(8):
            large = nd.tanh(nd.dot(large, large) / 400)
            small = nd.tanh(nd.dot(small, small) / 200)
        nd.waitall()

    return run


# -- with waits, over links, and at other speeds ---------------------------------------------------


def wait_in_a_chain() -> RunWaits:
    start = nd.random.uniform(shape=(350, 350))
    values = [start]

    def step(_: int) -> Any:
        values[0] = nd.tanh(nd.dot(values[0], start) / 350)
        return values[0]

    return waits_after(step, 12)


def wait_beside_json() -> RunWaits:
    x, table = nd.random.uniform(shape=(500, 400)), [{"row": k} for k in range(2000)]

    def step(_: int) -> Any:
        result = nd.sqrt(x) * 2
        json.dumps(table)
        return result

    return waits_after(step, 12)


def wait_for_batches() -> RunWaits:
    step_of = training(mlp(128, 10), (64, 300), 1, hybrid=False)
    arrays = arrays_of(2, 300, 300)

    def run(waits: bool) -> None:
        for k in range(6):
            result = nd.dot(arrays[k % 2], arrays[k % 2])
            if waits:
                result.wait_to_read()
            step_of(())

    return run


JUDGED = Programs(
    workers={
        "chains_of_products": lambda: on_each_array(
            lambda x: nd.relu(nd.dot(x, x) / 300), 6, 3, 300, 300
        ),
        "two_networks": two_networks,
        "regression_from_scratch": regression_from_scratch,
        "small_convnet_hybrid": small_convnet_hybrid,
        "layer_norms": layer_norms,
        "batches_of_products": lambda: on_arrays(
            lambda x: nd.batch_dot(x, x), arrays_of(3, 16, 80, 80), 6
        ),
        "argsorts": lambda: on_arrays(nd.argsort, arrays_of(3, 50, 1000), 3),
        "joined_and_split": joined_and_split,
        "roots_of_powers": lambda: on_each_array(lambda x: nd.sqrt(x**2 + 1), 4, 3, 500, 400),
        "hashes": hashes,
        "json_tasks": json_tasks,
        "sleeps_beside_python": sleeps_beside_python,
        "attention": attention,
        "cells_by_hand": cells_by_hand,
        "embeddings": embeddings,
    },
    devices={
        "device_batches": lambda: on_each_device(lambda x: nd.batch_dot(x, x) / 80, 8, 16, 80, 80),
        "device_logs": lambda: on_each_device(lambda x: nd.log1p(x) + 0.5, 12, 500, 400),
        "device_sums": lambda: on_each_device(
            lambda x: x * 0.9 + x.mean(axis=0, keepdims=True), 12, 600, 400
        ),
        "device_joins": lambda: on_each_device(
            lambda x: nd.concat(x, x, dim=0)[200:600], 12, 400, 300
        ),
        "device_regression": device_regression,
        "device_unequal": device_unequal,
    },
    waits={
        "wait_for_each_sort": lambda: waits_for_each(nd.sort, 6, 60_000),
        "wait_in_a_chain": wait_in_a_chain,
        "wait_beside_json": wait_beside_json,
        "wait_for_batches": wait_for_batches,
    },
    links={
        "sent_by_turns": lambda: sent([50_000, 120_000] * 6, back=True),
        "link_networks": lambda: device_training((200, 100, 100, 30), 32, 4),
    },
    speeds={
        "speed_softmaxes": lambda: on_each_device(lambda x: nd.softmax(x) * 3, 6, 300, 400),
        "speed_networks": lambda: device_training((200, 100, 100, 30), 32, 6),
    },
)
