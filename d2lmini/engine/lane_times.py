"""Simulated lanes: lanes whose tasks take at least a given time, as on slower hardware.

A simulated device (`d2lmini.virtual_gpus`) computes on the cores of this machine, but its tasks
shall take as long as on the hardware that it stands for. So each of its lanes may have a function
that gives the time of a task. After a task has run, the worker of the lane sleeps until that time
has passed; other lanes continue meanwhile. A task that really takes longer is not delayed further.
The stepped engine does not sleep: the same times pass on its virtual clock.

The engine knows the lanes, the devices (one floor up) know the rates: `worker_pools.install`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from d2lmini.context import Context
from d2lmini.engine.core import Task

#: The microseconds that a task takes on its lane, at least; None: not known.
LaneTime = Callable[[Task], float | None]

#: (context, lane) -> its function; other lanes take the time they take.
lane_times: dict[tuple[Context, str], LaneTime] = {}

#: `time.sleep` returns up to about 0.1 ms late, so a worker wakes that much earlier.
_LATE_NS = 100_000


def find_lane_time(task: Task) -> LaneTime | None:
    """The function of the task's lane; None for a lane that is not simulated."""
    return None if task.ctx.is_cpu else lane_times.get((task.ctx, task.lane))


def sleep_until(end_ns: float) -> None:
    """Block this thread until `time.perf_counter_ns()` is `end_ns`, or return at once if that is
    past. The thread sleeps, but for the last 0.1 ms, in which it lets other threads run."""
    left_ns = end_ns - time.perf_counter_ns()
    if left_ns > _LATE_NS:
        time.sleep((left_ns - _LATE_NS) / 1e9)
    while time.perf_counter_ns() < end_ns:
        time.sleep(0)
