"""Account of the wall time: its parts by cause, and what the removal of each cause would save.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.account())

Each worker of the places that computed is a *slot*, busy or idle at every instant. All slots share
an instant equally, so that the parts sum to the wall time. If both the CPU and GPUs computed, each
group is weighted by the busy time of its slots, until its last operation ends: long idle times of a
worker with almost no work are not a loss.

work         slots computed: operations, including their pieces on idle workers
waits        the program waited, and so had not issued an operation that could have run
issuing      the program ran the short Python from one operation to the next; includes the hand-over
             of an operation to a worker
program      the program ran code of its own, and issued nothing
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

While a slot is idle, something delays the operation X that starts there next. `IdleAttribution`
walks backward in time from the start of X, from each edge of the event graph to the one before:

    X was ready and not started           hand-over: "preempted" while its worker had no core, then
                                          "issuing"; a longer one, unless the program issues
                                          meanwhile, is "unexplained"
    X could have run but was not ready    the engine's own time: "unexplained"
    X could have run but was not pushed   what the thread that pushed X did (`own_times`)
    X's last dependency ran               a copy: "transfer"; on another device that had been busy
                                          since before the slot was idle: "imbalance"; else
                                          "dependency"
    the dependency was delayed itself     the same questions about the dependency; if it was queued
                                          behind others: "imbalance" or "workers"

until the walk reaches the instant at which the slot became idle. After the last start in a place
the walk begins at the operation of its group that ended last; if that operation has run since
before the slot was idle, it is "imbalance": nothing else was left. So every instant of every slot
has one cause and one line, and a walk visits only events within the idle time. The workers of one
place share a queue, so that work cannot be spread among them any better: a chain is "dependency".

What the removal of a cause would save is predicted by a replay of the run without that cause
(`without`), compared with the replay of the run as it was. It is exact within `engine.stepped()`.
Elsewhere it counts only if it is larger than the error of the replay of the run as it was. The
cause that surely saves most comes first, then those that took most time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.evidence import Intervals, OffCpu
from d2lmini.profiler.records import BEGAN, BEGINS, ENDED, ENDS, Operation, Wait, begin_of
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

#: The program's own code; shorter is the issuing of the next operation.
_PROGRAM_NS = 1_000_000
#: A longer hand-over is not explained by the work of handing over.
_HAND_OVER_NS = 1_000_000
#: A place counts as busy in spite of pauses of at most this, or of a quarter of the time.
_BREATH_NS = 100_000
_NEVER = 1 << 62


@dataclass(frozen=True)
class Part:
    """One cause: its ns of the wall time `wall_ns`, by line with the largest first, and what its
    removal would save, as predicted by a replay with an error of `error_ns`."""

    cause: str
    ns: float
    lines: tuple[tuple[str, float], ...]
    saves: Prediction
    error_ns: float
    wall_ns: int

    @property
    def saves_ns(self) -> float:
        """The middle of `saves`."""
        return self.saves.ns

    @property
    def gain_ns(self) -> float:
        """What the removal surely saves: the lower end of `saves`, if that is beyond the error."""
        return self.saves.low_ns if self.saves.low_ns > self.error_ns else 0.0

    @property
    def sentence(self) -> str:
        """What the replay says."""
        if self.cause == "program":
            return "the program's own code ran; no operation was issued"
        if not self.gain_ns:
            return "no saving is sure"
        share = 100 * self.saves.ns / (self.wall_ns or 1)
        return f"the replay takes {self.saves} ({share:.0f} %) less {_ADVICE[self.cause]}"

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

    def __getitem__(self, cause: str) -> Part:
        return self.parts[cause]

    def __str__(self) -> str:
        rows = [f"{'part':<13}{'time':>13}{'share':>9}  saves, by replay"]
        for cause in ("work", *self.causes, "unexplained"):
            part = self.parts[cause]
            name = "not explained" if cause == "unexplained" else cause
            saves = f"{part!s:>18}" if cause in _ADVICE else ""
            share = 100 * part.ns / (self.wall_ns or 1)
            rows.append(f"{name:<13}{part.ns / 1e6:>10.2f} ms{share:>7.1f} %{saves}")
        rows.append(f"{'wall time':<13}{self.wall_ns / 1e6:>10.2f} ms{100.0:>7.1f} %")
        for cause in self.causes[:3]:
            part = self.parts[cause]
            rows.append(f"{cause}: {part.sentence}")
            rows += [f"{ns / 1e6:>10.2f} ms  {where}" for where, ns in part.lines]
        return "\n".join(rows)

    __repr__ = __str__


def _weight(part: Part) -> tuple[float, float]:
    """The sort key of causes. "dependency" follows its equals, since it is hardest to remove."""
    return part.gain_ns * (0.9 if part.cause == "dependency" else 1.0), part.ns


def account_of(trace: Trace, cores: int | None = None) -> Account:
    """The wall time as a sum of parts by cause; see `profiler.account`. `cores` of the machine, by
    default those of the recording process."""
    blame = IdleAttribution(trace, cores or trace.cores or count_cores())
    lines: dict[str, dict[str, float]] = {cause: defaultdict(float) for cause in CAUSES}
    describe = cache(
        lambda place: str(place) if isinstance(place, Between) else callsite.describe(place)
    )
    for cause, place, ns in blame.parts():
        if ns > 0:
            lines[cause][describe(place)] += ns
    wall_ns = trace.end_ns - trace.begin_ns
    recording = Recording(trace)
    parts = {}
    for cause, by_line in lines.items():
        ns, saves = sum(by_line.values()), Prediction(0.0, 0.0)
        if cause in _ADVICE and (ns > 0 or trace.engine_kind == "stepped"):
            changed = without(cause, recording.recorded, blame)
            saves = recording.foresee(changed)[1].less_than(recording.again_ns)
        largest = tuple(sorted(by_line.items(), key=lambda line: -line[1])[:3])
        parts[cause] = Part(cause, ns, largest, saves, abs(recording.again_ns - wall_ns), wall_ns)
    return Account(wall_ns, parts)


# -- what threads did between operations -----------------------------------------------------------


class Between(NamedTuple):
    """The place of the program between two lines: that of the last operation or wait, None at the
    start, and that of the next, None at the end."""

    last: Site | None
    next: Site | None

    @property
    def is_line(self) -> bool:
        """Is it within one line, or from one turn of a loop to the next?"""
        return callsite.same_line(self.last) == callsite.same_line(self.next)

    def __str__(self) -> str:
        last, following = callsite.describe(self.last), callsite.describe(self.next)
        if self.last is None:
            return "outside of the engine" if self.next is None else following
        if self.next is None:
            return f"after {last}"
        if self.is_line:
            return f"between two operations of {following}"
        return f"between {last.partition(': ')[0]} and {following}"


Place = Between | Site | None
Share = tuple[str, Place, float]  # a cause, and so many ns of the wall time


class Segment(NamedTuple):
    """A time for which there is one cause, and the place of the program."""

    cause: str
    place: Place
    begin_ns: int
    end_ns: int


def own_times(trace: Trace, lost: dict[str, list[Segment]]) -> dict[str, list[Segment]]:
    """The segments of each thread of the program, waits among them, in order, from the begin of the
    trace to its end. While the thread did not compute, the cause is that of `lost`. The rest is
    "issuing", or "program": code of its own, if it is longer or no operation was issued at all."""
    found: dict[str, list[Segment]] = {}
    for thread, events in {trace.thread or "main": [], **trace.events.threads}.items():
        mine = lost[thread]
        late = [segment for segment in mine if segment.cause == "preempted"]
        segments = found[thread] = []
        now, last = trace.begin_ns, None
        for event in events:
            begin = max(now, event.begin_ns)
            end = max(begin, event.end_ns)
            segments += _gap(mine, Between(last, event.site), now, begin)
            if event.wait is not None:
                segments += cut(late, Segment("waits", event.site, begin, end))
            else:  # it ran the operation itself
                segments += cut(mine, Segment("issuing", event.site, begin, end))
            now, last = end, event.site
        # The trace waits for the end of everything when the program has left.
        left_ns = max(now, trace.left_ns or trace.end_ns)
        place = Between(last, None)
        if events:
            segments += _gap(mine, place, now, left_ns)
        else:
            segments += cut(mine, Segment("program", place, now, left_ns))
        segments += cut(mine, Segment("unexplained", place, left_ns, trace.end_ns))
    return found


def lost_times(trace: Trace) -> dict[str, list[Segment]]:
    """The times in which each thread did not compute, without overlaps."""
    pauses = [Segment("gc", pause.site, *pause[:2]) for pause in trace.cpu.pauses]
    spans: dict[str, list[Segment]] = defaultdict(list)
    for span in trace.cpu.spans:
        spans[span.thread].append(Segment(span.cause, None, *span[1:3]))
    found: dict[str, list[Segment]] = defaultdict(lambda: found[""])  # "": any other thread
    for thread in ("", *spans):
        found[thread], now = [], 0
        for segment in sorted(pauses + spans[thread], key=BEGINS):
            if segment.end_ns > now:
                found[thread].append(segment._replace(begin_ns=max(now, segment.begin_ns)))
                now = segment.end_ns
    return found


def _gap(lost: list[Segment], place: Between, begin: int, end: int) -> list[Segment]:
    """The segments from one operation or wait to the next."""
    found = list(cut(lost, Segment("issuing", place, begin, end)))
    ns = sum(s.end_ns - s.begin_ns for s in found if s.cause == "issuing")
    changed = {"cause": "program"} if ns > _PROGRAM_NS else {"place": place.next}
    if ns <= _PROGRAM_NS and not place.is_line:
        return found
    return [s._replace(**changed) if s.cause == "issuing" else s for s in found]


def cut(lost: list[Segment], whole: Segment) -> Iterator[Segment]:
    """`whole` without the times that were lost, and these between."""
    _, place, now, end = whole
    first = bisect_right(lost, now, key=ENDS)
    for cause, site, begin, over in lost[first : bisect_left(lost, end, key=BEGINS)]:
        begin, over = max(begin, now), min(over, end)
        if over > begin:
            if begin > now:
                yield whole._replace(begin_ns=now, end_ns=begin)
            yield Segment(cause, site or place, begin, over)
            now = over
    if end > now:
        yield whole._replace(begin_ns=now)


# -- what kept workers idle ------------------------------------------------------------------------


class ComputePlace:
    """A place that computed, whose workers share a queue.

    begun    its operations in the order of their starts
    workers  their number. Operations on a thread of the program use a core, and take part
    spare    number of possible further workers: cores that are not used
    idle     at each instant: the number of idle workers; `calm`: 1 if all are
    busy     the part of a worker that a running operation has: less than 1 if more run than workers
    saved    the part of that time that the spare workers would have saved: while all are busy and
             operations are ready, the number of ready operations that they could take, over all
             operations that would then run
    """

    def __init__(self, operations: list[Operation], trace: Trace, cores: int):
        self.begun = sorted(operations, key=BEGAN)
        changes = [(trace.begin_ns, "idle", 1)]
        for o in operations:
            how = "inline" if o.inline else "served"
            changes += (o.began_ns, how, 1), (o.ended_ns, how, -1)
            if not o.inline:
                ready_ns = min(o.ready_ns or o.began_ns, o.began_ns)
                changes += (ready_ns, "ready", 1), (o.began_ns, "ready", -1)
        now: Counter[str] = Counter()
        spans = []
        for (begin, how, more), (end, _, _) in pairwise([*sorted(changes), (_NEVER, "", 0)]):
            now[how] += more
            if begin < end:
                spans.append((begin, end, now.copy()))
        most = max(now["served"] for _, _, now in spans)
        self.workers = n = max(trace.workers.get(self.begun[0].place, 1), most) if most else 1
        self.spare = max(0, cores - n)
        idle, calm, busy, saved = [], [], [], []
        for begin, end, now in spans:
            served, running = now["served"], now["served"] + now["inline"]
            idle.append((begin, end, max(0.0, n - running)))
            calm.append((begin, end, float(not running)))
            busy.append((begin, end, min(1.0, n / (running or 1))))
            if served >= n:
                more = min(now["ready"], self.spare)
                saved.append((begin, end, busy[-1][2] * more / (served + more)))
        self.idle, self.calm, self.busy, self.saved = map(Intervals, (idle, calm, busy, saved))

    def is_busy(self, since_ns: int, until_ns: int) -> bool:
        """Was it, since before that time, but for short pauses?"""
        calm, pause_ns = self.calm.within, max(_BREATH_NS, (until_ns - since_ns) // 4)
        before_ns = since_ns - pause_ns
        return calm(before_ns, since_ns) < pause_ns and calm(since_ns, until_ns) <= pause_ns


class WorkerGroup:
    """Places that can replace each other: the CPU, or the GPUs.

    last     the operation that ended last, and `end_ns`, when
    workers  their number; `weight`: the busy time of one
    """

    def __init__(self, name: str, operations: list[Operation], trace: Trace, cores: int):
        self.name = name
        self.operations = operations
        self.last = max(operations, key=ENDED)
        self.end_ns = self.last.ended_ns
        by_place: dict[str, list[Operation]] = defaultdict(list)
        for operation in operations:
            by_place[operation.place].append(operation)
        self.places = {name: ComputePlace(own, trace, cores) for name, own in by_place.items()}
        self.workers = sum(place.workers for place in self.places.values())
        self.spare = sum(place.spare for place in self.places.values())
        self.weight = sum(operation.run_ns for operation in operations) / self.workers + 1


class Gap(NamedTuple):
    """A time at `place`, of which the last operation ended at `free_ns`; before `low` the time is
    explained already."""

    group: WorkerGroup
    place: str
    free_ns: int
    low: int


class IdleAttribution:
    """Finds the causes; `groups` are the groups that computed something, in the order of their
    ends."""

    def __init__(self, trace: Trace, cores: int):
        self.trace = trace
        computed = [o for o in trace.operations if o.ran and not o.is_copy]
        self.groups: list[WorkerGroup] = []
        for name, is_cpu in (("cpu", True), ("gpu", False)):
            own = [operation for operation in computed if operation.ctx.is_cpu == is_cpu]
            if own:
                self.groups.append(WorkerGroup(name, own, trace, cores if is_cpu else 0))
        self.groups.sort(key=ENDS)
        self.group_of = {o.number: group for group in self.groups for o in group.operations}
        self.lost = lost_times(trace)
        self.own = own_times(trace, self.lost)
        self.off_cpu = trace.off_cpu()
        self._before: list[Operation | None] = [None]  # per operation: the dependency ended last
        for needs, room in trace.order:
            ended = [trace[number] for number in needs + room if trace[number].ended_ns]
            self._before.append(max(ended, key=ENDED, default=None))

    def parts(self) -> Iterator[Share]:
        """The wall time in parts."""
        trace = self.trace
        for group in self.groups:
            for name, place in group.places.items():
                yield from self._parts_at(group, name, place)
        done_ns = max([trace.begin_ns, *(group.end_ns for group in self.groups)])
        steps: list[Operation | Wait] = [*trace.operations, *trace.waits]
        last = max(steps, key=begin_of, default=None)
        thread, site = (last.thread, last.site) if last else (trace.thread or "main", None)
        for cause, where, begin, end in self.front(thread, site, done_ns, trace.end_ns):
            yield cause, where, end - begin

    def _parts_at(self, group: WorkerGroup, name: str, place: ComputePlace) -> Iterator[Share]:
        """The parts at a place: from each start back to the one before, then of the operation."""
        low = free_ns = self.trace.begin_ns
        for operation in [*place.begun, None]:
            high = group.end_ns if operation is None else operation.began_ns
            if high > low and self._rate(group, low, high, place.idle):
                for segment in self._walk(operation, Gap(group, name, free_ns, low), high):
                    cause, where, begin, end = segment
                    yield cause, where, self._rate(group, max(begin, low), end, place.idle)
            low = max(low, high)
            if operation is not None:
                yield from self._busy(operation, group, place)
                if operation is not group.last:
                    free_ns = max(free_ns, operation.ended_ns)

    def _rate(self, group: WorkerGroup, begin: int, end: int, of: Intervals) -> float:
        """The ns of wall time that so many workers of `group` account for from `begin` to `end`."""
        ns, low = 0.0, self.trace.begin_ns
        for k, other in enumerate(self.groups):
            share = group.weight / sum(group.weight for group in self.groups[k:]) / group.workers
            first, last = max(begin, low), min(end, other.end_ns)
            if first < last:
                ns += of.within(first, last) * share
            low = other.end_ns
            if other is group:
                break
        return ns

    def _busy(self, run: Operation, group: WorkerGroup, place: ComputePlace) -> Iterator[Share]:
        """A worker was busy: the operation computed, or was off the CPU."""
        ns = self._rate(group, run.began_ns, run.ended_ns, place.busy)
        if not run.inline:
            lost = self._rate(group, run.began_ns, run.ended_ns, place.saved)
            yield "workers", run.site, lost
            ns -= lost
        scale = ns / (run.run_ns or 1)
        for cause, off_ns in self.off_cpu.get(run.number, OffCpu())._asdict().items():
            yield cause, run.site, scale * off_ns
            ns -= scale * off_ns
        yield "work", run.site, ns

    def _walk(self, operation: Operation | None, gap: Gap, now: int) -> Iterator[Segment]:
        """The causes, from `now` back to gap.low, that delayed `operation`; None: the end of the
        group. Each step starts where the previous step ended."""
        before = gap.group.last if operation is None else None
        while now > gap.low:
            if operation is not None:
                before, site = self._before[operation.number], operation.site
                enabled_ns = self.trace.begin_ns if before is None else before.ended_ns
                pushed_ns = max(operation.pushed_ns, enabled_ns)
                ready_ns = max(operation.ready_ns, pushed_ns)
                if ready_ns < now:
                    yield from self._queued(operation, gap, ready_ns, now)
                late = Segment("unexplained", site, pushed_ns, min(ready_ns, now))
                yield from cut(self.lost[before.worker if before else ""], late)
                begin_ns, end_ns = max(enabled_ns, gap.low), min(pushed_ns, now)
                yield from self.front(operation.thread, site, begin_ns, end_ns)
                now = min(enabled_ns, now)
            if before is None:
                return
            began_ns = before.began_ns or before.ended_ns
            if began_ns < now:
                yield from self._ran(before, gap, began_ns, now)
                now = began_ns
            operation = before

    def _queued(self, operation: Operation, gap: Gap, begin: int, end: int) -> Iterator[Segment]:
        """`operation` was ready and had not started."""
        site, group, worker = operation.site, self.group_of.get(operation.number), operation.worker
        if operation.is_copy or group is None:
            yield from cut(self.lost[worker], Segment("transfer", site, begin, end))
            return
        free = begin
        if operation.place != gap.place:  # others were before it, while no worker was idle
            free = max(begin, end - round(group.places[operation.place].idle.within(begin, end)))
            cause = "workers" if group.spare else "dependency"
            yield Segment("imbalance" if group is gap.group else cause, site, begin, free)
        # Then a worker was late: it had no core, or others held the interpreter lock.
        usual = min(free + _HAND_OVER_NS, end)
        yield from cut(self.lost[worker], Segment("issuing", site, free, usual))
        for segment in self.front(operation.thread, site, usual, end):
            if segment.cause != "issuing":
                segment = segment._replace(cause="unexplained")
            yield from cut(self.lost[worker], segment)

    def _ran(self, operation: Operation, gap: Gap, began_ns: int, now: int) -> Iterator[Segment]:
        """`operation` ran until `now`, while its successors had to wait."""
        number, free_ns = operation.number, gap.free_ns
        if operation.is_copy:
            cause = "transfer"
        elif number in self.trace.shared and operation.place == gap.place:
            cause = "work"
        else:
            place = gap.group.places.get(operation.place)
            if operation.place == gap.place:
                busy = operation is gap.group.last and began_ns < free_ns
            else:
                busy = place is not None and place.is_busy(free_ns, now)
            cause = "imbalance" if busy and self.trace.begin_ns < free_ns else "dependency"
        off_ns = self.off_cpu.get(number, OffCpu())
        end = now
        for held, ns in ("preempted", off_ns.preempted), ("gc", off_ns.gc):
            begin = end - ns * (now - began_ns) // (operation.run_ns or 1)
            yield Segment(held, operation.site, begin, end)
            end = begin
        yield Segment(cause, operation.site, began_ns, end)

    def front(self, thread: str, site: Site | None, begin: int, end: int) -> Iterator[Segment]:
        """What a thread did meanwhile. One that is an operation itself issued at `site`."""
        own = self.own.get(thread)
        if own is None:
            own = list(cut(self.lost[thread], Segment("issuing", site, begin, end)))
        first = max(0, bisect_right(own, begin, key=BEGINS) - 1)
        for segment in own[first : bisect_left(own, end, key=BEGINS)]:
            low, high = max(segment.begin_ns, begin), min(segment.end_ns, end)
            if low < high:
                yield segment._replace(begin_ns=low, end_ns=high)


# -- without a cause -------------------------------------------------------------------------------


def without(cause: str, recorded: Conditions, blame: IdleAttribution) -> Conditions:
    """The conditions of the run without `cause`, and of nothing else: without the waits, with
    copies that take no time, and so on."""
    trace = blame.trace
    if cause in OffCpu._fields:
        run_ns = list(recorded.run_ns)
        for number, parts in blame.off_cpu.items():
            run_ns[number - 1] -= getattr(parts, cause)
        return replace(recorded, run_ns=run_ns, own_ns=_own_time_without(blame, {cause}))
    if cause == "waits":
        return replace(recorded, dropped=frozenset(range(len(trace.waits))))
    if cause == "issuing":
        return replace(recorded, own_ns=_own_time_without(blame, {"issuing", "waits"}))
    if cause == "dependency":
        return replace(recorded, order=False)
    if cause == "transfer":
        run_ns = [0 if o.is_copy else o.run_ns for o in trace.operations]
        return replace(recorded, run_ns=run_ns)
    changed = recorded
    for group in blame.groups:
        if cause == "imbalance" and len(group.places) > 1:
            changed = _spread_evenly(group, changed)
        if cause == "workers" and group.spare:
            n = group.workers + group.spare
            changed = replace(changed, workers={**changed.workers, "cpu": n})
    return changed


def _own_time_without(blame: IdleAttribution, causes: set[str]) -> OwnTime:
    """What is left of a thread's own time."""
    trace = blame.trace

    @cache
    def removed(thread: str) -> Intervals:
        segments = blame.front(thread, None, trace.begin_ns, trace.end_ns)
        return Intervals((s.begin_ns, s.end_ns, 1.0) for s in segments if s.cause in causes)

    return lambda thread, begin, end: end - begin - removed(thread).within(begin, end)


def _spread_evenly(group: WorkerGroup, recorded: Conditions) -> Conditions:
    """Several places become one, where each operation takes as long as at the place that is the
    fastest for operations of its name."""
    run_ns, places = list(recorded.run_ns), list(recorded.places)
    took: dict[tuple[str, str], list[int]] = defaultdict(list)
    for operation in group.operations:
        took[operation.name, operation.place].append(operation.run_ns)
    means = {key: mean(runs) or 1 for key, runs in took.items()}
    least: dict[str, float] = {}
    for (name, _), ns in means.items():
        least[name] = min(ns, least.get(name, ns))
    for o in group.operations:
        run_ns[o.number - 1] = round(o.run_ns * (least[o.name] / means[o.name, o.place]))
        places[o.number - 1] = group.name
    workers = {**recorded.workers, group.name: group.workers}
    return replace(recorded, places=places, run_ns=run_ns, workers=workers)
