"""Why a comparison ended as it did, in words, from the measurements: no guess, and no clock here.

Two candidates that should differ and do not have a reason, most often one of these:

- both wait in the midst, at the same line    "both wait at train.py:12 in every step"
- an operation needs the one before it        "... come one after the other ..."
- pushing takes longer than what is pushed    "9 us of work under 14 us of pushing"
- most of it is a single operation, or one worker runs them all, or there is one core
- the first alone keeps all cores busy        (a product of matrices shares itself out)
- another program took a core                 "one of the two cores was busy with something else"
- the rounds scatter                          a difference below that cannot be seen

`causes` lists all that the measurements support, the surest first; a verdict quotes the first.

>>> duration(0.0000093), duration(0.014), duration(0)
('9.3 us', '14 ms', '0 s')
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from d2lmini.d2l.observed import Observed
    from d2lmini.d2l.verdict import Ratio, Verdict

#: Fraction of a call's time below which a part is no cause of that time.
_COUNTS = 0.25
#: Fraction of a call's time above which a part dominates the call.
_RULES = 0.7
#: Rounds whose ratios lie this far apart hide a difference that a reader would expect to see.
_SCATTER = 1.3

_PARTS = {"issue_s": "in the call", "wait_s": "in its own waits", "drain_s": "in draining"}
_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()


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
    if ours.inline == ours.operations >= 2 and ours.issue_s > _RULES * ours.total_s:
        yield f"all operations of {name} ran where they were called, and so nothing ran beside them"
        return
    run_s, enough_s = ours.work_s + ours.inline_s, _RULES * ours.total_s
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
            yield f"{other} alone keeps {busy:.1f} of the {_number(cores)} cores busy"
        if elsewhere is not None and elsewhere >= 0.5:
            taken = min(max(int(elsewhere + 0.4), 1), cores)
            were = "was" if taken == 1 else "were"
            of = "both" if taken == cores == 2 else f"{_number(taken)} of the {_number(cores)}"
            yield f"{of} cores {were} busy with something else"
    ratio = verdict.between(name, other)
    if _scatters(ratio):
        seen = max(ratio.high, 1 / ratio.low)
        yield f"the rounds scatter, a factor below {seen:.1f} cannot be seen in them"


def difference(verdict: Verdict, name: str, other: str) -> Iterator[str]:
    """The parts of a call in which `name` spends less or more than `other`, the greatest first;
    empty if the parts were not measured or neither pushes anything."""
    parts = verdict.parts
    seen = [verdict.observed.get(n) for n in (name, other)]
    if name not in parts or not any(record is not None and record.operations for record in seen):
        return
    more = {part: getattr(parts[name], part) - getattr(parts[other], part) for part in _PARTS}
    least_s = 0.02 * verdict.medians[other]
    told = sorted((p for p in more if abs(more[p]) > least_s), key=lambda p: -abs(more[p]))
    words = [
        f"{duration(abs(more[p]))} {'more' if more[p] > 0 else 'less'} {_PARTS[p]}" for p in told
    ]
    if words:
        yield (
            f"{name} spends {', '.join(words)}, where {other} takes "
            f"{duration(verdict.medians[other])}"
        )


def too_early(verdict: Verdict, name: str, other: str) -> Iterator[str]:
    """The ratio by a clock that stops when the call returns, if that ratio is far from true."""
    parts, seen = verdict.parts, verdict.observed.get(name)
    if name not in parts or seen is None or not seen.in_flight:
        return
    early, others = (parts[n].issue_s + parts[n].wait_s for n in (name, other))
    times = others / max(early, 1e-9)
    if times > max(1.5 / verdict.between(name, other).value, 1.1):
        yield (
            f"a clock that stops when the calls return, with {seen.in_flight} "
            f"operation{'s' * (seen.in_flight != 1)} of {name} in flight, would call it "
            f"{times:.{0 if times >= 10 else 1}f} times faster"
        )


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


def _number(n: int) -> str:
    return _NUMBERS[n] if n < len(_NUMBERS) else str(n)
