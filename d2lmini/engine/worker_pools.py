"""Which threads serve which tasks: every device has lanes, and every lane its own threads.

A task names its context and its lane: "compute", or for a copy between devices "in" or "out", the
directions of the link as seen from the device. So a device computes while it copies, and two
devices compute at once. Tasks without a lane of their own run on the CPU's workers, of which there
are as many as cores.

The devices (one floor up, in `d2lmini.device`) install their lanes here; existing engines drop the
threads they had started for the old lanes.

A device that works asynchronously to the host gives each lane a *runner*. For the engine a task of
such a lane is complete once its work is launched, so that the next task can be launched; a Var's
`order` says which device work to wait for, and every wait then waits for that work too. A
runner has

    run(task)           run the task, and order the device work that it launches
    finish(deadline)    block until the lane's work is done on the device; False at the deadline
    take(task)          the function that puts the task's work on the device from the caller's
                        thread; None if there is none
    give_back()         workers may use the lane again
    runs_anywhere(task) True if the caller's thread may run the task as a worker would

A simulated device gives each lane the time that a task takes on it; see `scheduler`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.context import Context, cpu
from d2lmini.engine import scheduler
from d2lmini.engine.core import Task, lock
from d2lmini.engine.engine import Engine
from d2lmini.engine.operation import Operation
from d2lmini.engine.scheduler import LaneTime, Scheduler

#: The lane of traffic between processes: one thread, in addition to the workers of the CPU.
WIRE = "wire"

_ALWAYS = {(cpu(), WIRE): 1}

#: (context, lane) -> number of its threads.
threads: dict[tuple[Context, str], int] = dict(_ALWAYS)

#: Upper bound on the CPU's workers, because the devices' threads need cores too; None: no bound.
most_for_cpu: int | None = None


def key_of(task: Task) -> object:
    """The lane of `task`; all CPU contexts share one, as they share the machine's cores."""
    ctx, lane = task.ctx, task.lane
    return "cpu" if ctx.is_cpu and lane != WIRE else (ctx, lane)


def names_of(operation: Operation, cpu_workers: int) -> list[str]:
    """The names of the workers at the place of `operation`, where the CPU has `cpu_workers`:
    "cpu 1", "cpu 2"; a single one is named like the place."""
    n, place = threads.get((operation.ctx, operation.lane), cpu_workers), operation.place
    return [f"{place} {i + 1}" for i in range(n)] if n > 1 else [place]


def install(
    lanes: dict[tuple[Context, str], int],
    cpu_workers: int | None,
    runners: dict[tuple[Context, str], Any],
    times: dict[tuple[Context, str], LaneTime],
) -> None:
    """Replace all lanes but `WIRE` by these; the engines must be idle."""
    global threads, most_for_cpu
    with lock:
        threads, most_for_cpu = {**_ALWAYS, **lanes}, cpu_workers
        Scheduler.runners = dict(runners)
        scheduler.lane_times = dict(times)
        engines = list(Engine.alive)
    for engine in engines:
        engine.reset_lanes()


def add(lanes: dict[tuple[Context, str], int], runners: dict[tuple[Context, str], Any]) -> None:
    """Add the lanes of devices that have not been used yet."""
    global threads
    with lock:
        threads = {**threads, **lanes}
        Scheduler.runners = {**Scheduler.runners, **runners}
