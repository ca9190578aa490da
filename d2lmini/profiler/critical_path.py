"""The critical path: the longest chain of events that had to follow one another.

An operation starts neither before its push nor before the end of its dependencies. A thread of the
program is sequential: between two pushes it takes its recorded time, an inline operation takes its
duration, and a wait ends no sooner than the operation it waits for. With any number of workers and
links the run would not be shorter than this path.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.critical_path())

"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.profiler.program import PAUSE, Completions
from d2lmini.profiler.records import Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


class PathStep(NamedTuple):
    """One link of the chain.

    kind        "operation"; "issuing": the program's own time before a push or a wait; "wait": from
                the end of the awaited operation until the program continued
    name        of the operation, or the kind of wait
    operation   its number, for "issuing" the number of the pushed operation; 0: none
    place       where the operation ran; "" for the program's threads
    site        the line of the program
    begin_ns, end_ns    since the start of the trace, if only the path had delayed the step
    recorded_ns         the actual end, since the start of the trace
    """

    kind: str
    name: str
    operation: int
    place: str
    site: Site | None
    begin_ns: int
    end_ns: int
    recorded_ns: int

    @property
    def where(self) -> str:
        """The line of the program: "train.py:12: y = nd.dot(x, w)"."""
        return callsite.describe(self.site)


class ProgramEvent(NamedTuple):
    """A push or a wait, as a thread of the program reaches it.

    what     the pushed operation, or the wait
    number   of the pushed operation; 0: a wait
    thread   the number of the thread; -1: an operation pushed it, as it ran
    before   the number of the previous event on this thread, or of that operation's; -1: none
    gap_ns   the thread's own time since then, or the time since that operation began
    after    a push: the operations that this one depends on; a wait: the awaited operations, or
             none known; _LATEST: all pushed operations
    went_on_ns  a wait: time from the end of those operations until the program continued
    inline   the operation runs on the calling thread
    """

    what: Operation | Wait
    number: int
    thread: int
    before: int
    gap_ns: int
    after: tuple[int, ...]
    went_on_ns: int
    inline: bool


_LATEST = (-1,)


class Walk:
    """The walk through a trace, with a step per operation and wait.

    events      pushes and waits

    length_ns   length of the longest path
    over        per operation: its end (of number 0: 0)
    reached     per event: the time at which its thread reached it; a wait: at which it continued
    held        per event: the operation that delayed it; 0: the previous event on its thread
    last        the operation that ends last; 0: an event is later still
    """

    def __init__(self, trace: Trace):
        self.trace = trace
        self.events: list[ProgramEvent] = []
        self.event_of = [0] * (len(trace.operations) + 1)
        self.durations: list[float] = [operation.run_ns for operation in trace.operations]
        completions = Completions(trace)
        threads: dict[str, tuple[int, int, int]] = {}  # (its number, its last event, time)
        order = trace.order
        for what in _list_events(trace):
            thread, before, recorded = threads.get(what.thread, (len(threads), -1, trace.begin_ns))
            if isinstance(what, Operation):
                number, inline, went_on_ns = what.number, what.inline, 0
                needs, room = order[number - 1]
                after = needs + room
                came_ns, left_ns = what.pushed_ns, what.ended_ns if inline else what.pushed_ns
                self.event_of[number] = len(self.events)
            else:
                number, inline = 0, False
                after, went_on_ns = _find_awaited(what, completions)
                came_ns, left_ns = what.begin_ns, what.end_ns
            if isinstance(what, Operation) and what.by:
                thread, before = -1, self.event_of[what.by]
                recorded = trace[what.by].began_ns
            else:
                threads[what.thread] = (thread, len(self.events), left_ns)
            gap_ns = max(0, came_ns - recorded)
            self.events.append(
                ProgramEvent(what, number, thread, before, gap_ns, after, went_on_ns, inline)
            )
        self._threads = len(threads)
        self._run()

    def _run(self) -> None:
        """Find the longest path."""
        self.over = over = [0.0] * (len(self.durations) + 1)
        self.reached: list[float] = []
        self.held: list[int] = []
        clocks = [0.0] * self._threads
        latest, last_ns = 0, 0.0
        for _, number, thread, before, gap_ns, after, went_on_ns, inline in self.events:
            if thread < 0:
                parent = self.events[before].number
                now = over[parent] - self.durations[parent - 1] + gap_ns
            else:
                now = clocks[thread] + gap_ns
            held = 0
            if number:
                begin = now
                for k in after:
                    if over[k] > begin:
                        begin, held = over[k], k
                over[number] = end = begin + self.durations[number - 1]
                if end > last_ns:
                    latest, last_ns = number, end
                if thread >= 0:
                    clocks[thread] = end if inline else now
            else:
                for k in after if after is not _LATEST else (latest,):
                    if over[k] > now:
                        now, held = over[k], k
                now += went_on_ns
                clocks[thread] = now
            self.reached.append(now)
            self.held.append(held)
        self.length_ns = max([last_ns, *clocks])
        self.last = latest if last_ns == self.length_ns else 0


def _list_events(trace: Trace) -> Iterator[Operation | Wait]:
    """Pushes and waits in the order of their starts."""
    waits = sorted(trace.waits, key=lambda wait: wait.begin_ns)
    k = 0
    for operation in trace.operations:
        while k < len(waits) and waits[k].pushed < operation.number:
            yield waits[k]
            k += 1
        yield operation
    yield from waits[k:]


def _find_awaited(wait: Wait, completions: Completions) -> tuple[tuple[int, ...], int]:
    """The operations that a wait waited for, and the program's delay after their end."""
    awaited, done_ns = completions.find_awaited(wait)
    after = _LATEST if awaited is None else awaited
    if wait.kind == PAUSE:
        done_ns, last = 0, completions.last_until(wait.end_ns)
        if last is not None and last.number <= wait.pushed:
            after, done_ns = (last.number,), last.ended_ns
    return after, max(0, wait.end_ns - max(done_ns, wait.begin_ns))


class CriticalPath:
    """The longest chain: `steps`, the earliest first, and its `length_ns`; `wall_ns` is the
    duration of the run. Prints as a table of the lines with most time on the path."""

    def __init__(self, trace: Trace):
        walk = Walk(trace)
        self.length_ns = walk.length_ns
        self.wall_ns = trace.end_ns - trace.begin_ns
        self.steps: list[PathStep] = []
        event, runs = walk.event_of[walk.last], walk.last > 0
        if not runs:  # the path ends with a thread of the program
            event = max(range(len(walk.events)), key=walk.reached.__getitem__, default=-1)
        while event >= 0:
            this, held = walk.events[event], walk.held[event]
            what = this.what
            before = (this.before, this.before >= 0 and walk.events[this.before].inline)
            if runs:
                node = (walk.event_of[held], True) if held else (event, False)
                self._add(walk, what, "operation", node, walk.over[this.number])
            elif this.thread < 0:  # the part of the other operation's run before the push
                event_of_parent, held = this.before, walk.held[this.before]
                node = (walk.event_of[held], True) if held else (event_of_parent, False)
                parent = walk.events[event_of_parent].what
                self._add(walk, parent, "operation", node, walk.reached[event])
            elif this.number:
                node = before
                self._add(walk, what, "issuing", node, walk.reached[event])
            elif held:
                node = (walk.event_of[held], True)
                self._add(walk, what, "wait", node, walk.reached[event])
            else:
                node = before
                self._add(walk, what, "wait", node, walk.reached[event], this.gap_ns)
                self._add(walk, what, "issuing", node, walk.reached[event] - this.went_on_ns)
            event, runs = node
        self.steps.reverse()

    def _add(
        self,
        walk: Walk,
        what: Operation | Wait,
        kind: str,
        after: tuple[int, bool],
        end_ns: float,
        later_ns: int = 0,
    ) -> None:
        """A step that starts at the end of node `after`, or `later_ns` later."""
        event, runs = after
        begin_ns: float = later_ns
        if event >= 0:
            begin_ns += walk.over[walk.events[event].number] if runs else walk.reached[event]
        if end_ns > begin_ns:
            zero_ns = walk.trace.begin_ns
            self.steps.append(_step(what, kind, round(begin_ns), round(end_ns), zero_ns))

    @property
    def operations(self) -> list[int]:
        """The numbers of the operations on the path."""
        return [step.operation for step in self.steps if step.kind == "operation"]

    def __str__(self) -> str:
        share = 100 * self.length_ns / (self.wall_ns or 1)
        lines = [
            f"critical path: {self.length_ns / 1e6:.2f} ms of {self.wall_ns / 1e6:.2f} ms "
            f"({share:.0f} %), {len(self.operations)} operations"
        ]
        by_line: dict[tuple[str, str], list[int]] = {}
        where_of = cache(callsite.describe)  # a line has several sites
        for step in self.steps:
            of_line = by_line.setdefault((step.kind, where_of(step.site)), [0, 0])
            of_line[0] += step.end_ns - step.begin_ns
            of_line[1] += 1
        most = sorted(by_line.items(), key=lambda item: -item[1][0])[:8]
        for (kind, where), (ns, times) in most:
            lines.append(f"{ns / 1e6:10.2f} ms  {kind:<9} {times:>6} x  {where}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<critical path of {len(self.steps)} steps, {self.length_ns / 1e6:.2f} ms>"


def _step(what: Operation | Wait, kind: str, begin_ns: int, end_ns: int, zero_ns: int) -> PathStep:
    if isinstance(what, Wait):
        recorded_ns = (what.begin_ns if kind == "issuing" else what.end_ns) - zero_ns
        return PathStep(kind, what.kind, 0, "", what.site, begin_ns, end_ns, recorded_ns)
    runs = kind == "operation"
    recorded_ns = (what.ended_ns if runs else what.pushed_ns) - zero_ns
    place = what.place if runs and not what.inline else ""
    return PathStep(kind, what.name, what.number, place, what.site, begin_ns, end_ns, recorded_ns)
