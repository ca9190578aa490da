"""How well does `trace.replay` foresee? Generated programs, recorded in one world, run in another.

    python tests/benchmarks/replay.py                    # ten programs
    python tests/benchmarks/replay.py --seed 7 --programs 40

A seed makes a program: tasks in a few chains with joins, waits here and there, arrays that travel.
Its kind says what it is made of, and in which two worlds it runs:

    computing   operations on arrays, products among them, some shared by workers; 1 and 2 workers
    waiting     tasks that sleep (as for a disk); two of 1 to 4 workers
    linked      copies to virtual GPUs and work there; two speeds of the link
    freed       tasks that sleep, waited for at every step; without those waits

Each is recorded in the first world, replayed for the second, then measured there. The two take
turns, and each counts with its quickest round, because what disturbs a round only makes it longer.
A round is calm if other programs took less than a tenth of a core meanwhile; rounds go on until in
both worlds the three quickest calm ones agree within a twentieth (`spread` says how far they lay
apart), or patience ends. A program that computes and had no calm rounds is printed with a star and
not judged. The last lines say how many were foreseen within 15 %.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import psutil

from d2lmini import cpu, engine, gpu, nd, profile, virtual_gpus

WITHIN = 0.15
CALM = 0.05
#: Of a core, what other programs may take; and how exactly the system counts that.
BUSY, TICK_S = 0.1, 0.01


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


def programs(seed: int, n: int) -> Iterator[Program]:
    """The first `n` programs of a seed; their kinds take turns."""
    for i in range(n):
        yield KINDS[i % len(KINDS)](random.Random(f"{seed}-{i}"))


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
    """Seconds: recorded, the replay of that without a change, foreseen, measured."""

    recorded: float
    again: float
    predicted: float
    measured: float
    spread: float
    calm: bool

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class Rounds:
    """Runs in one world: all of them, and those during which other programs left it the cores."""

    def __init__(self, program: Program, world: World):
        self.program, self.world = program, world
        self.all: list[Any] = []
        self.calm: list[Any] = []

    def go(self) -> None:
        before = others_s()
        trace = recording(self.program, self.world)
        self.all.append(trace)
        if others_s() - before < BUSY * seconds(trace) + TICK_S:
            self.calm.append(trace)

    @property
    def spread(self) -> float:
        return apart([seconds(each) for each in self.calm]) if len(self.calm) > 2 else math.inf

    @property
    def best(self) -> Any:
        return min(self.calm if len(self.calm) > 2 else self.all, key=seconds)


def others_s() -> float:
    """Seconds for which other programs have computed so far."""
    every, mine = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(every) - every.idle - getattr(every, "iowait", 0.0) - getattr(every, "guest", 0.0)
    return busy - mine.user - mine.system


def compare(program: Program, patience_s: float) -> Outcome:
    """Record, replay and measure in turns."""
    recording(program, program.recorded), recording(program, program.asked)  # warm
    recorded, asked = (Rounds(program, world) for world in (program.recorded, program.asked))
    begin = time.monotonic()
    while (spread := max(recorded.spread, asked.spread)) > CALM:
        recorded.go()
        asked.go()
        if time.monotonic() - begin > patience_s:
            break
    best = recorded.best
    times = (seconds(each) for each in (best, best.replay(), best.replay(**program.change)))
    return Outcome(*times, seconds(asked.best), spread, spread < math.inf)


def apart(times: list[float]) -> float:
    """How far the three quickest lie apart."""
    quickest = sorted(times)[:3]
    return quickest[-1] / quickest[0] - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--patience", type=float, default=20, help="seconds for each program")
    asked = parser.parse_args()
    columns = "recorded", "replayed", "predicted", "measured"
    print(f"{'kind':10} {'recorded in':14} {'asked for':19}", *(f"{each:>10}" for each in columns),
          "  error  spread")  # fmt: skip
    good = unjudged = 0
    for program in programs(asked.seed, asked.programs):
        outcome = compare(program, asked.patience)
        judged = outcome.calm or program.kind != "computing"
        good += judged and abs(outcome.error) <= WITHIN
        unjudged += not judged
        times = " ".join(f"{1e3 * each:7.1f} ms" for each in outcome[:4])
        star = "" if judged else " *"
        print(
            f"{program.kind:10} {program.recorded!s:14} {program.asked!s:19} {times} "
            f"{outcome.error:+7.1%} {outcome.spread:7.1%}{star}",
            flush=True,
        )
    print(f"within {WITHIN:.0%}: {good} of {asked.programs - unjudged} (seed {asked.seed})")
    if unjudged:
        print(f"* {unjudged} not judged: other programs computed meanwhile")


if __name__ == "__main__":
    main()
