"""What the recorded operations would do without a cause of lost time, as conditions of a replay.

`without(cause)` changes what the cause consists of and nothing else: leaves out the waits, lets
copies take no time, and so on. The replay of the trace under these conditions (`replay.Recording`)
says what the removal saves; not more than down to `least_ns`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median

from d2lmini.profiler.cpu_time import Intervals, OffCpu, Span
from d2lmini.profiler.idle_attribution import UNKNOWN_US, IdleAttribution, WorkerGroup
from d2lmini.profiler.replay import Conditions
from d2lmini.profiler.schedule_bounds import computing_threads, work_and_chain


def without(
    cause: str,
    recorded: Conditions,
    blame: IdleAttribution,
    alone_ns: Sequence[float],
    off_cpu: Mapping[int, OffCpu],
) -> Conditions | None:
    """The conditions of the run without `cause`; None if there is nothing to remove. `alone_ns`:
    the CPU time of each operation when alone; `off_cpu`: the rest of its duration."""
    trace, changed = blame.trace, recorded
    if cause in OffCpu._fields:
        run_ns = list(recorded.run_ns)
        for number, parts in off_cpu.items():
            run_ns[number - 1] -= getattr(parts, cause)
        pauses = recorded.pauses and (cause != "gc" or not trace.cpu.pauses)
        changed = replace(recorded, run_ns=run_ns, pauses=pauses, lost=_spans(blame, {cause}))
    elif cause == "waits" and trace.waits:
        changed = replace(recorded, dropped=frozenset(range(len(trace.waits))))
    elif cause == "issuing":
        kept = _spans(blame, {"program", *OffCpu._fields} - {"gc"})
        changed = replace(recorded, issuing=0, kept=kept)
    elif cause == "dependency":
        changed = replace(recorded, order=False)
    elif cause == "transfer":
        run_ns = [0 if e.is_copy else e.run_ns for e in trace.operations]
        changed = replace(recorded, run_ns=run_ns)
    elif cause == "contention":
        off_ns = [off_cpu[e.number].ns if e.number in off_cpu else 0 for e in trace.operations]
        run_ns = [round(ns + more) for ns, more in zip(alone_ns, off_ns)]
        changed = replace(recorded, run_ns=run_ns)
    else:
        for group in blame.groups:
            if cause == "imbalance":
                changed = _spread_evenly(group, changed)
            elif cause == "workers" and blame.spare(group):
                n = len(group.slots) + blame.spare(group)
                changed = replace(changed, workers={**changed.workers, "cpu": n})
    return None if changed == recorded else changed


def _spans(blame: IdleAttribution, causes: Container[str]) -> tuple[Span, ...]:
    """The times of the program's threads, and of workers between operations, with these causes."""
    found = [
        Span(thread, segment.begin_ns, segment.end_ns, segment.cause)
        for thread, own in blame.own.items()
        for segment in own
    ]
    found += [span for span in blame.trace.cpu.spans if span.thread not in blame.own]
    return tuple(span for span in found if span.cause in causes)


def least_ns(blame: IdleAttribution, conditions: Conditions) -> float:
    """What no run under these conditions beats: the work of a place on all that compute there, and
    the longest chain of operations."""
    trace, c = blame.trace, conditions
    workers = computing_threads(trace, c.workers)
    shares, longest = work_and_chain(trace, workers, c.places, c.run_ns, c.order)
    return max([longest, *shares.values()])


def _spread_evenly(group: WorkerGroup, recorded: Conditions) -> Conditions:
    """Several places become one, where each operation takes as long as at the place that is the
    fastest for operations of its name. At a single place, the workers share the time in which the
    last operation still runs and all others have ended."""
    run_ns = list(recorded.run_ns)
    if len(group.begins) > 1:
        places = list(recorded.places)
        speed = _speeds(group)
        for operation in group.operations:
            run_ns[operation.number - 1] = round(
                operation.run_ns * speed[operation.name, operation.place]
            )
            places[operation.number - 1] = group.name
        workers = {**recorded.workers, group.name: len(group.slots)}
        return replace(recorded, places=places, run_ns=run_ns, workers=workers)
    last = group.last
    others_ns = max((e.ended_ns for e in group.operations if e is not last), default=0)
    if last.began_ns < others_ns:
        alone_ns = last.ended_ns - others_ns
        run_ns[last.number - 1] -= round(alone_ns * (1 - 1 / len(group.slots)))
    return replace(recorded, run_ns=run_ns)


def _speeds(group: WorkerGroup) -> dict[tuple[str, str], float]:
    """(name, place) -> mean duration at the fastest place, over that at this one."""
    took: dict[str, dict[str, list[int]]] = {}
    for operation in group.operations:
        took.setdefault(operation.name, {}).setdefault(operation.place, []).append(operation.run_ns)
    speed = {}
    for name, places in took.items():
        means = {place: mean(runs) or 1 for place, runs in places.items()}
        for place, own in means.items():
            speed[name, place] = min(means.values()) / own
    return speed


def alone(blame: IdleAttribution, off_cpu: Mapping[int, OffCpu]) -> tuple[list[float], str]:
    """The duration of each operation without contention, in ns, and how many are known. Time off
    the CPU is left out throughout.

    Operations are equal if they have the same name, place and predicted time. The duration is the
    median of the equal operations that ran alone, if there are three. Another operation can have
    lost no more than the time in which it ran beside others; if there are not three, nothing. A
    large operation that the workers of its place share when alone may take as many times longer
    when they have other work.
    """
    found: list[float] = [
        e.run_ns - (off_cpu[e.number].ns if e.number in off_cpu else 0)
        for e in blame.trace.operations
    ]
    ran = [operation for group in blame.groups for operation in group.operations]
    together = Intervals((e.began_ns, e.ended_ns, 1.0) for e in ran)
    beside = {e.number: together.within(e.began_ns, e.ended_ns) - e.run_ns for e in ran}
    equal: dict[tuple[str, str, float], list[int]] = {}
    for e in ran:
        if e.predicted_us < UNKNOWN_US:
            key = (e.name, blame.places[e.number - 1], e.predicted_us)
            equal.setdefault(key, []).append(e.number)
    known = 0
    for numbers in equal.values():
        by_itself = [found[k - 1] for k in numbers if beside[k] < 1]
        if len(by_itself) < 3:
            continue
        known += len(numbers)
        base = median(by_itself)
        operation = blame.trace.operations[numbers[0] - 1]
        if blame.is_cut(operation):
            base *= blame.slots_at(operation)
        for k in numbers:
            if found[k - 1] > base:
                found[k - 1] = max(base, found[k - 1] - max(0.0, beside[k]))
    return found, f"{known} of {len(ran)} operations have equals that ran alone"


def time_saved_by(group: WorkerGroup, spare: int) -> dict[int, float]:
    """At each start and end of an operation, the ns that `spare` more workers would have saved
    until then: while all are busy and operations are ready, the number of ready operations that
    they could take, over all operations that would then run. Empty without spare workers."""
    if not spare:
        return {}
    changes: list[tuple[int, int, int]] = []  # (when, more ready, more busy)
    for operation in group.operations:
        if not operation.inline:
            ready_ns = min(operation.ready_ns or operation.began_ns, operation.began_ns)
            changes += (ready_ns, 1, 0), (operation.began_ns, -1, 1), (operation.ended_ns, 0, -1)
    changes.sort()
    saved: dict[int, float] = {}
    ready = busy = before = 0
    total = 0.0
    for when, more_ready, more_busy in changes:
        if ready > 0 and busy >= len(group.slots):
            more = min(ready, spare)
            total += (when - before) * more / (busy + more)
        saved[when] = total
        ready, busy, before = ready + more_ready, busy + more_busy, when
    return saved
