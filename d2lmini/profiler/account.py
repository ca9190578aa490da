"""Account of the wall time: its parts by cause, and what the removal of each cause would save.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.account())

Each worker of the places that computed is a *slot*, busy or idle at every instant; `blame` finds
the cause of idle time. All slots share an instant equally, so that the parts sum to the wall time.
If both the CPU and GPUs computed, each group is weighted by the busy time of its slots, until its
last operation ends: long idle times of a worker with almost no work are not a loss.

work         slots computed: operations, including their pieces on idle workers
waits        the program waited, and so had not issued an operation that could have run
issuing      the program ran the short Python from one operation to the next; includes the hand-over
             of an operation to a worker
program      the program ran code of its own, and issued nothing (`own_time`)
dependency   the next operation needed the result of an operation that ran elsewhere: a chain
transfer     the next operation needed a copy between devices
imbalance    the next operation needed, or nothing was left but, the work of another device of the
             same group that had been busy since before this one became idle; at a single place,
             whose workers share one queue: only the last operation was left
workers      operations were ready, all CPU workers busy, and there were more cores: the part of the
             time that more workers would have saved
preempted, gc, blocked    operations, or the program between them, were off the CPU: see
             `profiler.evidence`. The lines of the program are those between which the time passed
unexplained  time off the CPU of which the cause is not known, and the engine's own time between the
             end of an operation's dependencies and its readiness

What the removal of a cause would save is predicted by a replay of the run without that cause
(`without`), compared with the replay of the run as it was, and is no more than physically
possible. It is exact within `engine.stepped()`. Elsewhere it does not know what operations do to
one another, and counts only if it is larger than the error of the replay of the run as it was. The
cause that surely saves most comes first, then those that took most time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import TYPE_CHECKING

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.event_graph import computing_threads, work_and_chain
from d2lmini.profiler.evidence import Intervals, OffCpu
from d2lmini.profiler.idle_attribution import IdleAttribution, WorkerGroup
from d2lmini.profiler.own_time import Between
from d2lmini.profiler.records import Operation, Wait, begin_of
from d2lmini.profiler.replay import Conditions, OwnTime, Prediction, Recording

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: The parts, as in the table above.
CAUSES = (
    "work", "waits", "issuing", "program", "dependency", "transfer", "imbalance", "workers",
    *OffCpu._fields,
)  # fmt: skip

#: What a replay leaves out.
_ADVICE = {
    "waits": "if the program did not wait there",
    "issuing": "if issuing took no time, as with fewer and larger operations",
    "dependency": "if nothing came after anything else",
    "transfer": "if copies took no time",
    "imbalance": "if the work were spread evenly over places that are equally fast",
    "workers": "with a worker for every core",
    "preempted": "if no other thread or program had taken the cores",
    "gc": "without garbage collection",
    "blocked": "if no thread slept, read files or waited for a lock",
}


@dataclass(frozen=True)
class Part:
    """One cause: its ns of the wall time, by line with the largest first, and what its removal
    would save, as predicted by a replay with an error of `error_ns`."""

    cause: str
    ns: float
    lines: tuple[tuple[str, float], ...]
    saves: Prediction
    error_ns: float
    sentence: str

    @property
    def saves_ns(self) -> float:
        """The middle of `saves`."""
        return self.saves.ns

    @property
    def gain_ns(self) -> float:
        """What the removal surely saves: the lower end of `saves`, if that is beyond the error."""
        return self.saves.low_ns if self.saves.low_ns > self.error_ns else 0.0

    def __str__(self) -> str:
        if self.gain_ns or not (self.saves.high_ns or self.error_ns):
            return str(self.saves)
        return f"at most {max(self.saves.high_ns, self.error_ns) / 1e6:.2f} ms"


class Account:
    """The parts of `wall_ns`; they sum to it.

    parts    cause -> Part, all of CAUSES
    causes   those that lost time, or on a virtual clock whose removal saves time, the most
             important first; neither "work" nor "unexplained"
    """

    def __init__(self, wall_ns: int, parts: dict[str, Part]):
        self.wall_ns = wall_ns
        self.parts = parts
        lost = [p for p in parts.values() if p.cause not in ("work", "unexplained")
                and (p.ns > 0 or p.saves.low_ns > 0)]  # fmt: skip
        self.causes = [p.cause for p in sorted(lost, key=_weight, reverse=True)]

    @property
    def first(self) -> Part | None:
        """The most important cause, if any time was lost."""
        return self.parts[self.causes[0]] if self.causes else None

    def __getitem__(self, cause: str) -> Part:
        return self.parts[cause]

    def __str__(self) -> str:
        wall_ns = self.wall_ns or 1
        rows = [f"{'part':<13}{'time':>13}{'share':>9}  saves, by replay"]
        for cause in ("work", *self.causes, "unexplained"):
            part = self.parts[cause]
            name = "not explained" if cause == "unexplained" else cause
            row = f"{name:<13}{part.ns / 1e6:>10.2f} ms{100 * part.ns / wall_ns:>7.1f} %"
            if cause in _ADVICE:
                row += f"{part!s:>18}"
            rows.append(row)
        rows.append(f"{'wall time':<13}{self.wall_ns / 1e6:>10.2f} ms{100.0:>7.1f} %")
        for cause in self.causes[:3]:
            part = self.parts[cause]
            rows.append(f"{cause}: {part.sentence}")
            rows += [f"{ns / 1e6:>10.2f} ms  {where}" for where, ns in part.lines]
        return "\n".join(rows)

    def __repr__(self) -> str:
        first = f", first of all {self.causes[0]}" if self.causes else ""
        return f"<account of {self.wall_ns / 1e6:.1f} ms{first}>"


def _weight(part: Part) -> tuple[float, float]:
    """The sort key of causes. "dependency" follows its equals, since it is hardest to remove."""
    return part.gain_ns * (0.9 if part.cause == "dependency" else 1.0), part.ns


def account_of(trace: Trace, cores: int | None = None) -> Account:
    """See the module. cores: of the recording machine; None: those of this process."""
    return _AccountBuilder(trace, cores or count_cores()).account()


class _AccountBuilder:
    """The sums during the computation."""

    def __init__(self, trace: Trace, cores: int):
        self.trace = trace
        self.blame = IdleAttribution(trace, cores)
        self.ns = dict.fromkeys(CAUSES, 0.0)
        self.lines: dict[str, dict[str, float]] = {c: {} for c in CAUSES}
        self.where = cache(_describe)
        self.off_cpu = self.blame.off_cpu

    def account(self) -> Account:
        trace, blame = self.trace, self.blame
        rates = _Rates(blame.begin_ns, blame.groups)
        for group in blame.groups:
            self._enter_group(group, rates)
        done_ns = max([trace.begin_ns, *(group.end_ns for group in blame.groups)])
        steps: list[Operation | Wait] = [*trace.operations, *trace.waits]
        last = max(steps, key=begin_of, default=None)
        thread, site = (last.thread, last.site) if last else (trace.thread or "main", None)
        for cause, place, begin, end in blame.front(thread, site, done_ns, trace.end_ns):
            self._add(cause, place, end - begin)
        wall_ns = trace.end_ns - trace.begin_ns
        recording = Recording(trace)
        recorded_ns = recording.simulate(recording.recorded).ended
        error_ns = abs(recorded_ns - wall_ns)
        parts = {}
        for cause in CAUSES:
            saves = Prediction(0.0, 0.0)
            changed = None
            if cause in _ADVICE and (self.ns[cause] > 0 or trace.engine_kind == "stepped"):
                changed = without(cause, recording.recorded, blame)
            if changed is not None:
                saves = recording.foresee(changed)[1].less_than(recorded_ns)
                most = max(0.0, recorded_ns - least_ns(blame, changed))
                saves = Prediction(min(saves.low_ns, most), min(saves.high_ns, most))
            parts[cause] = self._part(cause, saves, error_ns, wall_ns)
        return Account(wall_ns, parts)

    def _enter_group(self, group: WorkerGroup, rates: _Rates) -> None:
        rate = rates.of(group)
        few = time_saved_by(group, self.blame.spare(group))
        for slot in group.slots:
            for run in slot.runs:
                self._enter_run(run, rate(run.began_ns, run.ended_ns), few)
            for cause, place, begin, end in self.blame.idle(group, slot):
                self._add(cause, place, rate(begin, end))

    def _enter_run(self, operation: Operation, ns: float, few: dict[int, float]) -> None:
        """A slot was busy: the operation computed, or was off the CPU."""
        work = ns
        if few and not operation.inline and operation.run_ns:
            lost = ns * (few[operation.ended_ns] - few[operation.began_ns]) / operation.run_ns
            self._add("workers", operation.site, lost)
            work -= lost
        scale = work / (operation.run_ns or 1)
        for cause, off_ns in self.off_cpu.get(operation.number, OffCpu())._asdict().items():
            self._add(cause, operation.site, scale * off_ns)
            work -= scale * off_ns
        self._add("work", operation.site, work)

    def _add(self, cause: str, place: Between | Site | None, ns: float) -> None:
        if ns <= 0:
            return
        self.ns[cause] += ns
        where = self.where(place)
        self.lines[cause][where] = self.lines[cause].get(where, 0.0) + ns

    def _part(self, cause: str, saves: Prediction, error_ns: float, wall_ns: int) -> Part:
        lines = tuple(sorted(self.lines[cause].items(), key=lambda line: -line[1])[:3])
        part = Part(cause, self.ns[cause], lines, saves, error_ns, "")
        sentence = "no saving is sure"
        if cause == "program":
            sentence = "the program's own code ran; no operation was issued"
        elif part.gain_ns:
            share = 100 * saves.ns / (wall_ns or 1)
            sentence = f"the replay takes {saves} ({share:.0f} %) less {_ADVICE[cause]}"
        return replace(part, sentence=sentence)


def _describe(place: Between | Site | None) -> str:
    return str(place) if isinstance(place, Between) else callsite.describe(place)


class _Rates:
    """The fraction of an instant for each slot of a group. All slots together count 1; each group
    is weighted by the busy time of its slots until the group is done."""

    def __init__(self, begin_ns: int, groups: Iterable[WorkerGroup]):
        self.begin_ns = begin_ns
        self.groups = sorted(groups, key=lambda group: group.end_ns)

    def of(self, group: WorkerGroup) -> Callable[[int, int], float]:
        """rate(a, b): the ns of wall time that a slot of `group` accounts for from a to b."""
        spans, low = [], self.begin_ns
        for k, other in enumerate(self.groups):
            weights = [group.load_ns / len(group.slots) + 1 for group in self.groups[k:]]
            own = group.load_ns / len(group.slots) + 1
            spans.append((low, other.end_ns, own / sum(weights) / len(group.slots)))
            low = other.end_ns
            if other is group:
                break

        (_, first_ns, share), *more = spans
        if not more:
            return lambda a, b: (b - a) * share

        def rate(a: int, b: int) -> float:
            if b <= first_ns:
                return (b - a) * share
            return sum(max(0, min(b, y) - max(a, x)) * span for x, y, span in spans)

        return rate


# -- without a cause -------------------------------------------------------------------------------


def without(cause: str, recorded: Conditions, blame: IdleAttribution) -> Conditions | None:
    """The conditions of the run without `cause`, and of nothing else: without the waits, with
    copies that take no time, and so on; None if there is nothing to remove."""
    trace, changed = blame.trace, recorded
    if cause in OffCpu._fields:
        run_ns = list(recorded.run_ns)
        for number, parts in blame.off_cpu.items():
            run_ns[number - 1] -= getattr(parts, cause)
        changed = replace(recorded, run_ns=run_ns, own_ns=_own_time_without(blame, {cause}))
    elif cause == "waits" and trace.waits:
        changed = replace(recorded, dropped=frozenset(range(len(trace.waits))))
    elif cause == "issuing":
        changed = replace(recorded, own_ns=_own_time_without(blame, {"issuing", "waits"}))
    elif cause == "dependency":
        changed = replace(recorded, order=False)
    elif cause == "transfer":
        run_ns = [0 if e.is_copy else e.run_ns for e in trace.operations]
        changed = replace(recorded, run_ns=run_ns)
    else:
        for group in blame.groups:
            if cause == "imbalance":
                changed = _spread_evenly(group, changed)
            elif cause == "workers" and blame.spare(group):
                n = len(group.slots) + blame.spare(group)
                changed = replace(changed, workers={**changed.workers, "cpu": n})
    return None if changed == recorded else changed


def _own_time_without(blame: IdleAttribution, causes: Container[str]) -> OwnTime:
    """What is left of a thread's own time."""

    @cache
    def removed(thread: str) -> Intervals:
        segments = blame.front(thread, None, blame.begin_ns, blame.end_ns)
        return Intervals((s.begin_ns, s.end_ns, 1.0) for s in segments if s.cause in causes)

    return lambda thread, begin, end: end - begin - removed(thread).within(begin, end)


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
