"""How well does `d2l.cluster` foresee a step of several processes? Predicted against measured.

    python tests/benchmarks/scaling.py [-n 2 4] [--net sleeping real] [--rounds 5] [--json]

For each number of processes one job is launched, on links from thin to none (`kvstore.thin_link`).
On each link, in turns: sums of some sizes, from which alpha and beta are fitted; steps of one
process alone under `profile()`, from which it is known when each gradient is there; and the steps
of all. The first two give the prediction, the third is what it is compared with.

Two nets: one whose layers sleep, as if computed on a device of their own, so that the link alone
decides; and a real one, which shares the cores with the exchange. The sleeping one shows what the
model is worth, the real one what it leaves out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from d2lmini import autograd, engine, gluon, kvstore, nd, profile, random
from d2lmini.d2l import cluster

#: GB/s and seconds of latency; None: as fast as the machine's memory.
LINKS = ((None, 0.0), (0.5, 2e-4), (0.2, 5e-4), (0.05, 5e-4), (0.02, 1e-3))
#: Bytes of the sums that are measured: about those of buckets, and smaller ones.
SIZES = (4096, 65_536, 524_288, 1 << 20, 2 << 20)
STEPS = 4


class Sleep(autograd.Function):
    """y = x, after some seconds; in backward after twice as many, with a gradient of zeros."""

    def __init__(self, seconds: float, weight: nd.NDArray):
        super().__init__()
        self.seconds, self.shape = seconds, weight.shape

    def forward(self, x: nd.NDArray, weight: nd.NDArray) -> nd.NDArray:
        y = x + 0
        engine.push(lambda: time.sleep(self.seconds), reads=[weight], writes=[y])
        return y

    def backward(self, dy: nd.NDArray) -> tuple[nd.NDArray, nd.NDArray]:
        dx, dw = dy + 0, nd.zeros(self.shape)
        engine.push(lambda: time.sleep(2 * self.seconds), writes=[dx, dw])
        return dx, dw


class SleepingLayer(gluon.Block):
    """A layer of so many weights that takes its time."""

    def __init__(self, seconds: float, size: int):
        super().__init__()
        self.seconds = seconds
        self.weight = self.params.get("weight", shape=(size,), init="zeros")

    def forward(self, x: nd.NDArray) -> nd.NDArray:
        weight = self.weight.data()
        return Sleep(self.seconds, weight)(x, weight)


def sleeping() -> tuple[gluon.Block, nd.NDArray]:
    """Twelve layers of half a megabyte, 9 ms each."""
    net = gluon.nn.Sequential()
    for _ in range(12):
        net.add(SleepingLayer(0.003, 125_000))
    return net, nd.ones((4, 4))


def real() -> tuple[gluon.Block, nd.NDArray]:
    """Five layers of a megabyte, and a small one."""
    net = gluon.nn.Sequential()
    for _ in range(5):
        net.add(gluon.nn.Dense(512, activation="tanh", in_units=512))
    net.add(gluon.nn.Dense(10, in_units=512))
    return net, nd.random.uniform(shape=(256, 512))


NETS: dict[str, Callable[[], tuple[gluon.Block, nd.NDArray]]] = {"sleeping": sleeping, "real": real}


class Training:
    """A net, by itself (kv None) or with all the others."""

    def __init__(self, make: Callable[[], tuple[gluon.Block, nd.NDArray]], kv: str | None):
        random.seed(0)
        self.net, self.x = make()
        self.net.initialize("xavier")
        self.trainer = gluon.Trainer(
            self.net.collect_params(), "sgd", {"learning_rate": 1e-6}, kvstore=kv
        )
        self.steps(2)

    def steps(self, count: int) -> float:
        """Seconds of one, of so many."""
        nd.waitall()
        begin = time.perf_counter()
        for _ in range(count):
            with autograd.record():
                l = (self.net(self.x) ** 2).sum()
            l.backward()
            self.trainer.step(1)
        nd.waitall()
        return (time.perf_counter() - begin) / count

    def works(self) -> list[cluster.Work]:
        """What `STEPS` of them do, and when."""
        with profile() as trace:
            self.steps(STEPS + 1)
        return cluster.works_of(trace, self.trainer)


def sums(kv: Any) -> list[tuple[int, float]]:
    """(bytes, seconds) of a sum over all processes."""
    found = []
    for size in SIZES:
        x = nd.ones((size // 4,))
        kv.broadcast(f"of {size}", x, x)
        for again in range(4):
            kv.barrier()
            begin = time.perf_counter()
            kv.pushpull(f"of {size}", x, out=x)
            x.wait_to_read()
            if again:
                found.append((size, time.perf_counter() - begin))
    return found


def as_rank(rounds: int, nets: list[str]) -> None:
    """One process of the job; rank 0 prints a line for each link and net."""
    kv = kvstore.create("dist_sync")
    n = kv.num_workers
    for name in nets:
        make = NETS[name]
        alone, together = Training(make, None), Training(make, "dist_sync")
        for gb_s, latency_s in LINKS:
            measured, works, times = [], [], []
            with kvstore.thin_link(gb_s, latency_s):
                for _ in range(rounds):
                    kv.barrier()
                    works += alone.works()
                    times += sums(kv)
                    kv.barrier()
                    measured.append(together.steps(STEPS))
            fitted = cluster.fit(*zip(*times), n=n)
            predicted = cluster.scaling(works, fitted, (n,), count=STEPS).at(n)
            step_s = statistics.median(measured)
            if kv.rank == 0:
                found = {
                    "net": name, "n": n, "gb_s": gb_s, "latency_s": latency_s,
                    "fitted": str(fitted.link),
                    "compute_s": statistics.median(w.compute_s + w.update_s for w in works),
                    "predicted_s": predicted.seconds, "low_s": predicted.low_s,
                    "high_s": predicted.high_s, "measured_s": step_s,
                    "least_s": min(measured), "most_s": max(measured),
                    "ratio": predicted.seconds / step_s,
                }  # fmt: skip
                print(json.dumps(found), flush=True)


def told(row: dict[str, Any]) -> str:
    """A line of the table."""
    rate = "memory" if row["gb_s"] is None else f"{row['gb_s']:g} GB/s"
    link = f"{rate}, {1e3 * row['latency_s']:g} ms"
    times = [row[k] * 1e3 for k in ("compute_s", "predicted_s", "measured_s")]
    return (
        f"{row['net']:9}{row['n']:2}  {link:18}  {row['fitted']:32}"
        + "".join(f"{ms:9.1f}" for ms in times)
        + f"{row['ratio']:8.2f}"
    )


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("-n", nargs="*", type=int, default=[2, 4], help="how many processes")
    options.add_argument("--net", nargs="*", choices=NETS, default=list(NETS))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true", help="a JSON object a line")
    options.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args(argv)
    if chosen.as_rank:
        as_rank(chosen.rounds, chosen.net)
        return 0
    if not chosen.json:
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, times in ms")
        head = "net       n  link                fitted"
        print(f"{head:66}alone  predicted  measured  ratio")
    for n in chosen.n:
        job = subprocess.run(
            [sys.executable, "-m", "d2lmini", "launch", "-n", str(n), __file__, "--as-rank",
             "--rounds", str(chosen.rounds), "--net", *chosen.net],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        for line in job.stdout.splitlines():
            said = line[line.index("{") :]  # behind the rank that printed it
            print(said if chosen.json else told(json.loads(said)), flush=True)
        if job.returncode:
            return job.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
