"""How busy are the machine's cores with other programs? Timings taken meanwhile say less."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

#: From this many cores on, busy with other programs, a machine is called busy.
LOADED = 0.25


class Snapshot(NamedTuple):
    """The cores this process may use, the seconds they have been busy, the seconds this
    process has been running on them, and the time."""

    cores: int
    busy_s: float | None
    ours_s: float
    now_s: float


def snapshot(children: bool = False) -> Snapshot:
    """The state of the machine now. children: processes that this one started and that have ended
    count as part of it, by the system's coarser clock."""
    import psutil

    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    cores = psutil.cpu_times(percpu=True)
    if allowed is not None and max(allowed) < len(cores):
        cores = [cores[core] for core in allowed]
    idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    # The time of a virtual machine's guest is also counted as user time.
    guest = sum(getattr(core, "guest", 0.0) + getattr(core, "guest_nice", 0.0) for core in cores)
    busy_s = sum(map(sum, cores)) - idle - guest if cores else None
    ours_s = sum(os.times()[:4]) if children else time.process_time()
    return Snapshot(len(cores) or (os.cpu_count() or 1), busy_s, ours_s, time.perf_counter())


def cores_elsewhere(begin: Snapshot, end: Snapshot) -> float | None:
    """How many cores were busy with other programs in between, on average; None if the system does
    not tell or the time was too short for its clock, which ticks a hundred times a second."""
    passed_s = end.now_s - begin.now_s
    if begin.busy_s is None or end.busy_s is None or passed_s < 0.1:
        return None
    others_s = end.busy_s - begin.busy_s - (end.ours_s - begin.ours_s)
    return min(max(others_s / passed_s, 0.0), float(begin.cores))
