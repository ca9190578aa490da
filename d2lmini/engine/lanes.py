"""Who serves which tasks: every device has lanes, and every lane threads of its own.

A task names its context and its lane: "compute", or for a copy between devices "in" or "out", the
directions of the link as the device at its end sees them. So a device computes while it copies, and
two devices compute at once. What serves no lane of its own is left to the workers of the CPU's
kind: as many as there are cores.

The devices (one storey up, in `d2lmini.device`) enter here what they have; engines that exist drop
the threads they had started for the lanes before.

A device that works by itself, behind the host, gives each lane a *runner*. What it runs is complete
for the engine as soon as the device was told to do it, so that the next task can be told as well;
a Var's `order` knows what to wait for besides, and every wait goes on to wait for that.
"""

from __future__ import annotations

from d2lmini.context import Context, cpu
from d2lmini.engine.core import Task, lock
from d2lmini.engine.engine import Engine
from d2lmini.engine.road import Road, Runner

#: The lane of what travels between processes: one thread, beside the workers of the CPU.
WIRE = "wire"

_ALWAYS = {(cpu(), WIRE): 1}

#: (context, lane) -> how many threads serve it.
threads: dict[tuple[Context, str], int] = dict(_ALWAYS)

#: So many workers the CPU has at most, for the devices' threads need cores too; None: no bound.
most_for_cpu: int | None = None


def key_of(task: Task) -> object:
    """The lane of `task`; all CPU contexts share one, as they share the machine's cores."""
    ctx, lane = task.ctx, task.lane
    return "cpu" if ctx.is_cpu and lane != WIRE else (ctx, lane)


def install(
    lanes: dict[tuple[Context, str], int],
    cpu_workers: int | None,
    runners: dict[tuple[Context, str], Runner],
) -> None:
    """Let there be these lanes from now on, and no others but `WIRE`; the engines must be idle."""
    global threads, most_for_cpu
    with lock:
        threads, most_for_cpu = {**_ALWAYS, **lanes}, cpu_workers
        Road.runners = dict(runners)
        engines = list(Engine.alive)
    for engine in engines:
        engine.lanes_changed()


def add(lanes: dict[tuple[Context, str], int], runners: dict[tuple[Context, str], Runner]) -> None:
    """Let there be these lanes too, of devices that nobody has used yet."""
    global threads
    with lock:
        threads = {**threads, **lanes}
        Road.runners = {**Road.runners, **runners}
