"""What if? Re-run a recorded program on a virtual clock with changed conditions.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.replay(workers=4), trace.replay(without_wait_at="train.py:12"))

The program's threads issue the same operations in the same order, with the host's own time between
them as recorded. Waits get new durations: a wait ends when the awaited operation is done.
Operations have their recorded durations and hand-overs and run by the engine's rules
(`simulation`), after their dependencies. Conditions:

    workers, devices   the lanes; copies between contexts mapped to one device take no time
    link_gb_s          the part of a copy's time that is proportional to its bytes (`rates`)
    priorities         the order in which workers take ready operations
    large operations   idle workers take pieces of operations that were split in the trace (`rates`)
    inline operations  stay on the calling thread unless their inputs are pending; then a worker's
    back-pressure      if a push had to pause: the bound is the largest pending sum at a resumption

Within `engine.stepped()` the prediction is exact: more workers there behave as predicted.

Not in the trace, so not predicted: the slowdown of operations that run side by side and share
memory, caches or the interpreter; a different split of batches for other devices; waits outside the
engine, as for the end of a thread, which keep their recorded length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from statistics import median
from typing import TYPE_CHECKING

from d2lmini.base import MXNetError
from d2lmini.context import Context, gpu
from d2lmini.profiler import rates
from d2lmini.profiler.program import bound_of, find_nested_pushes, front_ends
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.simulation import SimulatedTask, Simulation

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


def replay(
    trace: Trace,
    workers: int | Mapping[str, int] | None = None,
    devices: int | None = None,
    link_gb_s: float | None = None,
    without_wait_at: str | int | Iterable[str | int] | None = None,
    priorities: Callable[[Operation], int] | None = None,
) -> Trace:
    """The predicted trace; see `Trace.replay` for the arguments."""
    threads = _threads(trace, workers)
    place_of = _places(trace, devices)
    dropped = _find_dropped(trace, without_wait_at)
    if link_gb_s is not None and not link_gb_s > 0:
        raise MXNetError(f"replay: link_gb_s is a rate in GB/s above 0, got {link_gb_s!r}")

    new = [copy(operation) for operation in trace.operations]
    for array in new:
        array.ctx = place_of.get(array.ctx, array.ctx)
        if priorities is not None:
            array.priority = priorities(array)
    lanes = dict(threads)
    for old, array in zip(trace.operations, new, strict=True):
        lanes.setdefault(array.place, threads[old.place])
    jobs = _jobs(trace, new, link_gb_s)
    parents = find_nested_pushes(trace)
    for number, parent in parents.items():
        after = trace[number].pushed_ns - trace[parent].began_ns
        jobs[parent - 1].children.append((after, jobs[number - 1]))
    steps, later = front_ends(trace, parents, dropped)
    bound = bound_of(trace, jobs)
    run = Simulation(jobs, steps, lanes, bound, later)
    length = run.run()

    predicted = type(trace)()
    predicted.recorded = trace
    predicted.operations = new
    predicted.workers = lanes
    predicted.blas_threads = trace.blas_threads
    predicted.begin_ns = trace.begin_ns
    predicted.left_ns = trace.begin_ns + run.left
    predicted.end_ns = trace.begin_ns + length
    _enter_times(trace, predicted, jobs)
    _enter_waits(predicted, run)
    return predicted


# -- arguments -------------------------------------------------------------------------------------


def _threads(trace: Trace, workers: int | Mapping[str, int] | None) -> dict[str, int]:
    """The number of threads for each lane, as recorded or as requested."""
    threads = {"cpu": 1, **trace.workers}
    for place in {operation.place for operation in trace.operations}:
        threads.setdefault(place, threads["cpu"])
    asked = {"cpu": workers} if isinstance(workers, int) else dict(workers or {})
    for place, n in asked.items():
        if place not in threads:
            known = ", ".join(map(repr, threads))
            raise MXNetError(f"replay: workers of {place!r}: there is no such lane, but {known}")
        if not isinstance(n, int) or n < 1:
            raise MXNetError(f"replay: workers of {place!r} are 1 or more, got {n!r}")
    return {**threads, **asked}


def _places(trace: Trace, devices: int | None) -> dict[Context, Context]:
    """The mapping of recorded contexts to devices, round robin."""
    if devices is None:
        return {}
    if not isinstance(devices, int) or devices < 1:
        raise MXNetError(f"replay: devices are 1 or more, got {devices!r}")
    contexts = {operation.ctx for operation in trace.operations if not operation.ctx.is_cpu}
    if not contexts:
        raise MXNetError(
            f"replay: devices={devices}, but no operation ran on a GPU; for the CPU ask for workers"
        )
    return {ctx: gpu(ctx.device_id % devices) for ctx in contexts}


def _find_dropped(trace: Trace, at: str | int | Iterable[str | int] | None) -> set[int]:
    """The waits to leave out, as positions in trace.waits."""
    if at is None:
        return set()
    lines = [at] if isinstance(at, (str, int)) else list(at)
    found: set[int] = set()
    where = {wait.site: wait.where for wait in trace.waits}
    for line in lines:
        here = {i for i, wait in enumerate(trace.waits) if _is_at(where[wait.site], line)}
        if not here:
            known = "\n".join(f"    {text}" for text in sorted({*where.values()})) or "    nowhere"
            raise MXNetError(f"replay: no wait at {line!r}; the program waited at\n{known}")
        found |= here
    return found


def _is_at(where: str, line: str | int) -> bool:
    """True if `line` (12, "train.py:12", ...) names "src/train.py:12: l.asnumpy()"."""
    place = where.partition(": ")[0]
    if isinstance(line, int):
        return place.endswith((f":{line}", f"line {line}"))
    return place == line or place.replace("\\", "/").endswith("/" + line)


# -- inputs of the simulation ----------------------------------------------------------------------


def _jobs(trace: Trace, new: list[Operation], link_gb_s: float | None) -> list[SimulatedTask]:
    """The operations as jobs, with durations under the new conditions."""
    taken = rates.hand_overs(trace.operations)
    usual = round(median(taken.values())) if taken else 0
    shares = rates.shares(trace)
    on_link: dict[str, list[Operation]] = defaultdict(list)
    for old in trace.operations:
        if old.is_copy:
            on_link[old.place].append(old)
    links = {place: rates.fit(copies) for place, copies in on_link.items()} if link_gb_s else {}
    jobs = []
    for old, operation in zip(trace.operations, new, strict=True):
        job = SimulatedTask(
            operation.number, operation.place, old.run_ns, taken.get(operation.number, usual)
        )
        job.priority = operation.priority
        job.inline = old.inline
        job.share = shares.get(operation.number)
        if old.is_copy and _stays(trace, new, operation.number):
            job.run_ns = 0
        elif link_gb_s is not None and old.is_copy:
            job.run_ns = links[old.place].at(old.run_ns, old.nbytes, link_gb_s)
        if old.inline:
            job.hand_over_ns = max(0, old.began_ns - old.pushed_ns)
        jobs.append(job)
    for job in jobs:
        needs, room = trace.needs(job.number), trace.makes_room(job.number)
        job.follows(jobs[number - 1] for number in (*needs, *room))
    return jobs


def _stays(trace: Trace, new: list[Operation], number: int) -> bool:
    """True if the two devices of a copy are mapped to the same device."""
    here = new[number - 1].ctx
    return here != trace.operations[number - 1].ctx and any(
        new[before - 1].ctx == here for before in trace.needs(number)
    )


# -- results of the simulation ---------------------------------------------------------------------


def _enter_times(trace: Trace, predicted: Trace, jobs: list[SimulatedTask]) -> None:
    """Write times and places into the operations."""
    begin = predicted.begin_ns
    names = _names(predicted)
    for operation, job in zip(predicted.operations, jobs, strict=True):
        ran = operation.began_ns != 0
        inline = job.worker < 0
        operation.pushed_ns = begin + job.pushed_ns
        operation.ready_ns = begin + job.ready_ns
        operation.began_ns = begin + job.began_ns if ran else 0
        operation.ended_ns = begin + job.ended_ns
        if job.share is not None:
            cut_ns = max(0, operation.run_ns - round(job.share.alone_ns))
            predicted.shared[operation.number] = trace.shared[operation.number]._replace(ns=cut_ns)
        if ran:
            operation.worker = "caller" if inline else names(operation.place, job.worker)


def _names(trace: Trace) -> Callable[[str, int], str]:
    """(place, index) -> the name of a worker: recorded names as far as they go."""
    known: dict[str, dict[str, None]] = defaultdict(dict)
    for operation in trace.operations:
        if operation.worker and not operation.inline:
            known[operation.place][operation.worker] = None
    names = {place: list(workers) for place, workers in known.items()}

    def name(place: str, i: int) -> str:
        mine = names.setdefault(place, [])
        while len(mine) <= i:
            mine.append(f"{place} worker {len(mine) + 1}")
        return mine[i]

    return name


def _enter_waits(predicted: Trace, run: Simulation) -> None:
    """Record the predicted waits."""
    begin = predicted.begin_ns
    for wait, thread, pushed, began, ended in run.waits:
        if wait is None:
            wait = Wait("backpressure", None, 0, pushed, None, thread, 0, 0)
        predicted.waits.append(
            wait._replace(pushed=pushed, begin_ns=begin + began, end_ns=begin + ended)
        )
    predicted.waits.sort(key=lambda wait: wait.end_ns)
