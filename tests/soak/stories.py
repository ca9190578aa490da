"""What the soak run mixes: short stories, each drawn from a seed, each with its own truth to check.

A story takes a `random.Random`, uses the library in one of the ways people do, and compares what
came out with NumPy, with the serial engine or with a second way to the same numbers. It leaves the
engine as it found it: idle, no failure unreported, no array kept.

>>> import random
>>> from stories import STORIES
>>> STORIES["engines agree to the bit"](random.Random(1))
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini import MXNetError, autograd, cpu, engine, gluon, gpu, init, nd, profile, virtual_gpus
from d2lmini import random as mx_random
from d2lmini.gluon import nn
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

    def work() -> None:
        while True:
            train(net, trainer, x, x[:, :4]).wait_to_read()
            begun.set()

    job = BackgroundJob(work)
    job.start()
    assert begun.wait(SOON_S)
    job.cancel()
    job.join(SOON_S)
    assert job.state == "cancelled", (job.state, job.problem)
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
