"""How cost grows: with the tasks in the queue, what a task depends on, devices, batch and layer.

    python tests/benchmarks/growth.py                    # a few minutes
    python tests/benchmarks/growth.py --quick            # a few seconds
    python tests/benchmarks/growth.py --markdown tests/benchmarks/results/growth-mine.md

Each curve is the cost of one thing (a task, a step, a call) at growing sizes. Over the upper half
of the sizes a power is fitted to it: cost ~ size ** exponent. A queue whose tasks cost the same
whether a hundred or a million are in it has the exponent 0; that is what "linear" means here. The
page gets a table and, beside it, a drawing (same name, .svg), in both what was measured only.

Tasks wait behind a gate while they are pushed: so the queue is as long as the curve says, and
pushing and draining are timed apart. What the engine itself does is told in CPU time, of all
threads, which other programs do not lengthen much; what arrays need, in time of the clock. Of
several rounds the fastest counts, for others may use the machine.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
from report import digits, grid, machine, revision

from d2lmini import Context, cpu, engine, gluon, kv, nd, virtual_gpus
from d2lmini.draw.timeline import STYLES

#: A fitted exponent may be this far above what is expected.
SLACK = 0.1
#: Tasks write in turns these many Vars, so that each of them has a long line; a multiple of the
#: numbers of devices.
LINES = 8


@dataclass
class Curve:
    """The cost of one thing (`what`, in `unit`) at the sizes `x`; it should grow with no higher
    power than `most`.

    >>> Curve("a task", "tasks", "us", [10, 100, 1000, 10000], [9.0, 4.0, 4.0, 4.0], 0).verdict
    'as expected'
    >>> Curve("a task", "tasks", "us", [1, 10, 100], [1.0, 10.0, 100.0], 0).verdict
    'grows faster'
    """

    what: str
    size: str
    unit: str
    x: list[int]
    y: list[float]
    most: float

    @property
    def exponent(self) -> float:
        """Of the power that fits the upper half of the sizes best, three of them at least: by least
        squares of logarithms.

        >>> squares = Curve("", "", "", [1, 2, 4, 8], [7.0, 4.0, 16.0, 64.0], 2)
        >>> round(squares.exponent, 6)
        2.0
        """
        half = max(0, min(len(self.x) // 2, len(self.x) - 3))
        # A coarse clock may show nothing at all.
        y = np.maximum(self.y[half:], 1e-9)
        slope, _ = np.polyfit(np.log(self.x[half:]), np.log(y), 1)
        return float(slope)

    @property
    def verdict(self) -> str:
        return "as expected" if self.exponent <= self.most + SLACK else "grows faster"


@dataclass
class Sizes:
    """How far a run goes; `rounds` of each measurement, of which the fastest counts."""

    tasks: list[int]
    dependencies: list[int]
    devices: list[int]
    batches: list[int]
    units: list[int]
    rounds: int


def powers(base: int, first: int, last: int) -> list[int]:
    """base ** first ... base ** last.

    >>> powers(10, 2, 4)
    [100, 1000, 10000]
    """
    return [base**i for i in range(first, last + 1)]


SIZES = {
    "full": Sizes(
        powers(10, 2, 6), powers(2, 0, 6), powers(2, 0, 3), powers(4, 0, 6), powers(2, 4, 11), 5
    ),
    "quick": Sizes(
        powers(10, 2, 4), powers(4, 0, 3), powers(2, 0, 3), powers(4, 0, 4), powers(4, 2, 5), 3
    ),
    "tiny": Sizes([20, 100], [1, 4], [1, 2], [1, 4], [8, 16], 1),
}


# -- what is measured ------------------------------------------------------------------------------


def curves(sizes: Sizes) -> Iterator[Curve]:
    yield from of_tasks(sizes)
    yield from of_dependencies(sizes)
    yield from of_devices(sizes)
    yield from of_nets(sizes)


class Gate:
    """What is pushed behind it waits until it opens."""

    def __init__(self) -> None:
        self.var, self.event = engine.new_var(), threading.Event()
        engine.push(self.event.wait, writes=[self.var], name="gate")

    def open(self) -> None:
        self.event.set()


def pushed_and_drained(
    n: int, reads: Sequence[Any] = (), contexts: Sequence[Context] = (cpu(),)
) -> tuple[float, float]:
    """CPU seconds to push n tasks that read the gate and `reads` and write one of a few Vars, on
    these contexts in turns, and then to drain them; the engine must have executed every one."""
    before = engine.stats().executed
    places = [([engine.new_var()], contexts[i % len(contexts)]) for i in range(LINES)]
    gate = Gate()
    needs = [gate.var, *reads]
    begin_s = process_time()
    for i in range(n):
        writes, ctx = places[i % LINES]
        engine.push(int, reads=needs, writes=writes, ctx=ctx)
    pushed_s = process_time()
    gate.open()
    engine.waitall()
    end_s = process_time()
    done = engine.stats().executed - before
    assert done == n + 1, f"{done} tasks executed, {n} were pushed, and a gate"
    return pushed_s - begin_s, end_s - pushed_s


def task_us(n: int, rounds: int, *where: Any) -> tuple[float, float]:
    """CPU microseconds of one of n tasks, to push it and to drain it, each at its best; a queue
    that is quickly filled is filled more often."""
    times = 1 if n >= 1_000_000 else rounds if n >= 100_000 else 4 * rounds
    push_s, drain_s = map(min, zip(*(pushed_and_drained(n, *where) for _ in range(times))))
    return 1e6 * push_s / n, 1e6 * drain_s / n


def bytes_of_pending(n: int) -> float:
    """Bytes of memory of a task in the queue, with all that it needs there."""
    lines = [[engine.new_var()] for _ in range(LINES)]
    gate = Gate()
    gc.collect()
    tracemalloc.start()
    try:
        for i in range(n):
            engine.push(int, reads=[gate.var], writes=lines[i % LINES])
        return tracemalloc.get_traced_memory()[0] / n
    finally:
        tracemalloc.stop()
        gate.open()
        engine.waitall()


def of_tasks(sizes: Sizes) -> list[Curve]:
    x = sizes.tasks
    with engine.use("threaded", workers=2):
        pushed_and_drained(x[0])  # the first time
        push_us, drain_us = map(list, zip(*(task_us(n, sizes.rounds) for n in x)))
        counted = [n for n in x if n <= 100_000]  # counting bytes takes several times as long
        nbytes = [bytes_of_pending(n) for n in counted]
    return [
        Curve("pushing a task", "tasks", "CPU us", x, push_us, 0),
        Curve("draining a task", "tasks", "CPU us", x, drain_us, 0),
        Curve("a task in the queue", "tasks", "bytes", counted, nbytes, 0),
    ]


def of_dependencies(sizes: Sizes) -> list[Curve]:
    x, n, us = sizes.dependencies, max(sizes.tasks[0], min(2000, sizes.tasks[-1])), []
    with engine.use("threaded", workers=2):
        for d in x:
            reads = [engine.new_var() for _ in range(d)]
            us.append(sum(task_us(n, sizes.rounds, reads)))
    return [Curve("a task, pushed and drained", "Vars it reads", "CPU us", x, us, 1)]


def of_devices(sizes: Sizes) -> list[Curve]:
    """A task on each of the devices in turns; and the sum of one array of each, sent to all."""
    x, n, each_us, reduce_us = sizes.devices, min(2000, sizes.tasks[-1]), [], []
    for k in x:
        with virtual_gpus(k) as contexts:
            each_us.append(sum(task_us(n, sizes.rounds, (), contexts)))
            store = kv.create("device")
            store.init("w", nd.zeros((1000,)))
            arrays = [nd.ones((1000,), ctx=ctx) for ctx in contexts]

            def reduce(store: Any = store, arrays: Any = arrays) -> None:
                for _ in range(20):
                    store.push("w", arrays)
                    store.pull("w", out=arrays)

            reduce_us.append(1e6 * best_s(reduce, sizes.rounds) / 20)
    return [
        Curve("a task, pushed and drained", "devices", "CPU us", x, each_us, 0),
        Curve("an all-reduce of 1000 numbers", "devices", "us", x, reduce_us, 1),
    ]


def of_nets(sizes: Sizes) -> list[Curve]:
    """A call of a compiled net: more examples, wider layers."""
    calls = 5

    def call_us(batch: int, units: int) -> float:
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(units, activation="relu"), gluon.nn.Dense(units))
        net.initialize(ctx=cpu())
        net.hybridize()
        x = nd.ones((batch, units))

        def loop() -> None:
            for _ in range(calls):
                net(x)

        return 1e6 * best_s(loop, sizes.rounds) / calls

    widest = min(256, sizes.units[-1])
    return [
        Curve(
            f"a net {widest}-{widest}-{widest}, compiled", "examples", "us",
            sizes.batches, [call_us(n, widest) for n in sizes.batches], 1,
        ),
        Curve(
            "a net n-n-n, compiled, 32 examples", "units n", "us",
            sizes.units, [call_us(32, n) for n in sizes.units], 2,
        ),
    ]  # fmt: skip


def best_s(work: Callable[[], Any], rounds: int) -> float:
    """Seconds until the work is done, its wait included; the first time does not count."""
    seconds = []
    for _ in range(rounds + 1):
        begin_s = perf_counter()
        work()
        engine.waitall()
        seconds.append(perf_counter() - begin_s)
    return min(seconds[1:])


# -- what is shown ---------------------------------------------------------------------------------


HEADINGS = ["cost of", "size", "from", "to", "exponent", "expected"]


def table(found: Sequence[Curve]) -> list[list[str]]:
    """A row for each curve: its first and its last point, the fitted and the expected exponent.

    >>> table([Curve("pushing a task", "tasks", "us", [100, 1000], [8.0, 8.0], 0)])[0][:4]
    ['pushing a task', 'tasks', '8 us at 100', '8 us at 1000']
    """
    return [
        [
            c.what, c.size, *(f"{digits(c.y[i])} {c.unit} at {c.x[i]}" for i in (0, -1)),
            f"{c.exponent:.2f}", f"<= {c.most:g}: {c.verdict}",
        ]
        for c in found
    ]  # fmt: skip


def draw(found: Sequence[Curve], path: Path) -> None:
    """All curves, those over one size and in one unit in one panel, logarithmic both ways."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    panels: dict[tuple[str, str], list[Curve]] = {}
    for c in found:
        panels.setdefault((c.size, c.unit), []).append(c)
    columns = 2
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(8, 2.3 * rows), layout="constrained")
    shades = [STYLES[kind][0] for kind in ("push", "copy")]
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, ((size, unit), each) in zip(axes, panels.items()):
        for c, shade, marker in zip(each, shades, "os"):
            label = f"{c.what}: exponent {c.exponent:.2f}"
            axis.loglog(c.x, c.y, marker=marker, markersize=4, color=shade, label=label)
        low, high = (f(v for c in each for v in c.y) for f in (min, max))
        axis.set(xlabel=size, ylabel=unit, ylim=(low / 3, high * 8))
        axis.set_xticks(each[0].x, [short(x) for x in each[0].x])
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,)))
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.minorticks_off()
        axis.legend(fontsize=8, frameon=False, loc="upper left")
        axis.grid(alpha=0.3)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    # Letters, not their outlines: smaller, and a search finds them.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def short(n: int) -> str:
    """
    >>> short(64), short(100_000), short(1_000_000)
    ('64', '100k', '1M')
    """
    for power, letter in ((6, "M"), (3, "k")):
        if n % 10**power == 0:
            return f"{n // 10**power}{letter}"
    return str(n)


def page(found: Sequence[Curve], mode: str, drawing: str) -> str:
    lines = [
        "# How cost grows", "", f"- {machine()}",
        f"- d2lmini, commit {revision()}; mode {mode}, {SIZES[mode].rounds} rounds", "",
        "The exponent is that of the power that fits the upper half of the sizes; 0: the cost of "
        "one does not depend on how many there are, so that all together are linear.", "",
        *grid(HEADINGS, table(found)), "", f"![the curves]({drawing})", "",
    ]  # fmt: skip
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("quick", "tiny"):
        parser.add_argument(
            f"--{name}", action="store_const", dest="mode", const=name, default="full"
        )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a page and a drawing")
    options = parser.parse_args(words)
    found = []
    for curve in curves(SIZES[options.mode]):
        found.append(curve)
        print("  ".join(table([curve])[0]), flush=True)
    if options.markdown:
        drawing = options.markdown.with_suffix(".svg")
        draw(found, drawing)
        options.markdown.write_text(page(found, options.mode, drawing.name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
