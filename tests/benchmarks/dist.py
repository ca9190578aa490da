"""What does the exchange of gradients cost a step of `dist_sync`? Overlap and buckets, measured.

    python tests/benchmarks/dist.py                      # 2 processes, several thin links
    python tests/benchmarks/dist.py --quick --json       # one round; JSON, a line a figure
    python tests/benchmarks/dist.py --namespaces 100     # over a real wire of 100 Mbit/s (root)

Three kinds of work compute the gradients, of a Trainer's parameters all of them. `sleep`: layers
that sleep, as if a device of their own computed them, so that cores and link are idle: a third of
the time forward, the rest backward. `net`: a net of Dense layers, on the cores that the exchange
uses too; `compiled`: the same, hybridized. The links are `kvstore.thin_link`s,
which take their time asleep.

Overlap: a step, beside the longer of computing alone and communicating alone. Buckets: the sums of
many small tensors, in the library's buckets beside one message for each. All that is compared
takes turns, with all processes at the same turn; figures are medians, with the quartiles of the
turns' own ratios. Rank 0's clock counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import namespaces
import numpy as np
from report import Figure, quartiles, ratio

from d2lmini import autograd, engine, gluon, kvstore, nd
from d2lmini.distributed import dist, mpi

#: GB/s; at these the exchange takes about 1/4 to 4 times what `sleep` computes.
LINKS = (0.2, 0.1, 0.05, 0.025, 0.0125)
LATENCY_S = 2e-4
WORKS = ("sleep", "net", "compiled")
#: `sleep`: layers, bytes of a gradient, and seconds of a step.
LAYERS, NBYTES, COMPUTE_S = 24, 512 << 10, 0.24
FORWARD = 1 / 3
#: `net`: units of each layer, and the batch.
UNITS, DEPTH, BATCH = 512, 8, 256
#: Of the comparison of buckets: tensors, and elements of each.
TENSORS, ELEMENTS = 120, 4096
#: GB/s and latency of the links on which buckets are compared.
BUCKET_LINKS = ((0.125, 5e-4), (0.125, 1e-4), (0.0125, 5e-4))


# -- in each process -------------------------------------------------------------------------------


class Sleeping:
    """A model whose layers take their time asleep: tasks that read weights and write gradients."""

    def __init__(self) -> None:
        shape = (NBYTES // 4,)
        self.params = [
            gluon.Parameter(f"w{i:02}", shape=shape, init="zeros") for i in range(LAYERS)
        ]
        for p in self.params:
            p.initialize()
        self._flow = engine.new_var()  # what layers hand on

    def backward(self) -> None:
        """A whole forward and backward pass; the last layer's gradient is there first."""
        for p in self.params:
            self._layer(FORWARD, reads=[p.data()])
        for p in self.params[::-1]:
            self._layer(1 - FORWARD, reads=[p.data()], writes=[p.grad()])
            p.data()._fresh_grad = True

    def _layer(self, part: float, reads: list, writes: list = ()) -> None:  # type: ignore[assignment]
        seconds = part * COMPUTE_S / LAYERS
        flow = self._flow
        engine.push(lambda: time.sleep(seconds), [*reads, flow], [*writes, flow], name="layer")


class Net:
    """A real one, as it is or `compiled`."""

    def __init__(self, compiled: bool = False) -> None:
        self.net = gluon.nn.HybridSequential()
        for _ in range(DEPTH):
            self.net.add(gluon.nn.Dense(UNITS, activation="relu", in_units=UNITS))
        self.net.initialize("xavier")
        if compiled:
            self.net.hybridize()
        self.params = list(self.net.collect_params().values())
        rng = np.random.default_rng(mpi.world().rank)
        self._x = nd.array(rng.normal(size=(BATCH, UNITS)))

    def backward(self) -> None:
        with autograd.record():
            loss = (self.net(self._x) ** 2).mean()
        loss.backward()


def steps_of(model: Any, kind: str | None) -> Callable[[], None]:
    """A function that takes one step, with a KVStore or by this process alone."""
    trainer = gluon.Trainer(model.params, "sgd", {"learning_rate": 1e-6}, kvstore=kind)

    def step() -> None:
        model.backward()
        trainer.step(1)

    return step


def sums_of(arrays: list[nd.NDArray], alone: bool = False) -> Callable[[], None]:
    """A function that sums these arrays over all processes, as a step does; `alone`: each of them
    in a message of its own."""
    store = kvstore.create("dist_sync")
    keys = list(range(len(arrays)))
    store.broadcast(keys, arrays, arrays)
    before = dist.FIRST_BUCKET, dist.BUCKET
    if alone:
        dist.FIRST_BUCKET = dist.BUCKET = 0
    try:
        store.pushpull(keys, arrays)  # here the buckets are planned
    finally:
        dist.FIRST_BUCKET, dist.BUCKET = before
    return lambda: store.pushpull(keys, arrays)


def turns(calls: dict[str, Callable[[], None]], rounds: int, times: int) -> dict[str, list[float]]:
    """Seconds of one call, of `times` that follow one another without a wait; in turns."""
    store = kvstore.create("dist_sync")
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for nth in range(-1, rounds):  # the first is for warming up
        for name in names[nth % len(names) :] + names[: nth % len(names)]:
            engine.waitall()
            store.barrier()
            begun = time.perf_counter()
            for _ in range(times if nth >= 0 else 1):
                calls[name]()
            engine.waitall()
            store.barrier()
            if nth >= 0:
                seconds[name].append((time.perf_counter() - begun) / times)
    return seconds


def measure(wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What this job is to measure, one figure after the other."""
    for work in wanted["works"]:
        model = {"sleep": Sleeping, "net": Net, "compiled": lambda: Net(True)}[work]()
        calls = {
            "compute": steps_of(model, None),
            "communicate": sums_of([nd.zeros(p.shape) for p in model.params]),
            "step": steps_of(model, "dist_sync"),
        }
        for gb_s in wanted["links"]:
            with link_of(gb_s, LATENCY_S):
                seconds = turns(calls, wanted["rounds"], wanted["times"])
            yield {"what": "overlap", "work": work, "link": gb_s, **seconds}
    for gb_s, latency_s in wanted["bucket links"]:
        arrays = [nd.zeros(ELEMENTS) for _ in range(TENSORS)]
        calls = {"buckets": sums_of(arrays), "one each": sums_of(arrays, alone=True)}
        with link_of(gb_s, latency_s):
            seconds = turns(calls, wanted["rounds"], min(2, wanted["times"]))
        yield {"what": "buckets", "link": gb_s, "latency_s": latency_s, **seconds}


@contextmanager
def link_of(gb_s: float | None, latency_s: float) -> Iterator[None]:
    """A thin link; none, if there is a real wire."""
    with kvstore.thin_link(gb_s, latency_s if gb_s else 0.0):
        yield


def run_job(wanted: dict[str, Any], results: Path) -> None:
    rank = kvstore.create("dist_sync").rank
    with results.open("a") if rank == 0 else open(os.devnull, "w") as file:
        for found in measure(wanted):
            print(json.dumps(found), file=file, flush=True)


# -- the command -----------------------------------------------------------------------------------


def sentence(found: dict[str, Any]) -> tuple[str, Figure, float]:
    """What is compared, the ratio of medians with its spread, and the target."""
    if found["what"] == "buckets":
        figure = ratio(found["one each"], found["buckets"])
        return "one message for each tensor / buckets", figure, 2.0
    alone = "compute" if _longer(found) == "compute" else "communicate"
    return f"step / {alone}", ratio(found["step"], found[alone]), 1.15


def _longer(found: dict[str, Any]) -> str:
    return max("compute", "communicate", key=lambda name: quartiles(found[name])[1])


def told(found: dict[str, Any]) -> str:
    """A line for people."""
    what, figure, target = sentence(found)
    wire = "real wire" if found["link"] is None else f"{found['link']:6.4g} GB/s"
    names = [n for n in ("compute", "communicate", "step", "buckets", "one each") if n in found]
    times = ", ".join(f"{name} {1e3 * quartiles(found[name])[1]:.1f} ms" for name in names)
    met = figure.value <= target if found["what"] == "overlap" else figure.value >= target
    return (
        f"{found.get('work', 'sums'):9}{wire}: {what} = {figure.value:.2f} ({figure.low:.2f} to "
        f"{figure.high:.2f}; {'met' if met else 'NOT met'}: {target:g}); {times}"
    )


def launched(args: argparse.Namespace, wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the job, by the launcher or on two hosts that are namespaces of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.touch()
        program = [str(Path(__file__).resolve()), "--job", json.dumps(wanted), str(results)]
        if args.namespaces:
            with namespaces.hosts(args.namespaces) as start:
                status = subprocess.run([*start, sys.executable, "-m", "mpi4py", *program])
        else:
            command = [sys.executable, "-m", "d2lmini", "launch", "-n", str(args.n), *program]
            status = subprocess.run(command)
        if status.returncode:
            sys.exit(status.returncode)
        for line in results.read_text().splitlines():
            yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-n", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--links", type=float, nargs="+", default=LINKS, metavar="GB_S")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=3, help="steps of a turn (default 3)")
    parser.add_argument("--quick", action="store_true", help="one link, one round of one step")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure")
    parser.add_argument("--namespaces", type=float, metavar="MBIT", help="over a shaped real wire")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        run_job(json.loads(args.job[0]), Path(args.job[1]))
        return
    if args.namespaces and (why := namespaces.missing()):
        sys.exit(f"--namespaces: {why}")
    wanted = {
        "works": args.works,
        "links": [None] if args.namespaces else args.links[: 1 if args.quick else None],
        "bucket links": [(None, 0.0)] if args.namespaces else BUCKET_LINKS,
        "rounds": 1 if args.quick else args.rounds,
        "times": 1 if args.quick else args.times,
    }
    if args.quick:
        wanted["bucket links"] = wanted["bucket links"][:1]
    for found in launched(args, wanted):
        load = os.getloadavg()[0]
        if args.json:
            what, figure, target = sentence(found)
            print(
                json.dumps({**found, "ratio": what, **vars(figure), "target": target, "load": load})
            )
        else:
            print(told(found), flush=True)
    if not args.json:
        print(f"{args.n} processes on {os.cpu_count()} cores; load at the end {load:.1f}")


if __name__ == "__main__":
    main()
