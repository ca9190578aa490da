"""Differences between two runs: operations, waits, times.

    print(before.diff(after))

The lines of the two programs are matched by their text; a changed line is compared with the first
changed line of the other that does the same. Within a line the operations of each name are counted.

>>> from d2lmini import engine, nd, profile
>>> def program(twice):
...     with profile() as trace:
...         a = nd.ones((2, 2))
...         if twice:
...             a = a * 2
...         a += 1
...     return trace
>>> diff = program(False).diff(program(True))
>>> [(found.kind, found.name, found.n) for found in diff.of("added")]
[('added', '_mul_scalar', 1)]

Times come from single runs: a difference is reported only if it is more than a fifth of the larger
time, more than a fiftieth of the longer run and more than a millisecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.profiler.records import Operation, Wait, begin_of

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: A change counts above this part of the larger time, above this part of the longer run, and above
#: this many seconds. Smaller changes are noise.
OF_ITSELF, OF_RUN, NOISE_S = 0.2, 0.02, 1e-3
#: Waits up to this part of the larger time count as absent.
OF_NEW = 0.1

#: Kinds of findings, in the order of the table.
KINDS = ("added", "removed", "newly waiting", "no longer waiting", "slower", "faster")


class Finding(NamedTuple):
    """One difference.

    kind           one of `KINDS`
    where          the line, in the run that has it (the later run, if both have)
    name           of the operation or kind of wait
    n              number of operations or waits
    before, after  seconds in both runs
    """

    kind: str
    where: str
    name: str
    n: int
    before: float
    after: float

    def __str__(self) -> str:
        change = f"{1e3 * self.before:.2f} ms -> {1e3 * self.after:.2f} ms"
        return f"{self.kind:20} {self.n:>5} {self.name:32} {change:24} {self.where}"


class Diff:
    """The differences between two traces; `findings` are in the order of `KINDS`, within a kind in
    program order."""

    def __init__(self, before: Trace, after: Trace):
        self.was_s, self.now_s = before.seconds, after.seconds
        self.least_s = max(NOISE_S, OF_RUN * max(self.was_s, self.now_s))
        found = [
            finding
            for pair in _pair_lines(_lines_of(before), _lines_of(after))
            for finding in self._compare(*pair)
        ]
        self.findings = sorted(found, key=lambda finding: KINDS.index(finding.kind))

    def of(self, kind: str) -> list[Finding]:
        """The findings of one kind; ValueError if there is no such kind."""
        if kind not in KINDS:
            raise ValueError(
                f"diff: {kind!r} is not a kind of finding; there are {', '.join(KINDS)}"
            )
        return [finding for finding in self.findings if finding.kind == kind]

    def __str__(self) -> str:
        head = (
            f"{1e3 * self.was_s:.2f} ms -> {1e3 * self.now_s:.2f} ms, "
            f"{self.now_s / max(self.was_s, 1e-9):.2f} times as long"
        )
        return "\n".join([head, *(map(str, self.findings) if self.findings else ["no difference"])])

    def __repr__(self) -> str:
        return f"<{len(self.findings)} differences>"

    def _compare(self, old: Line | None, new: Line | None) -> Iterator[Finding]:
        """The differences of a line, in its operations and its waits."""
        where = (new or old).where  # type: ignore[union-attr]
        for what, gone, come in (
            ("operations", "removed", "added"),
            ("waits", "no longer waiting", "newly waiting"),
        ):
            was, now = (getattr(line, what) if line else {} for line in (old, new))
            for name in dict.fromkeys([*was, *now]):
                before, after = was.get(name, []), now.get(name, [])
                a, b = sum(before), sum(after)
                if len(before) != len(after):
                    kind = come if len(after) > len(before) else gone
                    yield Finding(kind, where, name, abs(len(after) - len(before)), a, b)
                elif abs(b - a) > max(OF_ITSELF * max(a, b), self.least_s):
                    kind = "slower" if b > a else "faster"
                    # A call that found its value ready in one run and waited in the other.
                    if what == "waits" and min(a, b) <= OF_NEW * max(a, b):
                        kind = come if b > a else gone
                    yield Finding(kind, where, name, len(after), a, b)


class Line:
    """A line of a program, and the seconds of its activities in a run: of operations by their name,
    and of waits by their kind."""

    def __init__(self, where: str):
        self.where = where
        self.operations: dict[str, list[float]] = defaultdict(list)
        self.waits: dict[str, list[float]] = defaultdict(list)

    @property
    def names(self) -> set[str]:
        """The names of its operations and waits."""
        return {*self.operations, *self.waits}


def _lines_of(trace: Trace) -> dict[str, Line]:
    """The active lines by their text, in the order of their first activity."""
    lines: dict[str, Line] = {}
    activities: list[Operation | Wait] = [*trace.operations, *trace.waits]
    for activity in sorted(activities, key=begin_of):
        place, _, text = activity.where.partition(": ")
        line = lines.setdefault(text or place, Line(activity.where))
        if isinstance(activity, Wait):
            line.waits[activity.kind].append(activity.seconds)
        else:
            line.operations[activity.name].append(activity.run_ns / 1e9)
    return lines


def _pair_lines(
    old: dict[str, Line], new: dict[str, Line]
) -> Iterator[tuple[Line | None, Line | None]]:
    """Each line and its partner in the other run: the same text, or of the lines that only the
    other has the first that does the same."""
    come = {text: line for text, line in new.items() if text not in old}
    for text, line in old.items():
        if text in new:
            yield line, new[text]
        else:
            same = next((text for text, other in come.items() if other.names == line.names), None)
            yield line, None if same is None else come.pop(same)
    for line in come.values():
        yield None, line
