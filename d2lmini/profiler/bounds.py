"""Lower bounds on the duration of a run without one of its causes of lost time.

A run takes no less than its critical path (`critical_path.longest`, without the waits, the copies,
... in question), than the work of a place divided by its workers, and than the copies of a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from d2lmini.profiler.blame import UNKNOWN_US, Blame, Group
from d2lmini.profiler.critical_path import Walk


class Least:
    """Lower bounds on the time of a run; `alone_ns`: duration of each operation when alone."""

    def __init__(self, blame: Blame, alone_ns: Sequence[float]):
        self.blame = blame
        self.trace = blame.trace
        self.alone_ns = alone_ns
        self.walk = Walk(blame.trace)
        places: dict[str, list[int]] = {}
        for each in blame.trace.operations:
            if not each.inline:
                places.setdefault(blame.places[each.number - 1], []).append(each.number - 1)
        self.places = places

    def without(self, cause: str) -> float:
        """Lower bound in ns, without `cause`."""
        durations = list(self.walk.durations)
        if cause == "transfer":
            for each in self.trace.operations:
                if each.is_copy:
                    durations[each.number - 1] = 0.0
        elif cause == "contention":
            durations = list(self.alone_ns)
        elif cause == "imbalance":
            for group in self.blame.groups:
                _spread(group, durations)
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


def _spread(group: Group, durations: list[float]) -> None:
    """Give every operation of `group` the duration it has at the place where operations of its name
    are fastest, and limit each place to its share of the work."""
    if len(group.begins) < 2:
        return
    took: dict[str, dict[str, list[int]]] = {}
    for each in group.operations:
        took.setdefault(each.name, {}).setdefault(each.place, []).append(each.run_ns)
    speed = {}
    for name, places in took.items():
        means = {place: mean(runs) or 1 for place, runs in places.items()}
        for place, own in means.items():
            speed[name, place] = min(means.values()) / own
    loads = dict.fromkeys(group.begins, 0.0)
    slots = dict.fromkeys(group.begins, 0)
    for slot in group.slots:
        slots[slot.place] += 1
    for each in group.operations:
        durations[each.number - 1] *= speed[each.name, each.place]
        loads[each.place] += durations[each.number - 1]
    share = sum(loads.values()) / len(group.slots)
    for each in group.operations:
        load = loads[each.place] / slots[each.place]
        if load > share:
            durations[each.number - 1] *= share / load


def alone(blame: Blame) -> tuple[list[float], str]:
    """The duration of each operation without contention, in ns, and the quality of that estimate.

    Operations are equal if they have the same name, place and predicted time. The duration is the
    median of the equal operations that ran alone, if there are three; else the shortest of five or
    more. An operation that ran alone, and one without equals, keeps its own duration. A large
    operation that the workers of its place share when alone may take as many times longer when they
    have other work.
    """
    found: list[float] = [each.run_ns for each in blame.trace.operations]
    ran = sorted((e for g in blame.groups for e in g.operations), key=lambda each: each.began_ns)
    beside: set[int] = set()
    latest = None
    for each in ran:
        if latest is not None and latest.ended_ns > each.began_ns:
            beside.update((latest.number, each.number))
        if latest is None or each.ended_ns > latest.ended_ns:
            latest = each
    equal: dict[tuple[str, str, float], list[int]] = {}
    for each in ran:
        if each.predicted_us < UNKNOWN_US:
            key = (each.name, blame.places[each.number - 1], each.predicted_us)
            equal.setdefault(key, []).append(each.number)
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
        each = blame.trace.operations[numbers[0] - 1]
        if blame.is_cut(each):
            base *= blame.slots_at(each)
        for k in numbers:
            if k in beside:
                found[k - 1] = min(found[k - 1], base)
    sure = (
        f"an estimate: {known} of {len(ran)} operations have equals that ran alone, {shortest} are "
        "measured by the shortest of their equals (too much, if times vary by themselves), of the "
        "others nothing is known"
    )
    return found, sure


def saved_by_more(group: Group, spare: int) -> dict[int, float]:
    """At each start and end of an operation, the ns that `spare` more workers would have saved
    until then: while all are busy and operations are ready, the number of ready operations that
    they could take, over all operations that would then run. Empty without spare workers."""
    if not spare:
        return {}
    changes: list[tuple[int, int, int]] = []  # (when, more ready, more busy)
    for each in group.operations:
        if not each.inline:
            ready_ns = min(each.ready_ns or each.began_ns, each.began_ns)
            changes += (ready_ns, 1, 0), (each.began_ns, -1, 1), (each.ended_ns, 0, -1)
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
