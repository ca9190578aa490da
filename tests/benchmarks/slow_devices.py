"""Do slow virtual GPUs scale as GPUs do? A step of data-parallel training, predicted and measured.

    python tests/benchmarks/slow_devices.py [-k 1 2 4] [--net mlp conv] [--turns 5] [--json]

The batch is split over k devices of `--gflops` GFLOP/s with links of `--link` GB/s. The prediction
is the length of the same steps on the virtual clock (`engine.stepped`): compute / k, and the part
of the communication that nothing hides. Measured are steps on the threaded engine, in turns over
the numbers of devices. A ratio near 1 says that k devices on these cores take the time that k real
ones of that speed would take; the last column says how many cores they kept busy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from d2lmini import autograd, engine, gluon, init, nd, profile, random, virtual_gpus
from d2lmini.context import Context
from d2lmini.gluon import nn
from d2lmini.gluon.utils import split_and_load

BATCH = 128
STEPS = 2


def mlp() -> tuple[nn.HybridSequential, nd.NDArray]:
    """85 000 weights, 0.5 MFLOP an example and step."""
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(256, activation="relu"), nn.Dense(10))
    return net, nd.random.uniform(shape=(BATCH, 64))


def conv() -> tuple[nn.HybridSequential, nd.NDArray]:
    """20 000 weights, 0.6 MFLOP an example and step."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, 5, padding=2, activation="relu"), nn.MaxPool2D(2),
        nn.Conv2D(16, 3, activation="relu"), nn.Flatten(),
        nn.Dense(32, activation="relu"), nn.Dense(10),
    )  # fmt: skip
    return net, nd.random.uniform(shape=(BATCH, 1, 16, 16))


NETS: dict[str, Callable[[], tuple[nn.HybridSequential, nd.NDArray]]] = {"mlp": mlp, "conv": conv}


class Training:
    """A net on some devices, with its part of the batch on each; one step is done."""

    def __init__(self, name: str, ctxs: list[Context], hybridize: bool = False):
        random.seed(0)
        self.net, X = NETS[name]()
        self.net.initialize(init.Xavier(), ctx=ctxs)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        if hybridize:
            self.net.hybridize()
            self.loss.hybridize()
        self.trainer = gluon.Trainer(
            self.net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="device"
        )
        self.X, self.y = (split_and_load(a, ctxs) for a in (X, nd.zeros(BATCH)))
        self.steps(1)

    def backward(self) -> None:
        """The gradients of every device."""
        with autograd.record():
            losses = [self.loss(self.net(X), y) for X, y in zip(self.X, self.y, strict=True)]
        autograd.backward(losses)

    def update(self) -> None:
        """Sum the gradients, and update the parameters."""
        self.trainer.step(BATCH)

    def steps(self, count: int) -> None:
        """So many steps, to the end."""
        for _ in range(count):
            self.backward()
            self.update()
        nd.waitall()


def virtual_ms(work: Callable[[], None]) -> float:
    """How long `work` takes on the clock of the stepped engine."""
    with profile() as trace:
        work()
        nd.waitall()
    return (trace.end_ns - trace.begin_ns) / 1e6


def predict(name: str, k: int, rates: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of a step's parts, each alone, and of a step, on the virtual clock."""
    with engine.stepped(), virtual_gpus(k, **rates) as ctxs:
        training = Training(name, ctxs)
        return {
            "compute_ms": virtual_ms(training.backward),
            "communication_ms": virtual_ms(training.update),
            "predicted_ms": virtual_ms(lambda: training.steps(STEPS)) / STEPS,
        }


def measure(name: str, k: int, rates: dict[str, Any]) -> tuple[float, float]:
    """Milliseconds of a step on the threaded engine, and the cores that it kept busy."""
    with engine.use("threaded"), virtual_gpus(k, **rates) as ctxs:
        training = Training(name, ctxs)
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        training.steps(STEPS)
        seconds = time.perf_counter() - begin_s
        return 1e3 * seconds / STEPS, (time.process_time() - begin_cpu_s) / seconds


def compare(name: str, counts: list[int], turns: int, rates: dict[str, Any]) -> list[dict]:
    """A row for each number of devices."""
    taken: dict[int, list[tuple[float, float]]] = {k: [] for k in counts}
    for turn in range(turns):
        for k in counts[turn % len(counts) :] + counts[: turn % len(counts)]:
            taken[k].append(measure(name, k, rates))
    rows = []
    for k in counts:
        step_ms, cores = zip(*taken[k], strict=True)
        row: dict[str, Any] = {"net": name, "k": k, **predict(name, k, rates)}
        row["measured_ms"] = statistics.median(step_ms)
        row["least_ms"], row["most_ms"] = min(step_ms), max(step_ms)
        row["ratio"] = row["measured_ms"] / row["predicted_ms"]
        row["cores"] = statistics.median(cores)
        rows.append(row)
    return rows


def text_of(row: dict[str, Any]) -> str:
    """A line of the table."""
    times = "".join(
        f"{row[key + '_ms']:>15.1f}"
        for key in ("compute", "communication", "predicted", "measured", "least", "most")
    )
    return f"{row['net']:6}{row['k']:2}{times}{row['ratio']:>8.2f}{row['cores']:>7.2f}"


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("-k", nargs="*", type=int, default=[1, 2, 4], help="numbers of devices")
    options.add_argument("--net", nargs="*", choices=NETS, default=list(NETS))
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--gflops", type=float, default=0.05, help="of each device")
    options.add_argument("--link", type=float, default=0.01, help="GB/s of each link")
    options.add_argument("--json", action="store_true", help="a JSON object a line")
    chosen = options.parse_args(argv)
    rates = {"gflops": chosen.gflops, "link_gb_s": chosen.link}
    if not chosen.json:
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, ms of a step; {rates}")
        heads = ("compute / k", "communication", "predicted", "measured", "least", "most")
        print(f"{'net':6}{'k':>2}{''.join(f'{h:>15}' for h in heads)}{'ratio':>8}{'cores':>7}")
    for name in chosen.net:
        for row in compare(name, chosen.k, chosen.turns, rates):
            print(json.dumps(row) if chosen.json else text_of(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
