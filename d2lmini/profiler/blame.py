"""Why did a worker have nothing to do? Who keeps it waiting at each instant, found by walking back.

The workers of a place are *slots*: the CPU's, or those of a GPU. While a slot is idle, something
keeps back the operation that begins next there, X. Seen from its begin backward in time:

    X was ready, and began later          hand-over: "issuing"; longer while the program waits and
                                          leaves the interpreter alone: "contention"
    X could have run, and was not ready   the engine's own time: "unexplained"
    X could have run, but was not pushed  "waits" while the thread that pushed it waited, "issuing"
                                          at other times
    the last that X comes after ran       a copy: "transfer"; with a worker that had been busy
                                          since before the slot was idle: "imbalance"; else
                                          "dependency"
    that one was kept back itself         the same questions about it; where it was queued behind
                                          others, they had too much to do: "imbalance" or "workers"

until the walk comes to the instant at which the slot became idle. After the last begin of a place
the walk starts at what ended last of all that its slots, or those of its like, computed. So every
instant of every slot has one cause and one line, and a walk visits only what happened meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.callsite import Site
from d2lmini.profiler.records import Operation

if TYPE_CHECKING:
    from d2lmini.profiler.trace import Trace

#: A hand-over that takes longer than this, while nobody issues, is no hand-over any more.
_HAND_OVER_NS = 1_000_000
#: Between two operations of a worker that goes on there is no more than this, or a quarter of one.
_BREATH_NS = 100_000
#: A large operation on the CPU is cut into pieces, which idle workers compute too (us predicted).
_CUT_US = 500.0
_UNKNOWN_US = 1e8  # predictions above are none


class Segment(NamedTuple):
    """From begin_ns to end_ns a slot was idle by this cause; `site` is the line to look at."""

    cause: str
    site: Site | None
    begin_ns: int
    end_ns: int


class Slot:
    """One worker of a place: what it computed, in order. `runs` ends where it became idle."""

    __slots__ = ("free_ns", "place", "runs")

    def __init__(self, place: str):
        self.place = place
        self.runs: list[Operation] = []
        self.free_ns = 0


class Group:
    """Places that stand in for each other, the CPU's workers or the GPUs, with their slots.

    begins   of each place, its operations in the order they began
    end_ns   when the last of them ended
    last     which one that is
    """

    def __init__(self, name: str, operations: Sequence[Operation], workers: dict[str, int]):
        self.name = name
        self.operations = sorted(operations, key=lambda each: each.began_ns)
        self.last = max(operations, key=lambda each: each.ended_ns)
        self.end_ns = self.last.ended_ns
        self.begins: dict[str, list[Operation]] = {}
        for each in self.operations:
            self.begins.setdefault(each.place, []).append(each)
        self.slots: list[Slot] = []
        self.slot_of: dict[int, Slot] = {}
        for place, begun in self.begins.items():
            self._serve(place, begun, workers.get(place, 1))

    @property
    def load_ns(self) -> int:
        """How long its operations ran, all together."""
        return sum(each.run_ns for each in self.operations)

    def _serve(self, place: str, begun: list[Operation], workers: int) -> None:
        """Give each operation the slot of its worker; what ran inline, one that is free."""
        if all(each.inline for each in begun):
            workers = 1
        slots = [Slot(place) for _ in range(workers)]
        named: dict[str, Slot] = {}
        for each in (each for each in begun if not each.inline):
            slot = named.get(each.worker)
            if slot is None or slot.free_ns > each.began_ns:
                free = [s for s in slots if s.free_ns <= each.began_ns]
                unnamed = [s for s in free if s not in named.values()]
                if not free:
                    slots.append(Slot(place))
                slot = named[each.worker] = (unnamed or free or slots[-1:])[0]
            self._enter(slot, each)
        inline = [each for each in begun if each.inline]
        if inline:
            _fit_in(self, slots, inline)
        self.slots += slots

    def _enter(self, slot: Slot, each: Operation) -> None:
        slot.runs.append(each)
        slot.free_ns = each.ended_ns
        self.slot_of[each.number] = slot


def _fit_in(group: Group, slots: list[Slot], inline: list[Operation]) -> None:
    """What the program's own thread computed takes a core, that of a slot which is idle then. Where
    all are busy it is left out: the place is full."""
    for slot in slots:
        begins = [each.began_ns for each in slot.runs]
        taken: list[Operation] = []
        left: list[Operation] = []
        for each in inline:
            k = bisect_right(begins, each.began_ns)
            before = slot.runs[k - 1].ended_ns if k else 0
            after = begins[k] if k < len(begins) else each.ended_ns
            if taken:
                before = max(before, taken[-1].ended_ns)
            fits = before <= each.began_ns and each.ended_ns <= after
            (taken if fits else left).append(each)
        for each in taken:
            group.slot_of[each.number] = slot
        slot.runs = sorted(slot.runs + taken, key=lambda each: each.began_ns)
        inline = left


class Blame:
    """Finds the causes; `groups` are those whose operations computed anything."""

    def __init__(self, trace: Trace, cores: int):
        self.trace = trace
        self.cores = cores
        self.begin_ns, self.end_ns = trace.begin_ns, trace.end_ns
        ran = [each for each in trace.operations if each.began_ns and each.ended_ns]
        self.groups: list[Group] = []
        for name in ("cpu", "gpu"):
            own = [e for e in ran if not e.is_copy and ("cpu" if e.ctx.is_cpu else "gpu") == name]
            if own:
                self.groups.append(Group(name, own, trace.workers))
        self.group_of = {each.number: g for g in self.groups for each in g.operations}
        self._waits: dict[str, list[tuple[int, int, Site | None]]] = {}
        for wait in sorted(trace.waits, key=lambda wait: wait.begin_ns):
            spans = self._waits.setdefault(wait.thread, [])
            begin_ns = max(wait.begin_ns, spans[-1][1]) if spans else wait.begin_ns
            if begin_ns < wait.end_ns:
                spans.append((begin_ns, wait.end_ns, wait.site))
        self._busy_since = self._find_busy()

    def _find_busy(self) -> dict[int, int]:
        """Of each operation, since when its worker had been busy without a pause to speak of."""
        since: dict[int, int] = {}
        for group in self.groups:
            for slot in group.slots:
                before = None
                for each in slot.runs:
                    begin_ns = each.began_ns
                    if before is not None:
                        breath = max(_BREATH_NS, min(before.run_ns, each.run_ns) // 4)
                        if each.began_ns - before.ended_ns <= breath:
                            begin_ns = since[before.number]
                    since[each.number] = begin_ns
                    before = each
        return since

    # -- the idle times of a slot ------------------------------------------------------------------

    def idle(self, group: Group, slot: Slot) -> Iterator[Segment]:
        """Why `slot` had nothing to do, whenever it had not, until its group was done."""
        free_ns = self.begin_ns
        for each in slot.runs:
            yield from self._gap(group, slot, free_ns, each.began_ns)
            free_ns = max(free_ns, each.ended_ns)
        yield from self._gap(group, slot, free_ns, group.end_ns)

    def _gap(self, group: Group, slot: Slot, begin_ns: int, end_ns: int) -> Iterator[Segment]:
        begun = group.begins[slot.place]
        k = bisect_right(begun, begin_ns, key=lambda each: each.began_ns)
        low = begin_ns
        while low < end_ns:
            following = begun[k] if k < len(begun) else None
            high = end_ns if following is None else min(end_ns, following.began_ns)
            if high > low:
                yield from self._walk(following, group, slot, begin_ns, low, high)
            low, k = max(low, high), k + 1

    def _walk(
        self, each: Operation | None, group: Group, slot: Slot, free_ns: int, low: int, high: int
    ) -> Iterator[Segment]:
        """Segments from `high` back to `low`, by what kept back `each`; None: the group's end."""
        now = high
        # All steps lie one after the other in time; what is after `high` is passed over.
        if each is None:
            each = group.last
            for segment in self._running(each, group, slot, free_ns, now):
                if segment.begin_ns < segment.end_ns and segment.end_ns > low:
                    yield _cut(segment, low)
            now = min(now, each.began_ns)
        while now > low:
            for segment in self._kept_back(each, group, slot, now):
                if segment.end_ns > low:
                    yield _cut(segment, low)
                now = segment.begin_ns
            before, done_ns = self._last_before(each)
            if before is None:
                if now > low:
                    yield Segment("unexplained", each.site, low, now)
                return
            for segment in self._running(before, group, slot, free_ns, now):
                if segment.end_ns > low:
                    yield _cut(segment, low)
            now = min(now, before.began_ns or done_ns)
            each = before

    def _kept_back(self, each: Operation, group: Group, slot: Slot, now: int) -> Iterator[Segment]:
        """From `now` back to the end of what `each` came after: not begun, not pushed."""
        before, enabled_ns = self._last_before(each)
        if before is None:
            enabled_ns = self.begin_ns
        pushed_ns = max(each.pushed_ns, enabled_ns)
        ready_ns = max(each.ready_ns or pushed_ns, pushed_ns)
        if ready_ns < now:
            yield from self._queued(each, group, slot, ready_ns, now)
            now = ready_ns
        if pushed_ns < now:
            yield Segment("unexplained", each.site, pushed_ns, now)
            now = pushed_ns
        if enabled_ns < now:
            yield from self.front(each.thread, each.site, enabled_ns, now)

    def _queued(
        self, each: Operation, group: Group, slot: Slot, begin_ns: int, end_ns: int
    ) -> Iterator[Segment]:
        """`each` was ready and had not begun."""
        if each.is_copy:
            yield Segment("transfer", each.site, begin_ns, end_ns)
        elif self.group_of.get(each.number) is not group:
            other = self.group_of.get(each.number)
            few = other is not None and self.spare(other) > 0
            yield Segment("workers" if few else "dependency", each.site, begin_ns, end_ns)
        elif each.place != slot.place:
            yield Segment("imbalance", each.site, begin_ns, end_ns)
        else:  # it had to run where it was, though others were idle; then comes the hand-over
            taken_ns = min(max(self._taken_until(each), begin_ns), end_ns)
            yield from self._handed_over(each, taken_ns, end_ns)
            if begin_ns < taken_ns:
                yield Segment("imbalance", each.site, begin_ns, taken_ns)

    def _taken_until(self, each: Operation) -> int:
        """When the worker that ran it had ended what it ran before."""
        slot = self.group_of[each.number].slot_of.get(each.number)
        if slot is None:
            return 0
        k = bisect_right(slot.runs, each.began_ns, key=lambda run: run.began_ns) - 2
        return slot.runs[k].ended_ns if k >= 0 else 0

    def _handed_over(self, each: Operation, begin_ns: int, end_ns: int) -> Iterator[Segment]:
        """A worker was free and took its time: the program held the interpreter, or others did."""
        for cause, site, begin, end in self.front(each.thread, each.site, begin_ns, end_ns):
            if cause == "waits":
                early = max(begin, min(end, begin_ns + _HAND_OVER_NS))
                if early < end:
                    yield Segment("contention", each.site, early, end)
                end = early
            if begin < end:
                yield Segment("issuing", each.site if cause == "waits" else site, begin, end)

    def front(
        self, thread: str, site: Site | None, begin_ns: int, end_ns: int
    ) -> Iterator[Segment]:
        """A thread of the program: its waits, and between them "issuing" at `site`; backward."""
        waits = self._waits.get(thread, [])
        k = bisect_right(waits, end_ns, key=lambda wait: wait[0]) - 1
        while k >= 0 and begin_ns < end_ns and waits[k][1] > begin_ns:
            begin, end, where = waits[k]
            end = min(end, end_ns)
            if end < end_ns:
                yield Segment("issuing", site, end, end_ns)
            begin = max(begin, begin_ns)
            if begin < end:
                yield Segment("waits", where, begin, end)
            end_ns = begin
            k -= 1
        if begin_ns < end_ns:
            yield Segment("issuing", site, begin_ns, end_ns)

    def _running(
        self, each: Operation, group: Group, slot: Slot, free_ns: int, now: int
    ) -> Iterator[Segment]:
        """`each` ran, and what comes after it could not."""
        if not each.began_ns or each.began_ns >= now:
            return
        if each.is_copy:
            cause = "transfer"
        elif self._is_cut(each) and each.place == slot.place:
            cause = "work"
        elif (
            free_ns > self.begin_ns
            and self.group_of.get(each.number) is group
            and self._busy_since.get(each.number, free_ns) < free_ns
        ):
            cause = "imbalance"
        else:
            cause = "dependency"
        yield Segment(cause, each.site, each.began_ns, now)

    def _is_cut(self, each: Operation) -> bool:
        """Do idle workers of the CPU compute pieces of it? (A trace does not hear of that.)"""
        return each.ctx.is_cpu and _CUT_US <= each.predicted_us < _UNKNOWN_US

    def _last_before(self, each: Operation) -> tuple[Operation | None, int]:
        """Of all that `each` comes after, what ended last, and when."""
        found, done_ns = None, 0
        trace = self.trace
        for k in (*trace.needs(each.number), *trace.makes_room(each.number)):
            before = trace.operations[k - 1]
            if before.ended_ns > done_ns:
                found, done_ns = before, before.ended_ns
        return found, done_ns

    # -- busy times --------------------------------------------------------------------------------

    def spare(self, group: Group) -> int:
        """How many more workers there could be: cores that none of its slots uses."""
        return max(0, self.cores - len(group.slots)) if group.name == "cpu" else 0


def _cut(segment: Segment, low: int) -> Segment:
    return segment if segment.begin_ns >= low else segment._replace(begin_ns=low)
