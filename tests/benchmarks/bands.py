"""Does the truth lie in the band? Programs recorded in one world, predicted for another, run there.

    python tests/benchmarks/bands.py                 # every program, a few minutes if it is quiet
    python tests/benchmarks/bands.py --rounds 3 --set kept

A program runs on one worker and on two, turn about. The trace of the median run with one is
replayed for two, and the other way round; a prediction is right if the median of the runs there
lies in its band. Programs for devices run on two virtual GPUs, and are predicted for one.

The model (`profiler/contention.py`) was tuned on the programs with even numbers. Those with odd
numbers were kept for the report; both sets were written before the model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from replay import MOMENT_S, others_s

from d2lmini import autograd, engine, gluon, gpu, nd, profile, virtual_gpus
from d2lmini.context import Context

#: A program gets the devices that it is to use, none for the CPU; it returns when all is done.
Run = Callable[[Sequence[Context]], None]
Make = Callable[[], Run]

#: Runs in each world.
ROUNDS = 7

_for_workers: list[tuple[str, Make]] = []
_for_devices: list[tuple[str, Make]] = []


def on_workers(make: Make) -> Make:
    """Add a program to those for workers."""
    _for_workers.append((make.__name__, make))
    return make


def on_devices(make: Make) -> Make:
    """Add a program to those for devices."""
    _for_devices.append((make.__name__, make))
    return make


def _train(net: Any, shape: tuple[int, ...], steps: int, hybrid: bool, classes: int = 10) -> Run:
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


def _mlp(*sizes: int) -> Any:
    net = gluon.nn.HybridSequential()
    for size in sizes[:-1]:
        net.add(gluon.nn.Dense(size, activation="relu"))
    net.add(gluon.nn.Dense(sizes[-1]))
    return net


def _pushed(function: Callable[[], object], tasks: int, chains: int) -> Run:
    """Tasks of a function in some chains."""

    def run(_: Sequence[Context]) -> None:
        variables = [engine.new_var() for _ in range(chains)]
        for k in range(tasks):
            engine.push(function, writes=[variables[k % chains]])
        engine.waitall()

    return run


def _each(op: Callable[[Any], Any], arrays: Sequence[Any], times: int) -> Run:
    """An operation on each of the arrays, some times."""

    def run(_: Sequence[Context]) -> None:
        for _ in range(times):
            for x in arrays:
                op(x)
        nd.waitall()

    return run


def _arrays(n: int, *shape: int) -> list[Any]:
    return [nd.random.uniform(shape=shape) for _ in range(n)]


def _sum_of_squares(n: int) -> Callable[[], int]:
    return lambda: sum(k * k for k in range(n))


# -- on workers ------------------------------------------------------------------------------------


@on_workers
def mlp_eager() -> Run:
    return _train(_mlp(256, 128, 10), (128, 784), 4, hybrid=False)


@on_workers
def mlp_eager_narrow() -> Run:
    return _train(_mlp(64, 64, 64, 10), (64, 64), 4, hybrid=False)


@on_workers
def mlp_hybrid() -> Run:
    return _train(_mlp(256, 128, 10), (128, 784), 6, hybrid=True)


@on_workers
def mlp_wide() -> Run:
    return _train(_mlp(1024, 512, 10), (256, 784), 2, hybrid=True)


@on_workers
def python_tasks() -> Run:
    return _pushed(_sum_of_squares(10_000), 40, 4)


@on_workers
def python_tasks_long() -> Run:
    return _pushed(_sum_of_squares(60_000), 10, 5)


@on_workers
def sort_many() -> Run:
    return _each(nd.sort, _arrays(4, 100_000), 2)


@on_workers
def topk_many() -> Run:
    return _each(lambda x: nd.topk(x, k=5), _arrays(4, 64, 2000), 2)


@on_workers
def products() -> Run:
    return _each(lambda x: nd.dot(x, x), _arrays(4, 300, 300), 6)


@on_workers
def products_large() -> Run:
    return _each(lambda x: nd.dot(x, x), _arrays(2, 900, 900), 2)


@on_workers
def exps() -> Run:
    return _each(nd.exp, _arrays(4, 400, 500), 12)


@on_workers
def tanhs_of_small() -> Run:
    return _each(nd.tanh, _arrays(8, 100, 200), 20)


@on_workers
def additions_large() -> Run:
    return _each(lambda x: x + 1, _arrays(2, 2000, 1500), 8)


@on_workers
def copies_mid() -> Run:
    return _each(lambda x: x.copy(), _arrays(4, 700, 500), 12)


@on_workers
def convolution() -> Run:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 5, activation="relu"), gluon.nn.MaxPool2D(2), gluon.nn.Dense(10))
    return _train(net, (16, 1, 28, 28), 3, hybrid=False)


@on_workers
def convolution_hybrid() -> Run:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(12, 3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(10))
    return _train(net, (16, 3, 20, 20), 3, hybrid=True)


@on_workers
def lstm() -> Run:
    layer = gluon.rnn.LSTM(64)
    layer.initialize()
    x = nd.random.uniform(shape=(20, 16, 32))
    layer(x).wait_to_read()
    return _each(layer, [x], 6)


@on_workers
def gru_in_two_chains() -> Run:
    layer = gluon.rnn.GRU(48)
    layer.initialize()
    inputs = _arrays(2, 15, 16, 32)
    layer(inputs[0]).wait_to_read()
    return _each(layer, inputs, 4)


@on_workers
def sleeps_and_products() -> Run:
    arrays = _arrays(3, 300, 300)

    def run(_: Sequence[Context]) -> None:
        line = engine.new_var()
        for _ in range(6):
            engine.push(lambda: time.sleep(0.003), writes=[line])
            for x in arrays:
                nd.dot(x, x)
        nd.waitall()

    return run


@on_workers
def python_and_exps() -> Run:
    arrays = _arrays(2, 400, 500)

    def run(_: Sequence[Context]) -> None:
        line = engine.new_var()
        for _ in range(8):
            engine.push(_sum_of_squares(15_000), writes=[line])
            for x in arrays:
                nd.exp(x)
        nd.waitall()

    return run


@on_workers
def reductions() -> Run:
    return _each(lambda x: (x.sum(axis=1), x.max(axis=0), x.mean()), _arrays(3, 500, 400), 6)


@on_workers
def softmaxes() -> Run:
    return _each(lambda x: nd.log_softmax(nd.softmax(x)), _arrays(4, 200, 300), 5)


@on_workers
def random_numbers() -> Run:
    return _each(lambda n: nd.random.normal(shape=(n,)), [150_000, 120_000, 90_000], 6)


@on_workers
def gathers() -> Run:
    table = nd.random.uniform(shape=(20_000, 64))
    places = [nd.array(np.random.RandomState(k).randint(0, 20_000, 4000)) for k in range(4)]
    return _each(lambda at: nd.take(table, at), places, 6)


@on_workers
def waits_at_each_step() -> Run:
    arrays = _arrays(3, 250, 250)

    def run(_: Sequence[Context]) -> None:
        for _ in range(8):
            results = [nd.dot(x, x).tanh() for x in arrays]
            for result in results:
                result.wait_to_read()

    return run


@on_workers
def asks_for_numbers() -> Run:
    arrays = _arrays(4, 300, 200)

    def run(_: Sequence[Context]) -> None:
        for _ in range(6):
            sum(float(nd.log1p(x).sum().asscalar()) for x in arrays)

    return run


@on_workers
def tiny_operations() -> Run:
    arrays = _arrays(4, 40, 40)

    def run(_: Sequence[Context]) -> None:
        for _ in range(60):
            for k in range(4):
                arrays[k] = (arrays[k] + arrays[(k + 1) % 4]) * 0.5
        nd.waitall()

    return run


@on_workers
def middling_operations() -> Run:
    arrays = _arrays(4, 250, 250)

    def run(_: Sequence[Context]) -> None:
        for _ in range(25):
            for k in range(4):
                arrays[k] = (arrays[k] + arrays[(k + 1) % 4]) * 0.5
        nd.waitall()

    return run


@on_workers
def transposes() -> Run:
    return _each(lambda x: nd.transpose(x) + 0, _arrays(3, 800, 600), 5)


@on_workers
def where_and_clip() -> Run:
    return _each(lambda x: nd.where(x > 0.5, x, x.clip(0.1, 0.4)), _arrays(3, 400, 400), 6)


@on_workers
def chain_beside_chains() -> Run:
    arrays = _arrays(3, 350, 350)

    def run(_: Sequence[Context]) -> None:
        long = arrays[0]
        for k in range(10):
            long = nd.sigmoid(nd.dot(long, arrays[0]) / 350)
            arrays[1 + k % 2].sqrt()
        nd.waitall()

    return run


@on_workers
def batches_then_mlp() -> Run:
    step = _train(_mlp(128, 10), (64, 300), 1, hybrid=True)

    def run(devices: Sequence[Context]) -> None:
        for k in range(5):
            engine.push(_sum_of_squares(8_000), writes=[engine.new_var()])
            nd.array(np.full((64, 300), k)) / 255
            step(devices)

    return run


# -- on devices ------------------------------------------------------------------------------------


def _on_each(op: Callable[[Any], Any], steps: int, *shape: int) -> Run:
    """The same operation on each device, in a chain."""
    start = np.random.RandomState(0).rand(*shape).astype("float32")

    def run(devices: Sequence[Context]) -> None:
        values = [nd.array(start, ctx=ctx) for ctx in devices]
        for _ in range(steps):
            values = [op(x) for x in values]
        nd.waitall()

    return run


@on_devices
def device_products() -> Run:
    return _on_each(lambda x: nd.dot(x, x) / 400, 8, 400, 400)


@on_devices
def device_exps() -> Run:
    return _on_each(lambda x: nd.exp(-x), 20, 400, 500)


@on_devices
def device_additions() -> Run:
    return _on_each(lambda x: x + 1, 12, 1500, 1500)


@on_devices
def device_sorts() -> Run:
    return _on_each(nd.sort, 4, 120_000)


@on_devices
def device_tiny() -> Run:
    return _on_each(lambda x: (x + 1) * 0.5, 80, 20, 20)


@on_devices
def device_reductions() -> Run:
    return _on_each(lambda x: x - x.max(axis=1, keepdims=True), 12, 500, 500)


@on_devices
def device_mixed() -> Run:
    return _on_each(lambda x: nd.dot(nd.tanh(x), x) / 300, 8, 300, 300)


@on_devices
def device_softmaxes() -> Run:
    return _on_each(lambda x: nd.softmax(x) * 3, 10, 300, 400)


@on_devices
def device_waits() -> Run:
    def run(devices: Sequence[Context]) -> None:
        for _ in range(6):
            each = [nd.dot(x, x) for x in (nd.ones((300, 300), ctx=ctx) for ctx in devices)]
            for result in each:
                result.asnumpy()

    return run


@on_devices
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


def _device_mlp(sizes: tuple[int, ...], batch: int, steps: int) -> Run:
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


@on_devices
def device_mlp() -> Run:
    return _device_mlp((512, 256, 128), 128, 4)


@on_devices
def device_mlp_narrow() -> Run:
    return _device_mlp((64, 64, 32), 64, 5)


@on_devices
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


@on_devices
def device_python() -> Run:
    def run(devices: Sequence[Context]) -> None:
        chains = [engine.new_var() for _ in devices]
        for _ in range(8):
            for chain, ctx in zip(chains, devices, strict=True):
                engine.push(_sum_of_squares(15_000), writes=[chain], ctx=ctx)
        engine.waitall()

    return run


# -- the experiment --------------------------------------------------------------------------------


class Answer(NamedTuple):
    """A prediction and the truth, in seconds: of a program, from so many workers or devices to so
    many; the band; the medians of the runs there and here."""

    program: str
    before: int
    after: int
    low_s: float
    high_s: float
    truth_s: float
    recorded_s: float

    @property
    def right(self) -> bool:
        """Does the truth lie in the band?"""
        return self.low_s <= self.truth_s <= self.high_s

    @property
    def width(self) -> float:
        """How many times the low end the high end is."""
        return self.high_s / self.low_s

    def __str__(self) -> str:
        said = "right" if self.right else "WRONG"
        return (
            f"{said} {self.program:20} {self.before} -> {self.after}: recorded "
            f"{1e3 * self.recorded_s:6.1f} ms, predicted {1e3 * self.low_s:6.1f} to "
            f"{1e3 * self.high_s:6.1f} ms (x {self.width:.2f}), measured "
            f"{1e3 * self.truth_s:6.1f} ms"
        )


def _record(run: Run, workers: int | None, devices: Sequence[Context]) -> Any:
    options = {"workers": workers} if workers else {}
    with engine.use("threaded", **options), profile() as trace:
        run(devices)
    return trace


def _seconds(trace: Any) -> float:
    return (trace.end_ns - trace.begin_ns) / 1e9


def _in_turns(record: dict[int, Callable[[], Any]], rounds: int) -> dict[int, list[Any]]:
    """Traces in each world, shortest first. A run waits for a calm moment, for at most 0.5 s."""
    for make in record.values():
        make(), make()  # warm
    traces: dict[int, list[Any]] = {world: [] for world in record}
    for _ in range(rounds):
        for world, make in record.items():
            wait_for_calm(0.5)
            traces[world].append(make())
    return {world: sorted(each, key=_seconds) for world, each in traces.items()}


def _answer(name: str, before: list[Any], after: list[Any], change: dict[str, int]) -> Answer:
    (asked,) = change.values()
    trace = before[len(before) // 2]
    predicted = trace.replay(**change).prediction
    truth_s = median(map(_seconds, after))
    return Answer(name, 3 - asked, asked, predicted.low_ns / 1e9, predicted.high_ns / 1e9, truth_s,
                  _seconds(trace))  # fmt: skip


def on_workers_answers(kept: bool | None = None, rounds: int = ROUNDS) -> Iterator[Answer]:
    """From one worker to two, and back. `kept`: the programs with odd numbers, or with even ones;
    None: all."""
    for name, make in _chosen(_for_workers, kept):
        run = make()
        record = {n: lambda n=n: _record(run, n, ()) for n in (1, 2)}  # noqa: B023
        traces = _in_turns(record, rounds)
        yield _answer(name, traces[1], traces[2], {"workers": 2})
        yield _answer(name, traces[2], traces[1], {"workers": 1})


def on_devices_answers(kept: bool | None = None, rounds: int = ROUNDS) -> Iterator[Answer]:
    """From two devices to one."""
    for name, make in _chosen(_for_devices, kept):
        with virtual_gpus(2):
            run = make()
            worlds = {2: [gpu(0), gpu(1)], 1: [gpu(0), gpu(0)]}
            record = {n: lambda n=n: _record(run, None, worlds[n]) for n in worlds}  # noqa: B023
            traces = _in_turns(record, rounds)
            answer = _answer(name, traces[2], traces[1], {"devices": 1})
        yield answer


def _chosen(made: list[tuple[str, Make]], kept: bool | None) -> list[tuple[str, Make]]:
    return made if kept is None else made[int(kept) :: 2]


def wait_for_calm(patience_s: float) -> None:
    """Wait until other programs leave the cores alone for a moment, or patience ends."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        before = others_s()
        time.sleep(MOMENT_S)
        if others_s() - before <= 0.01:
            break


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all answers, and how many are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--set", choices=("all", "tuned", "kept"), default="all")
    asked = parser.parse_args(arguments)
    kept = {"all": None, "tuned": False, "kept": True}[asked.set]
    for kind, answers in (("workers", on_workers_answers), ("devices", on_devices_answers)):
        found = []
        for answer in answers(kept, asked.rounds):
            found.append(answer)
            print(answer, flush=True)
        right = sum(answer.right for answer in found)
        width = median(answer.width for answer in found)
        print(f"{kind}: {right} of {len(found)} right, bands x {width:.2f} wide in the median\n")


if __name__ == "__main__":
    main()
