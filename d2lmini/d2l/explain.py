"""Why a comparison ended as it did, in words, from the measurements: no guess, and no clock here.

Two candidates that should differ and do not have a reason, most often one of these:

- both wait in the midst, at the same line    "both wait at train.py:12 in every step"
- an operation needs the one before it        "... come one after the other ..."
- pushing takes longer than what is pushed    "9 us of work under 14 us of pushing"
- most of it is a single operation, or one worker runs them all, or there is one core
- the first alone keeps all cores busy        (a product of matrices shares itself out)
- another program took a core                 "1 of the 2 cores was busy with something else"
- the rounds scatter                          a difference below that cannot be seen

`causes` lists all that the measurements support, the surest first; a verdict quotes the first.

Timed rounds run undisturbed. One more round runs under `profile()`, which shows what a stopwatch
cannot: how long the function itself waited and at which lines, how long its operations took, and
which of them depended on which:

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     y = nd.ones((2, 2)) + 1
>>> seen = summarize(trace, begin_s=trace.begin_ns / 1e9, returned_s=trace.end_ns / 1e9)
>>> seen.operations, seen.inline, seen.waits, duration(0.0000093)
(2.0, 2.0, {}, '9.3 us')
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from d2lmini.base import callsite
from d2lmini.profiler.event_graph import longest_chain
from d2lmini.profiler.records import this_thread

if TYPE_CHECKING:
    from d2lmini.d2l.verdict import Ratio, Verdict
    from d2lmini.profiler import Operation, Trace


# -- one observed round ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Observed:
    """One call of a candidate, on average over the calls of the observed round; times in seconds.

    operations    number of pushed operations; inline: those that ran on the calling thread
    returned_s    until the call returned; wait_s: the part of it in the function's own waits
    drain_s       from then until nothing was in flight
    work_s        the workers' time, added up; inline_s: the caller's time for inline operations
    chain_s       the part of that time that was serial: the longest chain of operations in which
                  each depends on the previous one
    longest       the longest operation: its name and its time
    workers       threads that serve the places where its operations ran
    waits         {line: (times, seconds)} of the waits after which the call pushed more
    """

    operations: float
    inline: float
    returned_s: float
    wait_s: float
    drain_s: float
    work_s: float
    inline_s: float
    chain_s: float
    workers: int
    longest: tuple[str, float]
    waits: dict[str, tuple[float, float]]

    @property
    def total_s(self) -> float:
        """The time until all its work was done."""
        return self.returned_s + self.drain_s


def summarize(
    trace: Trace, begin_s: float, returned_s: float, marks: Sequence[int] = ()
) -> Observed:
    """Sum up a trace of calls that began at `begin_s` and had returned at `returned_s` (seconds of
    `time.perf_counter`). marks: how many operations had been pushed when each call returned; one
    call if none is given."""
    operations = trace.operations
    marks = marks or [len(operations)]
    calls = len(marks)
    thread = this_thread()
    # Another thread's waits, and anything outside the calls, are no part of a call's time.
    waits = [
        wait
        for wait in trace.waits
        if wait.thread == thread and begin_s <= wait.begin_ns / 1e9 <= returned_s
    ]
    lines: dict[str, tuple[float, float]] = {}
    ends = set(marks)
    for wait in waits:
        if wait.pushed not in ends:
            line = callsite.describe(wait.site).partition(": ")[0]
            times, seconds = lines.get(line, (0.0, 0.0))
            lines[line] = (times + 1 / calls, seconds + wait.seconds / calls)
    inline = [operation for operation in operations if operation.inline]
    inline_ns = sum(operation.run_ns for operation in inline)
    all_ns = sum(operation.run_ns for operation in operations)
    places = {operation.place for operation in operations if not operation.inline}
    return Observed(
        operations=len(operations) / calls,
        inline=len(inline) / calls,
        returned_s=(returned_s - begin_s) / calls,
        wait_s=sum(wait.seconds for wait in waits) / calls,
        drain_s=max(trace.end_ns / 1e9 - returned_s, 0.0) / calls,
        work_s=(all_ns - inline_ns) / 1e9 / calls,
        inline_s=inline_ns / 1e9 / calls,
        chain_s=longest_chain(trace, (o.run_ns for o in operations)) / 1e9 / calls,
        workers=sum(trace.workers.get(place, 1) for place in places),
        longest=_longest(operations, marks),
        waits=lines,
    )


def _longest(operations: Sequence[Operation], marks: Sequence[int]) -> tuple[str, float]:
    """Name and seconds of a call's longest operation, from the averages over the calls."""
    calls = [operations[begin:end] for begin, end in zip([0, *marks], marks)]
    longest = [max(call, key=lambda operation: operation.run_ns) for call in calls if call]
    if not longest:
        return "", 0.0
    return longest[0].name, sum(operation.run_ns for operation in longest) / 1e9 / len(longest)


# -- causes ----------------------------------------------------------------------------------------

#: Fraction of a call's time below which a part is no cause of that time.
_COUNTS = 0.25
#: Fraction of a call's time above which a part dominates the call.
_RULES = 0.7
#: Rounds whose ratios lie this far apart hide a difference that a reader would expect to see.
_SCATTER = 1.3


def causes(verdict: Verdict, name: str, other: str) -> list[str]:
    """Why no difference between `name` and `other` was measured, the surest cause first; only
    causes that the measurements support, and so perhaps none. Where the rounds scatter, no cause
    inside the programs is sure, and what disturbed them comes first."""
    ours, theirs = verdict.observed.get(name), verdict.observed.get(other)
    inside: list[str] = []
    if ours is not None and theirs is not None:
        inside += _waits(name, other, ours, theirs)
        inside += _pushing(verdict, name, other)
        inside += _nothing_beside(name, ours)
    machine = [*_from_the_machine(verdict, name, other)]
    return [*machine, *inside] if _scatters(verdict.between(name, other)) else [*inside, *machine]


def _scatters(ratio: Ratio) -> bool:
    return ratio.high > _SCATTER * ratio.low


def _waits(name: str, other: str, ours: Observed, theirs: Observed) -> Iterator[str]:
    """Both wait before their end, and push more only afterwards: at the same line, or at two
    lines."""
    mine, its = _long_waits(ours), _long_waits(theirs)
    shared = [line for line in mine if line in its]
    for line in shared:
        often = "in every step" if min(mine[line], its[line]) >= 2 else "before they go on pushing"
        yield f"both wait at {line} {often}"
    if mine and its and not shared:
        yield f"{other} waits at {next(iter(its))}, and {name} at {next(iter(mine))}"


def _long_waits(seen: Observed) -> dict[str, float]:
    """The lines at which a call waits for long before its end, and how often."""
    return {
        line: times
        for line, (times, seconds) in seen.waits.items()
        if seconds > _COUNTS * seen.total_s
    }


def _pushing(verdict: Verdict, name: str, other: str) -> Iterator[str]:
    """Most of both is pushing: the workers do the work meanwhile, in whatever order. The time of
    pushing comes from the timed rounds, because a trace costs the caller time, too."""
    for version in (name, other):
        seen = verdict.observed[version]
        if seen.operations < 1 or seen.inline > 0.1 * seen.operations:
            return
        if verdict.parts[version].issue_s < _RULES * verdict.medians[version]:
            return
    operations = verdict.observed[name].operations
    work_s = verdict.observed[name].work_s / operations
    push_s = verdict.parts[name].issue_s / operations
    if work_s < push_s:
        yield f"{duration(work_s)} of work under {duration(push_s)} of pushing"


def _nothing_beside(name: str, ours: Observed) -> Iterator[str]:
    """The operations run one at a time."""
    enough_s = _RULES * ours.total_s
    if ours.inline == ours.operations >= 2 and ours.returned_s - ours.wait_s > enough_s:
        yield f"all operations of {name} ran where they were called, and so nothing ran beside them"
        return
    run_s = ours.work_s + ours.inline_s
    longest, longest_s = ours.longest
    if longest_s > enough_s:
        # Several operations as long as that ran at the same time, or one of many was delayed.
        if longest_s > _RULES * run_s:
            yield f"most of {name} is one operation, {longest}, of {duration(longest_s)}"
    elif ours.chain_s > enough_s and ours.chain_s > 0.9 * run_s:
        yield f"the operations of {name} come one after the other, each after the one before"
    elif ours.chain_s > enough_s:
        chain, whole = duration(ours.chain_s), duration(ours.total_s)
        yield f"operations of {name} that come one after the other take {chain} of its {whole}"
    elif ours.workers == 1 and run_s > enough_s and not _long_waits(ours):
        yield f"one worker runs all operations of {name}"


def _from_the_machine(verdict: Verdict, name: str, other: str) -> Iterator[str]:
    cores, busy, elsewhere = verdict.cores, verdict.cores_busy.get(other), verdict.elsewhere
    if cores == 1:
        yield "this process has one core"
    elif cores is not None:
        if busy is not None and busy > 0.85 * cores:
            yield f"{other} alone keeps {busy:.1f} of the {cores} cores busy"
        if elsewhere is not None and elsewhere >= 0.5:
            taken = min(max(int(elsewhere + 0.4), 1), cores)
            were = "was" if taken == 1 else "were"
            yield f"{taken} of the {cores} cores {were} busy with something else"
    ratio = verdict.between(name, other)
    if _scatters(ratio):
        seen = max(ratio.high, 1 / ratio.low)
        yield f"the rounds scatter, a factor below {seen:.1f} cannot be seen in them"


def duration(seconds: float) -> str:
    """Two digits and a unit: "9.3 us"; "0 s" for less than a tenth of a nanosecond."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if round(seconds / size, 3) >= 1 or unit == "ns":
            break
    value = seconds / size
    if value < 0.1:
        return "0 s"
    digits = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
    return f"{digits} {unit}"
