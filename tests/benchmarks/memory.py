"""What running ahead costs in memory: training with a wait per batch, without, and with a bound.

    $ python tests/benchmarks/memory.py --rounds 5

Each way runs in a process of its own, in turns; a thread samples the resident memory. The program
is that of the chapter on asynchronous computation: batches of 1024 x 512 random numbers, an MLP
512-2048-512-1, SGD. Printed for each way: seconds in all, seconds until the loop had returned, how
far the memory rose above what it was before the loop, and by how much the arrays that were alive
did, by the storage's own books.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

WAYS = ("synchronized", "unsynchronized", "bounded")
MB = 1 << 20


class Peak:
    """Samples the resident memory of this process until told to stop."""

    def __init__(self) -> None:
        import psutil

        self.process = psutil.Process()
        self.before = self.most = self.process.memory_info().rss
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self) -> None:
        while not self.stopped.wait(0.005):
            self.most = max(self.most, self.process.memory_info().rss)

    def growth(self) -> int:
        """Stop; the bytes it rose."""
        self.stopped.set()
        self.thread.join()
        return self.most - self.before


def train(way: str, batches: int, bound: int) -> dict[str, float]:
    """One way, in this process."""
    from d2lmini import autograd, engine, gluon, init, nd, random, storage
    from d2lmini.gluon import loss as gloss
    from d2lmini.gluon import nn

    random.seed(1)
    net = nn.Sequential()
    net.add(nn.Dense(2048, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(1))
    net.initialize(init.Normal(0.01))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.005})
    loss = gloss.L2Loss()

    def loop(n: int) -> None:
        for _ in range(n):
            X = nd.random.normal(shape=(1024, 512))
            y = nd.ones((1024,))
            with autograd.record():
                l = loss(net(X), y)
            l.backward()
            trainer.step(X.shape[0])
            if way == "synchronized":
                l.mean().asscalar()

    loop(3)
    nd.waitall()
    engine.limit_pending(bound if way == "bounded" else 1 << 50)
    live = storage.stats().live
    storage.reset_peak()
    peak = Peak()
    start = time.perf_counter()
    loop(batches)
    queued_s = time.perf_counter() - start
    nd.waitall()
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "queued_s": queued_s,
        "grown": peak.growth(),
        "live": storage.stats().peak - live,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--bound", type=int, default=64, help="bytes pending at most, in MB")
    parser.add_argument("--way", choices=WAYS, help="run one way in this process")
    options = parser.parse_args()
    if options.way:
        print(json.dumps(train(options.way, options.batches, options.bound * MB)))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way]
            command += ["--batches", str(options.batches), "--bound", str(options.bound)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[way].append(json.loads(output))
    middle = {
        way: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for way, runs in found.items()
    }
    print(f"{'':16} {'seconds':>8} {'queued':>8} {'grown MB':>9} {'live MB':>9}")
    for way, row in middle.items():
        print(
            f"{way:16} {row['seconds']:8.2f} {row['queued_s']:8.3f} {row['grown'] / MB:9.0f} "
            f"{row['live'] / MB:9.0f}"
        )
    waiting, free, bounded = (middle[way] for way in WAYS)
    times = [b["seconds"] / u["seconds"] for b, u in zip(found["bounded"], found["unsynchronized"])]
    print(f"queued share of the unsynchronized loop  {free['queued_s'] / free['seconds']:.2%}")
    print(f"its growth / what its books predict      {free['grown'] / free['live']:.2f}")
    above = (bounded["grown"] - waiting["grown"]) / MB
    print(f"bounded grows more than synchronized by  {above:.0f} MB, bound {options.bound} MB")
    print(
        f"time, bounded / unbounded                {statistics.median(times):.3f} "
        f"({min(times):.3f} - {max(times):.3f})"
    )


if __name__ == "__main__":
    main()
