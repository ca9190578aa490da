"""Of the chapter on asynchronous computation: how it measures, and the check of its exercise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from d2lmini import autograd, engine, gluon, nd, profile
from d2lmini.gluon import loss as gloss
from d2lmini.gluon import nn
from labs import shared
from labs.grading import CheckFailed, at_most_waits

# -- the three phases of an operation --------------------------------------------------------------


def report_phases(
    size: int, n: int, predict: Callable[..., tuple[float, float]], *loops: Callable[..., None]
) -> None:
    """Print t1, t2 and t3 of `x + 1` for a size x size array; of each loop, which computes it n
    times, the predicted and the measured time; and what this says."""
    with shared.watch() as load:
        phases, measured = measure_phases(nd.ones((size, size)), n, loops)
    predicted = predict(n, *phases)
    words = (f"{name} = {1e6 * s:.0f} us" for name, s in zip(("t1", "t2", "t3"), phases))
    print(f"{size} x {size}: {', '.join(words)}")
    for loop, model_s, s in zip(loops, predicted, measured):
        print(f"  {n} x {loop.__name__}: predicted {model_s:.3f} s, measured {s:.3f} s")
    print(f"measured: {describe_phases(n, *phases)}")
    ratios = [model_s / s for model_s, s in zip(predicted, measured)]
    load.say(
        f"{size} x {size}: is each prediction right within a factor of 2?",
        f"predicted over measured: {' and '.join(f'{ratio:.2f}' for ratio in ratios)}",
        holds=all(0.5 < ratio < 2 for ratio in ratios),
        otherwise="in the loops the phases take other times than alone",
    )


def measure_phases(
    x: Any, n: int, loops: tuple[Callable[..., None], ...]
) -> tuple[list[float], list[float]]:
    """t1, t2 and t3 of `x + 1`, and the seconds that each loop takes for n of them: medians of ten
    turns, which all of them take part in, so that a disturbance counts little."""
    phases, loops_s = [], []
    for _ in range(10):
        phases.append(_measure_once(x, n // 10))
        loops_s.append([])
        for loop in loops:
            begin = time.perf_counter()
            loop(x, n // 10)
            loops_s[-1].append(10 * (time.perf_counter() - begin))
    return _medians(phases), _medians(loops_s)


def _medians(rows: list[Any]) -> list[float]:
    return [statistics.median(column) for column in zip(*rows)]


def _measure_once(x: Any, n: int) -> tuple[float, float, float]:
    """t1 is a clock around the push, t2 is from a trace, t3 is what is left until the wait ends."""
    push_s = all_s = 0.0
    for _ in range(n):
        begin = time.perf_counter()
        y = x + 1
        issued = time.perf_counter()
        y.wait_to_read()
        push_s += issued - begin
        all_s += time.perf_counter() - begin
    with profile() as trace:
        for _ in range(n):
            (x + 1).wait_to_read()
    t2 = statistics.mean(operation.run_ns for operation in trace.operations) / 1e9
    return push_s / n, t2, max(0.0, (all_s - push_s) / n - t2)


def describe_phases(n: int, t1: float, t2: float, t3: float) -> str:
    """Which phase is the longest, and which end decides in a loop without waits."""
    names = {t1: "t1, the push", t2: "t2, the computation", t3: "t3, the hand-over"}
    longest_s = max(names)
    sign, slower = (">", "back") if n * t2 > (n - 1) * t1 else ("<=", "front")
    return (
        f"the longest phase is {names[longest_s]} ({longest_s / (t1 + t2 + t3):.0%}); {n} * t2 "
        f"{sign} {n - 1} * t1, so without waits the {slower} end decides how long the loop takes"
    )


# -- training without waits ------------------------------------------------------------------------


def data_iter(num_batches: int = 50, batch_size: int = 256) -> Iterator[tuple[Any, Any]]:
    """Batches of random numbers, drawn by operations of the library."""
    for _ in range(num_batches):
        yield nd.random.normal(shape=(batch_size, 512)), nd.ones((batch_size,))


def describe_training(trace: Any) -> str:
    """How long the loop of a traced program took, and how long all of the work."""
    loop_s = (trace.left_ns - trace.begin_ns) / 1e9
    share = loop_s / trace.seconds
    return f"the loop took {loop_s:.3f} s, all of the work {trace.seconds:.3f} s: {share:.0%}"


# -- the exercise ----------------------------------------------------------------------------------


def check_quiet(answer: Callable[..., Any]) -> None:
    """Exercise 4: some batches, on the virtual clock."""
    n = np.random.randint(6, 12)
    given = [(nd.random.normal(shape=(32, 20)), nd.ones((32,)) * i) for i in range(n)]
    start = nd.random.normal(shape=(1, 20))

    def trained(epoch: Callable[..., Any]) -> tuple[Any, Any, Any]:
        net = nn.Dense(1, in_units=20)
        net.initialize()
        net.weight.set_data(start)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        with profile() as trace, shared.never_stuck():
            found = epoch(net, trainer, gloss.L2Loss(), iter(given))
        return trace, found, net.weight.data().asnumpy()

    with engine.stepped(workers=2):
        _, expected, weights = trained(_wait_in_each)
        trace, found, learned = trained(answer)
    mean, largest = _two_numbers(found)
    if not np.allclose(learned, weights):
        raise CheckFailed("weights", "other weights: train on every batch, once, in order")
    if not np.isclose(mean, expected[0]):
        text = f"the mean is {expected[0]:.4f}, not {mean:.4f}"
        raise CheckFailed("mean", f"{text}: average the mean losses of all batches")
    if not np.isclose(largest, expected[1]):
        text = f"the largest is {expected[1]:.4f}, not {largest:.4f}"
        raise CheckFailed("largest", f"{text}: of the mean losses of the batches")
    updates = [operation for operation in trace.operations if "update" in operation.name]
    print(at_most_waits(trace, 0, before=updates[-1]))
    print(at_most_waits(trace, 2))


def _two_numbers(found: Any) -> tuple[float, float]:
    if not isinstance(found, (tuple, list, np.ndarray)) or len(found) != 2:
        raise CheckFailed("two", f"return two Python numbers, not {found!r:.60}")
    for number in found:
        if not np.isscalar(number) or isinstance(number, str):
            raise CheckFailed("numbers", f"return two Python numbers, not {type(number).__name__}: "
                        "read the values after the loop")  # fmt: skip
    return found[0], found[1]


def _wait_in_each(
    net: Any, trainer: Any, loss: Any, batches: Iterator[tuple[Any, Any]]
) -> tuple[float, float]:
    """The numbers that the exercise asks for, with a wait in each batch."""
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(len(X))
        losses.append(float(l.mean()))
    return float(np.mean(losses)), max(losses)
