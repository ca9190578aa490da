"""Random programs for the virtual clock of `engine.stepped()`, where a prediction must be exact.

A seed makes a program: operations on a few Vars at some places, with priorities, waits, and
operations that others push. `trace_of` runs it; its arguments change the program itself, so that a
run without its waits, say, is the truth about a prediction without them. Durations are multiples of
10 us, from a short list, so that many events happen at the same time.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from d2lmini import Context, cpu, engine, gpu, profile, virtual_gpus
from d2lmini.engine.core import FunctionTask
from d2lmini.profiler import Trace


class Copy(FunctionTask):
    """A task on the link of a device."""

    __slots__ = ()
    lane = "in"


class Step(NamedTuple):
    """An operation. `wait`: the wait of the program after it, "read", "write", "all" or "".
    `inner`: an operation that this one pushes."""

    name: str
    reads: list[int]
    writes: list[int]
    priority: int
    ctx: Context
    copies: bool
    wait: str
    inner: Step | None


class Program(NamedTuple):
    """`times`: microseconds by name of the operation. `gpus`: how many virtual GPUs it uses."""

    steps: list[Step]
    times: dict[str, int]
    gpus: int
    variables: int

    def run(self, waits: bool, priorities: Callable[[str], int] | None, order: bool) -> None:
        tags = [engine.new_var() for _ in range(self.variables)]
        users = [[tag] for tag in tags]  # without order: a Var for each writer, and its readers

        def push(step: Step) -> None:
            work = (lambda: push(step.inner)) if step.inner else int
            priority = step.priority if priorities is None else priorities(step.name)
            reads, writes = ([tags[k] for k in those] for those in (step.reads, step.writes))
            if not order:
                own = engine.new_var()
                for k in step.reads:
                    users[k].append(own)
                for k in step.writes:
                    users[k] = [own]
                reads, writes = [], [own]
            kind = Copy if step.copies else FunctionTask
            task = kind(work, step.name, tuple(reads), tuple(writes), step.ctx, priority)
            if step.copies or step.priority > 0:
                engine.current.push(task)
            else:
                engine.current.push(task)  # another line

        for step in self.steps:
            push(step)
            if not waits or not step.wait:
                continue
            if step.wait == "all":
                engine.waitall()
            else:
                those = tags[step.writes[0] :][:1] if order else users[step.writes[0]]
                for tag in those if step.wait == "write" else those[:1]:
                    engine.current.wait(f"wait_to_{step.wait}", tag, step.wait == "write")


def draw(
    seed: int, gpus: int = 0, waits: float = 0.12, priorities: bool = True, inner: float = 0.05
) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    variables = rng.randint(2, 7)
    times = {f"op{i}": 10 * rng.randint(1, 9) for i in range(8)}
    contexts = [cpu(), *map(gpu, range(gpus))]

    def step(nests: bool) -> Step:
        ctx = rng.choice(contexts)
        return Step(
            rng.choice(list(times)),
            [rng.randrange(variables) for _ in range(rng.choice([0, 0, 1, 2]))],
            [rng.randrange(variables)],
            rng.randint(-2, 2) if priorities else 0,
            ctx,
            not ctx.is_cpu and rng.random() < 0.3,
            rng.choice(["read", "read", "write", "all"]) if rng.random() < waits else "",
            step(False) if nests and rng.random() < inner else None,
        )

    return Program([step(True) for _ in range(rng.randint(4, 40))], times, gpus, variables)


def trace_of(
    program: Program,
    workers: int = 2,
    waits: bool = True,
    priorities: Callable[[str], int] | None = None,
    order: bool = True,
    times: Mapping[str, float] | Callable[[Any], float] | None = None,
    seed: int | None = None,
) -> Trace:
    """The trace of the program on the virtual clock."""
    with ExitStack() as scopes:
        if program.gpus:
            scopes.enter_context(virtual_gpus(program.gpus))
        stepped = engine.stepped(seed=seed, workers=workers, times=times or program.times)
        scopes.enter_context(stepped)
        with profile() as trace:
            program.run(waits, priorities, order)
    return trace


def spans(trace: Trace) -> list[tuple[int, ...]]:
    """Pushed, ready, begun, ended, in nanoseconds from the begin."""
    times = [(e.pushed_ns, e.ready_ns, e.began_ns, e.ended_ns) for e in trace.operations]
    return [tuple(t - trace.begin_ns for t in time) for time in times]


def length(trace: Trace) -> int:
    return trace.end_ns - trace.begin_ns


def changed(program: Program, trace: Trace, cores: int) -> dict[str, Trace]:
    """The program run without each cause that a change of the program removes."""
    free = {step.name for step in program.steps if step.copies}
    found = {
        "waits": trace_of(program, waits=False),
        "dependency": trace_of(program, order=False),
        "workers": trace_of(program, workers=max(cores, trace.workers["cpu"])),
    }
    if free:

        def times(task: Any) -> float:
            return 0 if isinstance(task, Copy) else program.times[task.name]

        found["transfer"] = trace_of(program, times=times)
    return found


def rank(name: str) -> int:
    """A priority for operations of this name."""
    return zlib.crc32(name.encode()) % 5


def where(trace: Trace) -> list[str]:
    """The lines that waited."""
    return sorted({wait.where.partition(": ")[0] for wait in trace.waits})


def seeds(few: int, all: int) -> Any:
    """A few seeds for every run of the tests; under `make stress` all."""
    return pytest.mark.parametrize(
        "seed", [*range(few), *(pytest.param(k, marks=pytest.mark.stress) for k in range(few, all))]
    )
