"""Idle attribution: find the cause of every idle instant of a worker by walking back in time.

The workers of a place are *slots*: the CPU's, or those of a GPU. While a slot is idle, something
delays the operation X that starts there next. Backward in time from the start of X:

    X was ready and not started           hand-over: "preempted" while its worker had no core, then
                                          "issuing"; a longer one, unless the program issues
                                          meanwhile, is "unexplained"
    X could have run but was not ready    the engine's own time: "unexplained"
    X could have run but was not pushed   what the thread that pushed X did: see `own_time`
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
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from d2lmini.base.callsite import Site
from d2lmini.profiler.evidence import OffCpu
from d2lmini.profiler.own_time import Between, Segment, cut, lost_times, own_times
from d2lmini.profiler.records import Operation

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: A longer hand-over is not explained by the work of handing over.
_HAND_OVER_NS = 1_000_000
#: A worker counts as busy across a pause of at most this, or of a quarter of an operation.
_BREATH_NS = 100_000
_began_ns = attrgetter("began_ns")
_begin_ns = attrgetter("begin_ns")


class WorkerSlot:
    """One worker of a place; `runs` are its operations, in order."""

    __slots__ = ("free_ns", "place", "runs")

    def __init__(self, place: str):
        self.place = place
        self.runs: list[Operation] = []
        self.free_ns = 0


class WorkerGroup:
    """Places that can replace each other, the CPU's workers or the GPUs, with their slots.

    begins   for each place, its operations in the order of their starts
    end_ns   the end of the last operation
    last     the operation that ended last
    """

    def __init__(self, name: str, operations: Sequence[Operation], workers: dict[str, int]):
        self.name = name
        self.operations = sorted(operations, key=_began_ns)
        self.last = max(operations, key=lambda operation: operation.ended_ns)
        self.end_ns = self.last.ended_ns
        self.begins: dict[str, list[Operation]] = {}
        for operation in self.operations:
            self.begins.setdefault(operation.place, []).append(operation)
        self.slots: list[WorkerSlot] = []
        for place, begun in self.begins.items():
            self._serve(place, begun, workers.get(place, 1))

    @property
    def load_ns(self) -> int:
        """Total run time of the operations."""
        return sum(operation.run_ns for operation in self.operations)

    def _serve(self, place: str, begun: list[Operation], workers: int) -> None:
        """Assign each operation to the slot of its worker, inline operations to a free slot."""
        if all(operation.inline for operation in begun):
            workers = 1
        slots = [WorkerSlot(place) for _ in range(workers)]
        named: dict[str, WorkerSlot] = {}
        for operation in (operation for operation in begun if not operation.inline):
            slot = named.get(operation.worker)
            if slot is None or slot.free_ns > operation.began_ns:
                free = [s for s in slots if s.free_ns <= operation.began_ns]
                unnamed = [s for s in free if s not in named.values()]
                if not free:
                    slots.append(WorkerSlot(place))
                slot = named[operation.worker] = (unnamed or free or slots[-1:])[0]
            slot.runs.append(operation)
            slot.free_ns = operation.ended_ns
        inline = [operation for operation in begun if operation.inline]
        if inline:
            _fit_in(slots, inline)
        self.slots += slots


def _fit_in(slots: list[WorkerSlot], inline: list[Operation]) -> None:
    """Assign operations on the program's own thread to idle slots, since they use a core. If all
    slots are busy the operation is left out: the place is full."""
    for slot in slots:
        taken: list[Operation] = []
        left: list[Operation] = []
        for operation in inline:
            k = bisect_right(slot.runs, operation.began_ns, key=_began_ns)
            before = slot.runs[k - 1].ended_ns if k else 0
            after = slot.runs[k].began_ns if k < len(slot.runs) else operation.ended_ns
            if taken:
                before = max(before, taken[-1].ended_ns)
            fits = before <= operation.began_ns and operation.ended_ns <= after
            (taken if fits else left).append(operation)
        slot.runs = sorted(slot.runs + taken, key=_began_ns)
        inline = left


class IdleAttribution:
    """Finds the causes; `groups` are the groups that computed something."""

    def __init__(self, trace: Trace, cores: int):
        self.trace = trace
        self.cores = cores
        self.begin_ns, self.end_ns = trace.begin_ns, trace.end_ns
        self.places = [operation.place for operation in trace.operations]
        computed = [o for o in trace.operations if o.ran and not o.is_copy]
        self.groups: list[WorkerGroup] = []
        for name, is_cpu in (("cpu", True), ("gpu", False)):
            own = [operation for operation in computed if operation.ctx.is_cpu == is_cpu]
            if own:
                self.groups.append(WorkerGroup(name, own, trace.workers))
        self.group_of = {operation.number: g for g in self.groups for operation in g.operations}
        self.own = own_times(trace)
        self._lost = lost_times(trace)
        self.off_cpu = trace.off_cpu()
        self._busy_since: dict[int, int] = {}  # per operation: start of its worker's busy time
        self._queued_until: dict[int, int] = {}  # per operation: end of the one before on its slot
        for group in self.groups:
            for slot in group.slots:
                self._follow(slot)
        self._before = self._last_before()

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

    def _last_before(self) -> list[Operation | None]:
        """For each operation, the dependency that ended last."""
        operations = self.trace.operations
        found: list[Operation | None] = [None]
        for needs, room in self.trace.order:
            last, done_ns = None, 0
            for k in needs + room:
                if operations[k - 1].ended_ns > done_ns:
                    last = operations[k - 1]
                    done_ns = last.ended_ns
            found.append(last)
        return found

    # -- the idle times of a slot ------------------------------------------------------------------

    def idle(self, group: WorkerGroup, slot: WorkerSlot) -> list[Segment]:
        """The causes of all idle times of `slot` until its group was done."""
        found: list[Segment] = []
        free_ns = self.begin_ns
        for run in slot.runs:
            if free_ns < run.began_ns:
                self._explain(_Gap(group, slot, free_ns, found), run.began_ns)
            free_ns = max(free_ns, run.ended_ns)
        self._explain(_Gap(group, slot, free_ns, found), group.end_ns)
        return found

    def _explain(self, gap: _Gap, end_ns: int) -> None:
        """Explain a whole gap: up to the next start in its place, up to the one after that, ..."""
        begun = gap.group.begins[gap.slot.place]
        k = bisect_right(begun, gap.free_ns, key=_began_ns)
        gap.low = gap.free_ns
        while gap.low < end_ns:
            following = begun[k] if k < len(begun) else None
            high = end_ns if following is None else min(end_ns, following.began_ns)
            if high > gap.low:
                self._walk(following, gap, high)
                gap.low = high
            k += 1

    def _walk(self, operation: Operation | None, gap: _Gap, now: int) -> None:
        """Walk from `now` back to gap.low by the causes that delayed `operation`; None: the end of
        the group. Each step starts where the previous step ended."""
        if operation is None:
            operation = gap.group.last
            now = self._running(operation, gap, now)
        while now > gap.low:
            now = self._attribute_dependency(operation, gap, now)
            before = self._before[operation.number]
            if before is None:
                return
            now = self._running(before, gap, now)
            operation = before

    def _attribute_dependency(self, operation: Operation, gap: _Gap, now: int) -> int:
        """Walk back to the end of the dependencies of `operation`: it had not started or been
        pushed."""
        before = self._before[operation.number]
        enabled_ns = self.begin_ns if before is None else before.ended_ns
        pushed_ns = max(operation.pushed_ns, enabled_ns)
        ready_ns = max(operation.ready_ns, pushed_ns)
        if ready_ns < now:
            self._attribute_queueing(operation, gap, ready_ns, now)
            now = ready_ns
        if pushed_ns < now:
            thread = "" if before is None else before.worker
            self._add_late(thread, gap, Segment("unexplained", operation.site, pushed_ns, now))
            now = pushed_ns
        if enabled_ns < now:
            if gap.low < now:
                for segment in self.front(
                    operation.thread, operation.site, max(enabled_ns, gap.low), now
                ):
                    gap.add(*segment)
            now = enabled_ns
        return now

    def _attribute_queueing(
        self, operation: Operation, gap: _Gap, begin_ns: int, end_ns: int
    ) -> None:
        """`operation` was ready and had not started."""
        site, other = operation.site, self.group_of.get(operation.number)
        if operation.is_copy:
            self._add_late(operation.worker, gap, Segment("transfer", site, begin_ns, end_ns))
            return
        # Where it ran, others were before it until then.
        free_ns = min(max(begin_ns, self._queued_until.get(operation.number, 0)), end_ns)
        if other is not gap.group:
            few = other is not None and self.spare(other) > 0
            gap.add("workers" if few else "dependency", site, begin_ns, free_ns)
        elif self.places[operation.number - 1] != gap.slot.place:
            gap.add("imbalance", site, begin_ns, free_ns)
        else:
            free_ns = begin_ns
        self._attribute_handover(operation, gap, free_ns, end_ns)

    def _attribute_handover(
        self, operation: Operation, gap: _Gap, begin_ns: int, end_ns: int
    ) -> None:
        """A worker was free but late: it had no core, or others held the interpreter lock."""
        usual_ns = min(begin_ns + _HAND_OVER_NS, end_ns)
        usual = Segment("issuing", operation.site, begin_ns, usual_ns)
        self._add_late(operation.worker, gap, usual)
        for segment in self.front(operation.thread, operation.site, usual_ns, end_ns):
            if segment.cause != "issuing":
                segment = segment._replace(cause="unexplained")
            self._add_late(operation.worker, gap, segment)

    def _add_late(self, worker: str, gap: _Gap, segment: Segment) -> None:
        """The time is that of a worker, which may have had no core."""
        for part in cut(self._lost.get(worker, []), segment):
            gap.add(*part)

    def _running(self, operation: Operation, gap: _Gap, now: int) -> int:
        """Walk back to the start of `operation`, which ran while its successors had to wait."""
        began_ns = operation.began_ns or operation.ended_ns
        if began_ns >= now:
            return now
        since_ns = began_ns
        here = self.places[operation.number - 1] == gap.slot.place
        if not here and self.group_of.get(operation.number) is gap.group:
            since_ns = self._busy_since.get(operation.number, now)
        elif operation is not gap.group.last:
            since_ns = now
        if operation.is_copy:
            cause = "transfer"
        elif operation.number in self.trace.shared and here:
            cause = "work"
        else:
            alone = self.begin_ns < gap.free_ns and since_ns < gap.free_ns
            cause = "imbalance" if alone else "dependency"
        off_ns = self.off_cpu.get(operation.number, OffCpu())
        end_ns = now
        for held, ns in ("preempted", off_ns.preempted), ("gc", off_ns.gc):
            if ns and operation.run_ns:
                begin_ns = end_ns - ns * (now - began_ns) // operation.run_ns
                gap.add(held, operation.site, begin_ns, end_ns)
                end_ns = begin_ns
        gap.add(cause, operation.site, began_ns, end_ns)
        return began_ns

    def front(
        self, thread: str, site: Site | None, begin_ns: int, end_ns: int
    ) -> Iterator[Segment]:
        """What a thread did meanwhile. One that is an operation itself issued at `site`."""
        own = self.own.get(thread)
        if own is None:
            whole = Segment("issuing", site, begin_ns, end_ns)
            own = list(cut(self._lost.get(thread, []), whole))
        for k in range(max(0, bisect_right(own, begin_ns, key=_begin_ns) - 1), len(own)):
            cause, place, begin, end = own[k]
            if begin >= end_ns:
                return
            if end > begin_ns:
                yield Segment(cause, place, max(begin, begin_ns), min(end, end_ns))

    def spare(self, group: WorkerGroup) -> int:
        """Number of possible further workers: cores that no slot of the group uses."""
        return max(0, self.cores - len(group.slots)) if group.name == "cpu" else 0


class _Gap:
    """A slot, idle since `free_ns`; `found` has the segments of the time after `low`."""

    __slots__ = ("found", "free_ns", "group", "low", "slot")

    def __init__(self, group: WorkerGroup, slot: WorkerSlot, free_ns: int, found: list[Segment]):
        self.group = group
        self.slot = slot
        self.free_ns = self.low = free_ns
        self.found = found

    def add(self, cause: str, place: Between | Site | None, begin_ns: int, end_ns: int) -> None:
        """The slot was idle for `cause`; times before `low` are explained already."""
        if begin_ns < self.low:
            begin_ns = self.low
        if begin_ns < end_ns:
            self.found.append(Segment(cause, place, begin_ns, end_ns))
