"""Lower bounds on the duration of a run without one of its causes of lost time.

A run takes no less than its critical path (`critical_path.longest`, without the waits, the copies,
... in question), than the work of a place divided by its workers, and than the copies of a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from d2lmini.profiler.critical_path import Walk
from d2lmini.profiler.idle_attribution import UNKNOWN_US, IdleAttribution, WorkerGroup


class LowerBounds:
    """Lower bounds on the time of a run; `alone_ns`: duration of each operation when alone."""

    def __init__(self, blame: IdleAttribution, alone_ns: Sequence[float]):
        self.blame = blame
        self.trace = blame.trace
        self.alone_ns = alone_ns
        self.walk = Walk(blame.trace)
        places: dict[str, list[int]] = {}
        for operation in blame.trace.operations:
            if not operation.inline:
                places.setdefault(blame.places[operation.number - 1], []).append(
                    operation.number - 1
                )
        self.places = places

    def without(self, cause: str) -> float:
        """Lower bound in ns, without `cause`."""
        durations = list(self.walk.durations)
        if cause == "transfer":
            for operation in self.trace.operations:
                if operation.is_copy:
                    durations[operation.number - 1] = 0.0
        elif cause == "contention":
            durations = list(self.alone_ns)
        elif cause == "imbalance":
            for group in self.blame.groups:
                _set_mean_durations(group, durations)
        path_ns = self.walk.run(
            waits=cause != "waits",
            issuing=cause != "issuing",
            order=cause != "dependency",
            durations=durations,
        )
        return max(path_ns, self._load(durations, more=cause == "workers"))

    def _load(self, durations: Sequence[float], more: bool) -> float:
        """The largest busy time of one place's workers, or of a link; `more`: with one CPU worker
        for each core."""
        loads = {place: sum(durations[i] for i in own) for place, own in self.places.items()}
        for group in self.blame.groups:
            for place in group.begins:
                n = sum(slot.place == place for slot in group.slots)
                if place in loads:
                    loads[place] /= n + (self.blame.spare(group) if more else 0)
        return max(loads.values(), default=0.0)


def _set_mean_durations(group: WorkerGroup, durations: list[float]) -> None:
    """Give every operation of `group` the duration it has at the place where operations of its name
    are fastest, and limit each place to its share of the work."""
    if len(group.begins) < 2:
        return
    took: dict[str, dict[str, list[int]]] = {}
    for operation in group.operations:
        took.setdefault(operation.name, {}).setdefault(operation.place, []).append(operation.run_ns)
    speed = {}
    for name, places in took.items():
        means = {place: mean(runs) or 1 for place, runs in places.items()}
        for place, own in means.items():
            speed[name, place] = min(means.values()) / own
    loads = dict.fromkeys(group.begins, 0.0)
    slots = dict.fromkeys(group.begins, 0)
    for slot in group.slots:
        slots[slot.place] += 1
    for operation in group.operations:
        durations[operation.number - 1] *= speed[operation.name, operation.place]
        loads[operation.place] += durations[operation.number - 1]
    share = sum(loads.values()) / len(group.slots)
    for operation in group.operations:
        load = loads[operation.place] / slots[operation.place]
        if load > share:
            durations[operation.number - 1] *= share / load


def alone(blame: IdleAttribution) -> tuple[list[float], str]:
    """The duration of each operation without contention, in ns, and the quality of that estimate.

    Operations are equal if they have the same name, place and predicted time. The duration is the
    median of the equal operations that ran alone, if there are three; else the shortest of five or
    more. An operation that ran alone, and one without equals, keeps its own duration. A large
    operation that the workers of its place share when alone may take as many times longer when they
    have other work.
    """
    found: list[float] = [operation.run_ns for operation in blame.trace.operations]
    ran = sorted(
        (e for g in blame.groups for e in g.operations), key=lambda operation: operation.began_ns
    )
    beside: set[int] = set()
    latest = None
    for operation in ran:
        if latest is not None and latest.ended_ns > operation.began_ns:
            beside.update((latest.number, operation.number))
        if latest is None or operation.ended_ns > latest.ended_ns:
            latest = operation
    equal: dict[tuple[str, str, float], list[int]] = {}
    for operation in ran:
        if operation.predicted_us < UNKNOWN_US:
            key = (operation.name, blame.places[operation.number - 1], operation.predicted_us)
            equal.setdefault(key, []).append(operation.number)
    known = shortest = 0
    base: float
    for numbers in equal.values():
        by_itself = [found[k - 1] for k in numbers if k not in beside]
        if len(by_itself) >= 3:
            base = median(by_itself)
            known += len(numbers)
        elif len(numbers) >= 5:
            base = min(found[k - 1] for k in numbers)
            shortest += len(numbers)
        else:
            continue
        operation = blame.trace.operations[numbers[0] - 1]
        if blame.is_cut(operation):
            base *= blame.slots_at(operation)
        for k in numbers:
            if k in beside:
                found[k - 1] = min(found[k - 1], base)
    sure = (
        f"an estimate: {known} of {len(ran)} operations have equals that ran alone, {shortest} are "
        "measured by the shortest of their equals (too much, if times vary by themselves), of the "
        "others nothing is known"
    )
    return found, sure


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
