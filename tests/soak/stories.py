"""What the soak run mixes: short stories, each drawn from a seed, each with its own truth to check.

A story takes a `random.Random`, uses the library in one of the ways people do, and compares what
came out with NumPy, with the serial engine or with a second way to the same numbers. It leaves the
engine as it found it: idle, no failure unreported, no array kept.

>>> import random
>>> from stories import STORIES
>>> STORIES["elementwise programs"](random.Random(1))
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import d2lmini
from d2lmini import MXNetError, autograd, cpu, engine, gluon, gpu, init, nd, profile, virtual_gpus
from d2lmini import random as mx_random
from d2lmini.gluon import nn, rnn
from d2lmini.widgets.background_job import BackgroundJob

Story = Callable[[random.Random], object]

STORIES: dict[str, Story] = {}

#: Nobody waits longer than this for a thread or a child; then the run fails.
SOON_S = 60.0


def story(name: str) -> Callable[[Story], Story]:
    """Enter a function among the stories."""

    def entered(function: Story) -> Story:
        STORIES[name] = function
        return function

    return entered


def numbers(rng: random.Random, *shape: int) -> np.ndarray:
    """float32 in [-1, 1), the same for the same seed."""
    draws = np.random.RandomState(rng.randrange(1 << 31))
    return draws.uniform(-1, 1, shape).astype(np.float32)


# -- arrays ----------------------------------------------------------------------------------------

UNARY = ("tanh", "exp", "negative", "square", "sign", "abs")


@story("elementwise programs")
def elementwise(rng: random.Random) -> None:
    """A random program over a few arrays, some of it in place, against NumPy line by line."""
    n = rng.choice([3, 50, 300])
    theirs = [numbers(rng, n, n) for _ in range(3)]
    ours = [nd.array(x) for x in theirs]
    for _ in range(rng.randint(5, 40)):
        i, j, k = (rng.randrange(3) for _ in range(3))
        kind = rng.choice(["unary", "add", "times", "in place", "part", "dot"])
        if kind == "unary":
            name = rng.choice(UNARY)
            ours[i], theirs[i] = getattr(nd, name)(ours[j]), getattr(np, name)(theirs[j])
        elif kind == "add":
            ours[i], theirs[i] = ours[j] + ours[k], theirs[j] + theirs[k]
        elif kind == "times":
            ours[i], theirs[i] = ours[j] * ours[k], theirs[j] * theirs[k]
        elif kind == "in place":
            ours[i] += 0.5
            theirs[i] = theirs[i] + np.float32(0.5)
        elif kind == "part":
            ours[i][0] = ours[j][1]
            theirs[i] = theirs[i].copy()
            theirs[i][0] = theirs[j][1]
        else:
            ours[i] = nd.dot(ours[j], ours[k]) / n
            theirs[i] = (np.dot(theirs[j], theirs[k]) / n).astype(np.float32)
        ours[i], theirs[i] = ours[i].clip(-2, 2), np.clip(theirs[i], -2, 2)
    for x, y in zip(ours, theirs):
        np.testing.assert_allclose(x.asnumpy(), y, rtol=1e-3, atol=1e-4)


@story("engines agree to the bit")
def engines_agree(rng: random.Random) -> None:
    """One training step by the serial engine, and by two to four workers with a random dial."""
    seed = rng.randrange(1000)

    def step() -> list[np.ndarray]:
        mx_random.seed(seed)
        net = mlp(seed)
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        x = nd.random.normal(shape=(16, 20))
        for _ in range(3):
            train(net, trainer, x, x[:, :4])
        return weights(net)

    with engine.use("naive"):
        expected = step()
    with engine.use("threaded", workers=rng.randint(1, 4), inline_below=rng.choice([0, 5, 20])):
        found = step()
    assert all((a == b).all() for a, b in zip(expected, found))


# -- nets ------------------------------------------------------------------------------------------


def mlp(seed: int, ctx: Any = None) -> Any:
    """A small net; the same weights for the same seed."""
    net = nn.HybridSequential()
    net.add(nn.Dense(32, activation="relu", in_units=20), nn.Dense(4, in_units=32))
    mx_random.seed(seed)
    net.initialize(init.Xavier(), ctx=ctx or cpu())
    return net


def train(net: Any, trainer: Any, x: Any, y: Any) -> Any:
    """A step with a squared error; the loss."""
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(x), y)
    loss.backward()
    trainer.step(len(x))
    return loss


def weights(net: Any) -> list[np.ndarray]:
    return [p.list_data()[0].asnumpy() for p in net.collect_params().values()]


@story("hybridized as imperative")
def hybridized(rng: random.Random) -> None:
    """The same steps, imperative and compiled, with a random choice of the compiler's options."""
    seed, n, x = rng.randrange(1000), rng.randint(1, 5), nd.array(numbers(rng, 12, 20))
    static = rng.random() < 0.5
    found = []
    for compiled in (False, True):
        net = mlp(seed)
        if compiled:
            net.hybridize(static_alloc=static, static_shape=static and rng.random() < 0.5)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(n):
            train(net, trainer, x, x[:, :4])
        found.append(weights(net))
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@story("convolutions")
def convolutions(rng: random.Random) -> None:
    """A small net of convolutions learns: a few steps on one batch lower its loss."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, kernel_size=3, padding=1), nn.BatchNorm(), nn.Activation("relu"),
        nn.MaxPool2D(), nn.Flatten(), nn.Dense(3),
    )  # fmt: skip
    mx_random.seed(rng.randrange(1000))
    net.initialize(init.Xavier())
    if rng.random() < 0.5:
        net.hybridize()
    x, y = nd.array(numbers(rng, 8, 1, 12, 12)), nd.array([i % 3 for i in range(8)])
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    measure, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(12):
        with autograd.record():
            loss = measure(net(x), y).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss)
    assert losses[-1].asscalar() < losses[0].asscalar()


@story("recurrent nets")
def recurrent(rng: random.Random) -> None:
    """A GRU in one operation equals its cell unrolled, its gradient too."""
    steps, batch, size = rng.randint(1, 8), rng.randint(1, 4), 6
    layer = rnn.GRU(size, input_size=5)
    mx_random.seed(rng.randrange(1000))
    layer.initialize(init.Uniform(0.5))
    cell = rnn.GRUCell(size, input_size=5)
    cell.initialize()
    params = layer.collect_params()
    for name, each in cell.collect_params().items():
        kind = name.split("_", 1)[1]
        source = next(p for key, p in params.items() if key.endswith("l0_" + kind))
        each.set_data(source.data())
    x = nd.array(numbers(rng, steps, batch, 5))
    grads = []
    for run in (
        lambda: layer(x),
        lambda: cell.unroll(steps, x, layout="TNC", merge_outputs=True)[0],
    ):
        x.attach_grad()
        with autograd.record():
            y = (run() ** 2).sum()
        y.backward()
        grads.append((y.asscalar(), x.grad.asnumpy()))
    np.testing.assert_allclose(grads[0][0], grads[1][0], rtol=1e-4)
    np.testing.assert_allclose(grads[0][1], grads[1][1], rtol=1e-3, atol=1e-5)


@story("files")
def files(rng: random.Random) -> None:
    """Parameters and an exported net come back as they were."""
    net = mlp(rng.randrange(1000))
    net.hybridize()
    x = nd.array(numbers(rng, 3, 20))
    expected = net(x).asnumpy()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "net")
        net.save_parameters(path + ".params")
        net.export(path)
        other = mlp(0)
        other.load_parameters(path + ".params")
        read = gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
        for each in (other, read):
            np.testing.assert_allclose(each(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)


@story("loading data")
def loading(rng: random.Random) -> None:
    """Every example once, however many threads load; sometimes the loop is left early."""
    n = rng.randint(1, 60)
    data = gluon.data.ArrayDataset(np.arange(n, dtype=np.float32))
    loader = gluon.data.DataLoader(
        data, batch_size=rng.randint(1, 9), shuffle=True, num_workers=rng.randint(0, 3)
    )
    if rng.random() < 0.3:
        next(iter(loader))
        return
    seen = np.concatenate([batch.asnumpy().ravel() for batch in loader])
    assert sorted(seen) == list(range(n))


# -- devices ---------------------------------------------------------------------------------------


@story("several devices")
def devices(rng: random.Random) -> None:
    """k devices compute what one computes."""
    seed, k = rng.randrange(1000), rng.randint(1, 4)
    x = numbers(rng, 4 * k, 20)
    found = []
    with virtual_gpus(k):
        for ctxs in ([gpu(0)], [gpu(i) for i in range(k)]):
            net = mlp(seed, ctxs)
            if len(found) == 1 and rng.random() < 0.5:
                net.hybridize()
            trainer = gluon.Trainer(
                net.collect_params(), "sgd", {"learning_rate": 0.1},
                kvstore=rng.choice(["device", "local"]),
            )  # fmt: skip
            for _ in range(2):
                parts = gluon.utils.split_and_load(nd.array(x), ctxs)
                with autograd.record():
                    losses = [gluon.loss.L2Loss()(net(X), X[:, :4]) for X in parts]
                autograd.backward(losses)
                trainer.step(len(x))
            found.append(weights(net))
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# -- what goes wrong -------------------------------------------------------------------------------


@story("errors")
def errors(rng: random.Random) -> None:
    """A failed value raises where it is read, all that needs it too, and nothing else."""
    good = nd.array(numbers(rng, 40, 40))
    bad = nd.random.normal(0, -1, shape=(rng.choice([2, 300]), 4))
    after = bad * 2 + 1
    sums = [good.sum() + i for i in range(5)]
    for array in (bad, after):
        try:
            array.asnumpy()
        except MXNetError as error:
            assert "scale" in str(error), error
        else:
            raise AssertionError("a failed value was read")
    expected = float(good.asnumpy().astype(np.float64).sum())
    for i, array in enumerate(sums):
        assert abs(array.asscalar() - expected - i) < 1e-2
    try:
        nd.waitall()
    except MXNetError as error:
        assert "scale" in str(error), error


@story("errors at the call")
def refusals(rng: random.Random) -> None:
    """Wrong shapes are refused where they are called, and leave nothing behind."""
    a, b = nd.ones((2, rng.randint(3, 9))), nd.ones((rng.randint(10, 20), 2))
    for wrong in (lambda: nd.dot(a, b), lambda: a + nd.ones((5, 5, 5)), lambda: a.reshape((7, 7))):
        try:
            wrong()
        except (MXNetError, ValueError):
            continue
        raise AssertionError("a wrong shape was taken")


@story("cancelling what is pending")
def cancelling(rng: random.Random) -> None:
    """What was dropped says so, what was not is right, and the engine goes on."""
    gate = threading.Event()
    x = nd.array(numbers(rng, 100, 100))
    expected = x.asnumpy()
    held = [nd.zeros((100, 100)) for _ in range(engine.current.workers)]
    for result in held:
        engine.push(lambda: gate.wait(SOON_S), writes=[result], name="gate")
    results = []
    for i in range(rng.randint(1, 30)):
        tag = nd.zeros((100, 100))
        engine.push(lambda: None, reads=[held[i % len(held)]], writes=[tag], name="after gate")
        results.append((tag + x) * 2)
    dropped = engine.cancel_pending()
    gate.set()
    told = 0
    for result in results:
        try:
            np.testing.assert_allclose(result.asnumpy(), 2 * expected, rtol=1e-6)
        except MXNetError as error:
            assert "cancel" in str(error), error
            told += 1
    assert bool(told) <= bool(dropped)
    del held, results, tag, result
    try:
        nd.waitall()
    except MXNetError as error:
        assert "cancel" in str(error), error
    assert (x + 1).asnumpy().shape == (100, 100)


@story("cancelling a run")
def cancelled_run(rng: random.Random) -> None:
    """A job in the background that is asked to end ends, and the weights are finite."""
    net = mlp(rng.randrange(1000))
    x = nd.array(numbers(rng, 16, 20))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    begun = threading.Event()

    def work(job: BackgroundJob) -> None:
        for i in range(10**9):
            train(net, trainer, x, x[:, :4]).wait_to_read()
            job.progress(i)
            begun.set()

    job = BackgroundJob(work)
    job.start()
    assert begun.wait(SOON_S)
    job.cancel()
    assert job.join(SOON_S) and job.state == "cancelled", (job.state, job.problem)
    assert all(np.isfinite(weight).all() for weight in weights(net))


@story("forks")
def forks(rng: random.Random) -> None:
    """A child of a busy process computes with an engine of its own; the parent goes on."""
    x = nd.array(numbers(rng, 200, 200))
    busy = [nd.dot(x, x) for _ in range(4)]
    child = os.fork()
    if not child:
        status = 1
        try:
            status = int((nd.ones((3,)) + nd.arange(3)).sum().asscalar() != 6)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with status {status}"
    expected = np.dot(x.asnumpy(), x.asnumpy())
    for array in busy:
        np.testing.assert_allclose(array.asnumpy(), expected, rtol=1e-3, atol=1e-3)


# -- being watched ---------------------------------------------------------------------------------


@story("profiles")
def profiles(rng: random.Random) -> None:
    """A trace holds every operation once; its account adds up; its replay runs."""
    x = nd.array(numbers(rng, 60, 60))
    n = rng.randint(1, 20)
    with profile() as trace:
        y = x
        for _ in range(n):
            y = nd.tanh(nd.dot(y, x))
        y.wait_to_read()
    assert sum(operation.name == "dot" for operation in trace.operations) == n
    account = trace.account()
    total_ns = sum(part.ns for part in account.parts.values())
    assert abs(total_ns - account.wall_ns) <= 1e-6 * account.wall_ns + 1
    assert len(trace.replay(workers=rng.randint(1, 4)).operations) == len(trace.operations)
    assert trace.memory()[cpu()].peak_pending >= 0


@story("live views")
def live(rng: random.Random) -> None:
    """`watch` counts what was pushed while it was on."""
    with d2lmini.watch() as watch:
        x = nd.array(numbers(rng, 30, 30))
        for _ in range(rng.randint(1, 30)):
            x = x + 1
        x.wait_to_read()
    assert watch.count >= len(watch.operations) > 0


@story("lazy programs")
def lazily(rng: random.Random) -> None:
    """What was written down and is read later is what would have been computed at once."""
    x, n = numbers(rng, rng.choice([3, 200]), 50), rng.randint(1, 10)

    def program() -> Any:
        y = nd.array(x)
        for _ in range(n):
            y = nd.tanh(y) * 0.9 + 0.1
        return y

    with d2lmini.lazy():
        found = program().asnumpy()
    np.testing.assert_allclose(found, program().asnumpy(), rtol=1e-5, atol=1e-6)


@story("threads")
def threads(rng: random.Random) -> None:
    """Several threads push at once; each gets its own numbers."""
    inputs = [numbers(rng, 80, 80) for _ in range(4)]
    found: list[Any] = [None] * 4

    def work(i: int) -> None:
        x = nd.array(inputs[i])
        found[i] = (nd.dot(x, x) + x).asnumpy()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SOON_S)
    for x, y in zip(inputs, found):
        np.testing.assert_allclose(y, np.dot(x, x) + x, rtol=1e-3, atol=1e-4)
