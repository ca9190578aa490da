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
(`without`), compared with the replay of the run as it was, and is no more than physically
possible. It is exact within `engine.stepped()`. Elsewhere it does not know what operations do to
one another, and counts only if it is larger than the error of the replay of the run as it was. The
cause that surely saves most comes first, then those that took most time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.event_graph import computing_threads, work_and_chain
from d2lmini.profiler.evidence import Intervals, OffCpu
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

#: The program's own code; shorter is the issuing of the next operation.
_PROGRAM_NS = 1_000_000
#: A longer hand-over is not explained by the work of handing over.
_HAND_OVER_NS = 1_000_000
#: A worker counts as busy across a pause of at most this, or of a quarter of an operation.
_BREATH_NS = 100_000
_began_ns = attrgetter("began_ns")
_begin_ns, _end_ns = attrgetter("begin_ns"), attrgetter("end_ns")


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

    @property
    def first(self) -> Part | None:
        """The most important cause, if any time was lost."""
        return self.parts[self.causes[0]] if self.causes else None

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

    def __repr__(self) -> str:
        first = f", first of all {self.causes[0]}" if self.causes else ""
        return f"<account of {self.wall_ns / 1e6:.1f} ms{first}>"


def _weight(part: Part) -> tuple[float, float]:
    """The sort key of causes. "dependency" follows its equals, since it is hardest to remove."""
    return part.gain_ns * (0.9 if part.cause == "dependency" else 1.0), part.ns


def account_of(trace: Trace, cores: int | None = None) -> Account:
    """See the module. cores: of the recording machine; None: those of this process."""
    blame = IdleAttribution(trace, cores or count_cores())
    lines: dict[str, dict[str, float]] = {cause: defaultdict(float) for cause in CAUSES}
    describe = cache(_describe)
    for cause, place, ns in blame.parts():
        if ns > 0:
            lines[cause][describe(place)] += ns
    wall_ns = trace.end_ns - trace.begin_ns
    recording = Recording(trace)
    recorded_ns = recording.simulate(recording.recorded).ended
    parts = {}
    for cause, by_line in lines.items():
        ns, saves = sum(by_line.values()), Prediction(0.0, 0.0)
        if cause in _ADVICE and (ns > 0 or trace.engine_kind == "stepped"):
            changed = without(cause, recording.recorded, blame)
            saves = recording.foresee(changed)[1].less_than(recorded_ns)
            most = max(0.0, recorded_ns - least_ns(trace, changed))
            saves = Prediction(min(saves.low_ns, most), min(saves.high_ns, most))
        largest = tuple(sorted(by_line.items(), key=lambda line: -line[1])[:3])
        parts[cause] = Part(cause, ns, largest, saves, abs(recorded_ns - wall_ns), wall_ns)
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


def _describe(place: Place) -> str:
    return str(place) if isinstance(place, Between) else callsite.describe(place)


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
        cause, place = "issuing" if events else "program", Between(last, None)
        segments += _gap(mine, place, now, left_ns, cause)
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
        for segment in sorted(pauses + spans[thread], key=_begin_ns):
            if segment.end_ns > now:
                found[thread].append(segment._replace(begin_ns=max(now, segment.begin_ns)))
                now = segment.end_ns
    return found


def _gap(
    lost: list[Segment], place: Between, begin: int, end: int, cause: str = "issuing"
) -> list[Segment]:
    """The segments from one operation or wait to the next."""
    found = list(cut(lost, Segment(cause, place, begin, end)))
    own = [segment for segment in found if segment.cause == "issuing"]
    if sum(segment.end_ns - segment.begin_ns for segment in own) > _PROGRAM_NS:
        cause = "program"
    elif place.is_line:
        own = [segment._replace(place=place.next) for segment in own]
    changed = iter(own)
    return [next(changed)._replace(cause=cause) if s.cause == "issuing" else s for s in found]


def cut(lost: list[Segment], whole: Segment) -> Iterator[Segment]:
    """`whole` without the times that were lost, and these between."""
    _, place, now, end = whole
    first = bisect_right(lost, now, key=_end_ns)
    for cause, site, begin, over in lost[first : bisect_left(lost, end, key=_begin_ns)]:
        begin, over = max(begin, now), min(over, end)
        if over > begin:
            if begin > now:
                yield whole._replace(begin_ns=now, end_ns=begin)
            yield Segment(cause, site or place, begin, over)
            now = over
    if end > now:
        yield whole._replace(begin_ns=now)


# -- what kept workers idle ------------------------------------------------------------------------


class WorkerSlot:
    """One worker of a place; `runs` are its operations, in order."""

    def __init__(self, place: str):
        self.place = place
        self.runs: list[Operation] = []

    def has_room(self, operation: Operation) -> bool:
        """Does it run nothing else meanwhile?"""
        k = bisect_right(self.runs, operation.began_ns, key=_began_ns)
        before = not k or self.runs[k - 1].ended_ns <= operation.began_ns
        return before and (k == len(self.runs) or operation.ended_ns <= self.runs[k].began_ns)


class WorkerGroup:
    """Places that can replace each other, the CPU's workers or the GPUs, with their slots.

    begins   for each place, its operations in the order of their starts
    end_ns   the end of the last operation
    last     the operation that ended last
    weight   the busy time of a slot
    """

    def __init__(self, name: str, operations: Sequence[Operation], workers: dict[str, int]):
        self.name = name
        self.operations = sorted(operations, key=_began_ns)
        self.last = max(operations, key=lambda operation: operation.ended_ns)
        self.end_ns = self.last.ended_ns
        self.begins: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            self.begins[operation.place].append(operation)
        self.slots: list[WorkerSlot] = []
        for place, begun in self.begins.items():
            self._serve(place, begun, workers.get(place, 1))
        self.weight = sum(operation.run_ns for operation in operations) / len(self.slots) + 1

    def _serve(self, place: str, begun: list[Operation], workers: int) -> None:
        """Assign each operation to the slot of its worker. Inline operations come last, to a free
        slot, since they use a core; without one they are left out: the place is full."""
        if all(operation.inline for operation in begun):
            workers = 1
        slots = [WorkerSlot(place) for _ in range(workers)]
        named: dict[str, WorkerSlot] = {}
        for operation in sorted(begun, key=attrgetter("inline", "began_ns")):
            free = [slot for slot in slots if slot.has_room(operation)]
            if not free and not operation.inline:
                free = [WorkerSlot(place)]
                slots += free
            slot = named.get(operation.worker)
            if free and slot not in free:
                unnamed = [slot for slot in free if slot not in named.values()]
                slot = named[operation.worker] = (unnamed or free)[0]
            if free and slot is not None:
                insort(slot.runs, operation, key=_began_ns)
        self.slots += slots


class Gap(NamedTuple):
    """A slot at `place`, idle since `free_ns`; the time before `low` is explained already."""

    group: WorkerGroup
    place: str
    free_ns: int
    low: int


class IdleAttribution:
    """Finds the causes; `groups` are the groups that computed something, in the order of their
    ends."""

    def __init__(self, trace: Trace, cores: int):
        self.trace = trace
        self.cores = cores
        computed = [o for o in trace.operations if o.ran and not o.is_copy]
        groups = []
        for name, is_cpu in (("cpu", True), ("gpu", False)):
            own = [operation for operation in computed if operation.ctx.is_cpu == is_cpu]
            if own:
                groups.append(WorkerGroup(name, own, trace.workers))
        self.groups = sorted(groups, key=_end_ns)
        self.group_of = {operation.number: g for g in groups for operation in g.operations}
        self.lost = lost_times(trace)
        self.own = own_times(trace, self.lost)
        self.off_cpu = trace.off_cpu()
        self._busy_since: dict[int, int] = {}  # per operation: start of its worker's busy time
        self._queued_until: dict[int, int] = {}  # per operation: end of the one before on its slot
        for slot in [slot for group in groups for slot in group.slots]:
            self._follow(slot)
        self._before: list[Operation | None] = [None]  # per operation: the dependency ended last
        for needs, room in trace.order:
            ended = [trace[number] for number in needs + room if trace[number].ended_ns]
            self._before.append(max(ended, key=lambda o: o.ended_ns, default=None))

    def _follow(self, slot: WorkerSlot) -> None:
        """For each operation of a worker, the start of the busy time, ignoring short pauses."""
        before = None
        for run in slot.runs:
            since_ns = run.began_ns
            if before is not None:
                self._queued_until[run.number] = before.ended_ns
                breath_ns = max(_BREATH_NS, min(before.run_ns, run.run_ns) // 4)
                if run.began_ns - before.ended_ns <= breath_ns:
                    since_ns = self._busy_since[before.number]
            self._busy_since[run.number] = since_ns
            before = run

    def spare(self, group: WorkerGroup | None) -> int:
        """Number of possible further workers: cores that no slot of the group uses."""
        cpu = group is not None and group.name == "cpu"
        return max(0, self.cores - len(group.slots)) if group and cpu else 0

    def parts(self) -> Iterator[tuple[str, Place, float]]:
        """The wall time in parts: cause, place, ns."""
        trace = self.trace
        for group in self.groups:
            saved = time_saved_by(group, self.spare(group))
            for slot in group.slots:
                free_ns = trace.begin_ns
                for run in slot.runs:
                    yield from self._idle(group, slot, free_ns, run.began_ns)
                    yield from self._busy(run, self._rate(group, run.began_ns, run.ended_ns), saved)
                    free_ns = max(free_ns, run.ended_ns)
                yield from self._idle(group, slot, free_ns, group.end_ns)
        done_ns = max([trace.begin_ns, *(group.end_ns for group in self.groups)])
        steps: list[Operation | Wait] = [*trace.operations, *trace.waits]
        last = max(steps, key=begin_of, default=None)
        thread, site = (last.thread, last.site) if last else (trace.thread or "main", None)
        for cause, place, begin, end in self.front(thread, site, done_ns, trace.end_ns):
            yield cause, place, end - begin

    def _rate(self, group: WorkerGroup, begin: int, end: int) -> float:
        """The ns of wall time that a slot of `group` accounts for from `begin` to `end`."""
        ns, low = 0.0, self.trace.begin_ns
        for k, other in enumerate(self.groups):
            share = group.weight / sum(group.weight for group in self.groups[k:])
            ns += max(0, min(end, other.end_ns) - max(begin, low)) * share / len(group.slots)
            low = other.end_ns
            if other is group:
                break
        return ns

    def _busy(
        self, run: Operation, ns: float, saved: dict[int, float]
    ) -> Iterator[tuple[str, Place, float]]:
        """A slot was busy: the operation computed, or was off the CPU."""
        if saved and not run.inline and run.run_ns:
            lost = ns * (saved[run.ended_ns] - saved[run.began_ns]) / run.run_ns
            yield "workers", run.site, lost
            ns -= lost
        scale = ns / (run.run_ns or 1)
        for cause, off_ns in self.off_cpu.get(run.number, OffCpu())._asdict().items():
            yield cause, run.site, scale * off_ns
            ns -= scale * off_ns
        yield "work", run.site, ns

    def _idle(
        self, group: WorkerGroup, slot: WorkerSlot, free_ns: int, end_ns: int
    ) -> Iterator[tuple[str, Place, float]]:
        """The causes of a whole gap: up to the next start in its place, up to the one after, ..."""
        begun = group.begins[slot.place]
        k = bisect_right(begun, free_ns, key=_began_ns)
        low = free_ns
        while low < end_ns:
            following = begun[k] if k < len(begun) else None
            high = end_ns if following is None else min(end_ns, following.began_ns)
            if high > low:
                for cause, place, begin, end in self._walk(
                    following, Gap(group, slot.place, free_ns, low), high
                ):
                    if max(begin, low) < end:
                        yield cause, place, self._rate(group, max(begin, low), end)
                low = high
            k += 1

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

    def _queued(
        self, operation: Operation, gap: Gap, begin_ns: int, end_ns: int
    ) -> Iterator[Segment]:
        """`operation` was ready and had not started."""
        site, other, mine = operation.site, self.group_of.get(operation.number), operation.worker
        if operation.is_copy:
            yield from cut(self.lost[mine], Segment("transfer", site, begin_ns, end_ns))
            return
        # Where it ran, others were before it until then.
        free_ns = min(max(begin_ns, self._queued_until.get(operation.number, 0)), end_ns)
        if other is not gap.group:
            cause = "workers" if self.spare(other) else "dependency"
            yield Segment(cause, site, begin_ns, free_ns)
        elif operation.place != gap.place:
            yield Segment("imbalance", site, begin_ns, free_ns)
        else:
            free_ns = begin_ns
        # Then its worker was late: it had no core, or others held the interpreter lock.
        usual_ns = min(free_ns + _HAND_OVER_NS, end_ns)
        yield from cut(self.lost[mine], Segment("issuing", site, free_ns, usual_ns))
        for segment in self.front(operation.thread, site, usual_ns, end_ns):
            if segment.cause != "issuing":
                segment = segment._replace(cause="unexplained")
            yield from cut(self.lost[mine], segment)

    def _ran(self, operation: Operation, gap: Gap, began_ns: int, now: int) -> Iterator[Segment]:
        """`operation` ran until `now`, while its successors had to wait."""
        number, since_ns = operation.number, began_ns
        here = operation.place == gap.place
        if not here and self.group_of.get(number) is gap.group:
            since_ns = self._busy_since.get(number, now)
        elif operation is not gap.group.last:
            since_ns = now
        if operation.is_copy:
            cause = "transfer"
        elif number in self.trace.shared and here:
            cause = "work"
        else:
            alone = self.trace.begin_ns < gap.free_ns and since_ns < gap.free_ns
            cause = "imbalance" if alone else "dependency"
        off_ns = self.off_cpu.get(number, OffCpu())
        end_ns = now
        for held, ns in ("preempted", off_ns.preempted), ("gc", off_ns.gc):
            begin_ns = end_ns - ns * (now - began_ns) // (operation.run_ns or 1)
            yield Segment(held, operation.site, begin_ns, end_ns)
            end_ns = begin_ns
        yield Segment(cause, operation.site, began_ns, end_ns)

    def front(
        self, thread: str, site: Site | None, begin_ns: int, end_ns: int
    ) -> Iterator[Segment]:
        """What a thread did meanwhile. One that is an operation itself issued at `site`."""
        own = self.own.get(thread)
        if own is None:
            own = list(cut(self.lost[thread], Segment("issuing", site, begin_ns, end_ns)))
        for k in range(max(0, bisect_right(own, begin_ns, key=_begin_ns) - 1), len(own)):
            cause, place, begin, end = own[k]
            if begin >= end_ns:
                return
            if end > begin_ns:
                yield Segment(cause, place, max(begin, begin_ns), min(end, end_ns))


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
    saved: dict[int, float] = {}
    ready = busy = before = 0
    total = 0.0
    for when, more_ready, more_busy in sorted(changes):
        if ready > 0 and busy >= len(group.slots):
            more = min(ready, spare)
            total += (when - before) * more / (busy + more)
        saved[when] = total
        ready, busy, before = ready + more_ready, busy + more_busy, when
    return saved


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
        if cause == "imbalance":
            changed = _spread_evenly(group, changed)
        elif blame.spare(group):
            n = len(group.slots) + blame.spare(group)
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
    fastest for operations of its name. At a single place, the workers share the time in which the
    last operation still runs and all others have ended."""
    run_ns, places = list(recorded.run_ns), list(recorded.places)
    if len(group.begins) > 1:
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
        workers = {**recorded.workers, group.name: len(group.slots)}
        return replace(recorded, places=places, run_ns=run_ns, workers=workers)
    last = group.last
    others_ns = max((o.ended_ns for o in group.operations if o is not last), default=0)
    if last.began_ns < others_ns:
        alone_ns = last.ended_ns - others_ns
        run_ns[last.number - 1] -= round(alone_ns * (1 - 1 / len(group.slots)))
    return replace(recorded, run_ns=run_ns)


def least_ns(trace: Trace, changed: Conditions) -> float:
    """What no run under these conditions beats: the work of a place on all that compute there, and
    the longest chain of operations."""
    workers = computing_threads(trace, changed.workers)
    order = changed.order
    shares, longest = work_and_chain(trace, workers, changed.places, changed.run_ns, order)
    return max([longest, *shares.values()])
