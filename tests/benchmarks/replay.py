"""How well does `trace.replay` foresee? Generated programs, recorded in one world, run in another.

    python tests/benchmarks/replay.py                    # ten programs, in a minute if it is quiet
    python tests/benchmarks/replay.py --kind computing --programs 12 --seed 7

A seed makes a program: tasks in a few chains with joins, waits here and there, arrays that travel.
Its kind says what it is made of, and in which two worlds it runs:

    computing   operations on arrays, products among them, some shared by workers; 1 and 2 workers
    waiting     tasks that sleep (as for a disk); two of 1 to 4 workers
    linked      copies to virtual GPUs and work there; two speeds of the link
    freed       tasks that sleep, waited for at every step; without those waits

Each is recorded in the first world, replayed for the second, then measured there, turn about; the
medians over the rounds are compared. Other programs lengthen what computes, now here and now there.
So a round in which they took more than a twelfth of the cores, or did so in the moment before, is
repeated. Rounds go on until seven were calm, and in both worlds half of them lie within a tenth, or
patience ends (20 s each): a program that computes and had fewer than five has a star, and is not
judged.

    chrt -r 3 python tests/benchmarks/replay.py     # beside others, but before them (needs root)

The last lines say how many were foreseen within 15 %.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Any, NamedTuple

import psutil

from d2lmini import cpu, engine, gpu, nd, profile, virtual_gpus

WITHIN = 0.15
#: So many calm rounds, of which half lie within that share; with fewer none is judged.
ROUNDS, SPREAD, FEWEST = 7, 0.1, 5
#: Of the cores, what other programs may take, in a moment (s) and in the run that follows.
CALM_SHARE, MOMENT_S = 0.08, 0.1


#: Do we come before all others, by the system's own rules (`chrt`)? Then they disturb us little.
first = hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) != os.SCHED_OTHER


class World(NamedTuple):
    """Where a program runs."""

    workers: int = 1
    link_gb_s: float = 0.0  # 0: without virtual GPUs
    waits: bool = True

    def __str__(self) -> str:
        text = f"{self.link_gb_s:g} GB/s" if self.link_gb_s else f"{self.workers} workers"
        return text if self.waits else text + ", no waits"


class Program(NamedTuple):
    """What runs, where it is recorded, where it is foreseen, and what is asked of the replay."""

    kind: str
    run: Callable[[bool], None]
    recorded: World
    asked: World
    change: dict[str, Any]


def chains(
    rng: random.Random, tasks: int, pieces: list[Callable[[], None]]
) -> Callable[[bool], None]:
    """Tasks on Vars: each changes one, and reads another now and then; `True`: with the waits."""
    n = rng.randint(3, 6)
    plan = []
    for i in range(tasks):
        reads = [rng.randrange(n)] if rng.random() < 0.4 else []
        plan.append((i % n if rng.random() < 0.8 else rng.randrange(n), reads,
                     rng.choice(pieces), rng.random() < 0.12))  # fmt: skip

    def run(waits: bool) -> None:
        variables = [engine.new_var() for _ in range(n)]
        for write, reads, piece, wait in plan:
            engine.push(piece, [variables[k] for k in reads], [variables[write]])
            if wait and waits:
                engine.wait_for_var(variables[write])
        engine.waitall()

    return run


def computing(rng: random.Random) -> Program:
    """Chains of operations of half a millisecond to some milliseconds; large ones are shared."""
    n = rng.randint(2, 5)
    large = rng.random() < 0.5
    plan = []
    for i in range(24):
        op = rng.choice([nd.exp, nd.tanh, nd.log1p, lambda x: nd.dot(x, x)])
        plan.append((i % n if rng.random() < 0.8 else rng.randrange(n), op, rng.random() < 0.1))
    sides = [
        rng.randint(900, 1200) if large and i == 0 else rng.randint(450, 700) for i in range(n)
    ]

    def run(waits: bool) -> None:
        values = [nd.ones((side, side)) for side in sides]
        for k, op, wait in plan:
            values[k] = op(values[k]) / sides[k]
            if wait and waits:
                values[k].wait_to_read()
        nd.waitall()

    worlds = rng.sample([World(1), World(2)], 2)
    return Program("computing", run, *worlds, {"workers": worlds[1].workers})


def waiting(rng: random.Random) -> Program:
    """Chains of tasks that sleep two to nine milliseconds."""
    run = chains(rng, 50, [sleeper(rng) for _ in range(6)])
    worlds = [World(n) for n in rng.sample(range(1, 5), 2)]
    return Program("waiting", run, *worlds, {"workers": worlds[1].workers})


def sleeper(rng: random.Random) -> Callable[[], None]:
    seconds = rng.uniform(0.002, 0.009)
    return lambda: time.sleep(seconds)


def linked(rng: random.Random) -> Program:
    """Batches go to two devices, something is computed of them there, results come back."""
    worlds = [World(2, gb_s) for gb_s in rng.sample([0.05, 0.2], 2)]
    sizes = [rng.randint(20_000, 200_000) for _ in range(16)]
    back = [rng.random() < 0.3 for _ in sizes]

    def run(waits: bool) -> None:
        kept = []
        for i, (size, comes_back) in enumerate(zip(sizes, back, strict=True)):
            there = nd.ones(size, ctx=cpu()).as_in_context(gpu(i % 2))
            result = there * 2 + i
            kept.append(result.as_in_context(cpu()) if comes_back else result)
            if waits and i % 5 == 4:
                kept[-1].wait_to_read()
        nd.waitall()

    return Program("linked", run, *worlds, {"link_gb_s": worlds[1].link_gb_s})


def freed(rng: random.Random) -> Program:
    """As `waiting`, with a wait at every second step that the second world has not."""
    n = rng.randint(2, 4)
    pieces = [sleeper(rng) for _ in range(30)]

    def run(waits: bool) -> None:
        variables = [engine.new_var() for _ in range(n)]
        for i, piece in enumerate(pieces):
            engine.push(piece, [variables[(i * i) % n]], [variables[i % n]])
            if waits and i % 2:
                engine.wait_for_var(variables[i % n])
        engine.waitall()

    line = run.__code__.co_firstlineno + 5
    workers = rng.randint(2, 4)
    worlds = World(workers), World(workers, waits=False)
    return Program("freed", run, *worlds, {"without_wait_at": f"replay.py:{line}"})


KINDS = (computing, waiting, linked, computing, freed)


def programs(seed: int, n: int, kind: str = "") -> Iterator[Program]:
    """The first `n` programs of a seed; their kinds take turns. All of one kind, if it is named."""
    kinds = [each for each in KINDS if kind in ("", each.__name__)]
    for i in range(n):
        yield kinds[i % len(kinds)](random.Random(f"{seed}-{i}"))


def recording(program: Program, world: World) -> Any:
    """The trace of one run in `world`."""
    with ExitStack() as scopes:
        scopes.enter_context(engine.use("threaded", workers=world.workers))
        if world.link_gb_s:
            scopes.enter_context(virtual_gpus(2, link_gb_s=world.link_gb_s))
        with profile() as trace:
            program.run(world.waits)
    return trace


def seconds(trace: Any) -> float:
    return (trace.end_ns - trace.begin_ns) / 1e9


class Outcome(NamedTuple):
    """Seconds: recorded, the replay of that without a change, foreseen, measured; each the median
    over the rounds. How far the middle half of them lies apart, and how many were calm."""

    recorded: float
    again: float
    predicted: float
    measured: float
    spread: float
    calm: int

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class Round(NamedTuple):
    """A recording, what is foreseen of it, and the measurement beside it, in seconds."""

    recorded: float
    again: float
    predicted: float
    measured: float


def turn(program: Program, world: World) -> tuple[Any, bool]:
    """The trace of a run, and whether other programs let it have the cores."""
    begin, before = time.monotonic(), others_s()
    time.sleep(MOMENT_S)
    trace = recording(program, world)
    allowed = CALM_SHARE * (os.cpu_count() or 1) * (time.monotonic() - begin)
    return trace, first or others_s() - before <= allowed


def others_s() -> float:
    """Seconds for which other programs have computed so far."""
    every, mine = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(every) - every.idle - getattr(every, "iowait", 0.0) - getattr(every, "guest", 0.0)
    return busy - mine.user - mine.system


def compare(program: Program, patience_s: float) -> Outcome:
    """Record, replay and measure in turns."""
    recording(program, program.recorded), recording(program, program.asked)  # warm
    rounds: list[Round] = []
    calm: list[Round] = []
    end = time.monotonic() + patience_s
    while True:
        trace, was_calm = turn(program, program.recorded)
        measured, too = turn(program, program.asked)
        traces = trace, trace.replay(), trace.replay(**program.change), measured
        rounds.append(Round(*map(seconds, traces)))
        if was_calm and too:
            calm.append(rounds[-1])
        enough = len(calm) >= ROUNDS and spread_of(calm) <= SPREAD
        if enough or time.monotonic() > end:
            break
    used = calm if len(calm) >= FEWEST else rounds
    medians = [median(column) for column in zip(*used, strict=True)]
    return Outcome(*medians, spread_of(used), len(calm))


def spread_of(rounds: list[Round]) -> float:
    """How far the middle half of the recorded, and of the measured times lies apart; the more."""
    if len(rounds) < 2:
        return math.inf
    recorded, *_, measured = zip(*rounds, strict=True)
    quarters = [quantiles(times, n=4) for times in (recorded, measured)]
    return max(high / low - 1 for low, _, high in quarters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--patience", type=float, default=20, help="seconds for each program")
    parser.add_argument("--kind", default="", choices=sorted({each.__name__ for each in KINDS}))
    asked = parser.parse_args()
    columns = "recorded", "replayed", "predicted", "measured"
    print(f"{'kind':10} {'recorded in':14} {'asked for':19}", *(f"{each:>10}" for each in columns),
          "  error  spread  calm")  # fmt: skip
    good = unjudged = 0
    for program in programs(asked.seed, asked.programs, asked.kind):
        outcome = compare(program, asked.patience)
        judged = outcome.calm >= FEWEST or program.kind != "computing"
        good += judged and abs(outcome.error) <= WITHIN
        unjudged += not judged
        times = " ".join(f"{1e3 * each:7.1f} ms" for each in outcome[:4])
        star = "" if judged else " *"
        print(
            f"{program.kind:10} {program.recorded!s:14} {program.asked!s:19} {times} "
            f"{outcome.error:+7.1%} {outcome.spread:7.1%} {outcome.calm:5}{star}",
            flush=True,
        )
    print(f"within {WITHIN:.0%}: {good} of {asked.programs - unjudged} (seed {asked.seed})")
    if unjudged:
        print(f"* {unjudged} not judged: other programs computed meanwhile")


if __name__ == "__main__":
    main()
