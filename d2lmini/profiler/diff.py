"""Differences between two runs: operations, places, waits, overlaps, times.

    print(before.diff(after))

The lines of the two programs are aligned by their text, in the order of their first activity, so an
inserted line does not shift all others; a changed line is compared with the line in its place, if
both issue the same operations. Within a line operations are aligned by their names.

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

Times and overlaps come from single runs: a difference is reported only if it is more than a fifth
of the larger time, more than a fiftieth of the longer run and more than a millisecond.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.profiler.records import Operation, Wait
    from d2lmini.profiler.tracing import Trace

#: A change counts above this part of the larger time, above this part of the longer run, and above
#: this many seconds. Smaller changes are noise.
OF_ITSELF, OF_RUN, NOISE_S = 0.2, 0.02, 1e-3
#: Times up to this part of the larger time count as absent.
OF_NEW = 0.1

#: A line with more operations is aligned by counting the operations of each name.
MANY = 500

#: Kinds of findings, in the order of the table.
KINDS = (
    "added", "removed", "moved", "newly waiting", "no longer waiting", "newly overlapped",
    "no longer overlapped", "slower", "faster",
)  # fmt: skip

#: (operation before, operation after); None: it has no partner.
Pairs = list[tuple["Operation | None", "Operation | None"]]


class Finding(NamedTuple):
    """One difference.

    kind           one of `KINDS`
    where          the line, in the run that has it (the later run, if both have)
    name           of the operation or kind of wait; "a | b" for an overlap
    n              number of operations or waits
    before, after  places (moved) or seconds (other kinds); None if absent
    """

    kind: str
    where: str
    name: str
    n: int
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        text = f"{self.kind:20} {self.n:>5} {self.name:32} {_change(self.before, self.after):24}"
        return f"{text} {self.where}"


def _change(before: Any, after: Any) -> str:
    if before is None and after is None:
        return ""
    words = [_words(value) for value in (before, after) if value is not None]
    return " -> ".join(words)


def _words(value: Any) -> str:
    return value if isinstance(value, str) else f"{1e3 * value:.2f} ms"


class Diff:
    """The differences between two traces.

    findings  in the order of `KINDS`, within a kind in program order
    pairs     (number before, number after) of every operation; 0 without a partner
    """

    def __init__(self, before: Trace, after: Trace):
        self.before = before
        self.after = after
        self.least_s = max(NOISE_S, OF_RUN * max(_seconds(before), _seconds(after)))
        self.pairs: list[tuple[int, int]] = []
        found: list[Finding] = []
        groups: dict[Site | None, int] = {}
        for i, (old, new) in enumerate(_pair_lines(_lines(before), _lines(after))):
            for line in (old, new):
                groups.update((site, i) for site in (line.sites if line else ()))
            found += self._operations(old, new)
            found += self._waits(old, new)
        found += self._overlaps(groups)
        self.findings = sorted(found, key=lambda finding: KINDS.index(finding.kind))
        self.pairs.sort(key=lambda pair: (pair[1] or pair[0], pair[0]))

    def of(self, kind: str) -> list[Finding]:
        """The findings of one kind; ValueError if there is no such kind."""
        if kind not in KINDS:
            raise ValueError(
                f"diff: {kind!r} is not a kind of finding; there are {', '.join(KINDS)}"
            )
        return [finding for finding in self.findings if finding.kind == kind]

    def __str__(self) -> str:
        was, now = _seconds(self.before), _seconds(self.after)
        head = f"{1e3 * was:.2f} ms -> {1e3 * now:.2f} ms, {now / max(was, 1e-9):.2f} times as long"
        lines = [str(finding) for finding in self.findings] or ["no other difference"]
        return "\n".join([head, *lines])

    def __repr__(self) -> str:
        return f"<{len(self.findings)} differences>"

    def _operations(self, old: Line | None, new: Line | None) -> Iterator[Finding]:
        """Operations of a line that were added, removed or moved, and changed times."""
        pairs = _pair(old.operations if old else [], new.operations if new else [])
        self.pairs += [(a.number if a else 0, b.number if b else 0) for a, b in pairs]
        where = _where(old, new)
        lone: Counter[tuple[str, str]] = Counter()
        moved: Counter[tuple[str, str, str]] = Counter()
        times: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for a, b in pairs:
            one = a or b
            assert one is not None
            if a is None or b is None:
                lone["added" if a is None else "removed", one.name] += 1
            else:
                if a.place != b.place:
                    moved[a.name, a.place, b.place] += 1
                entry = times[a.name]
                for i, more in enumerate((1, a.run_ns / 1e9, b.run_ns / 1e9)):
                    entry[i] += more
        for (kind, name), n in lone.items():
            yield Finding(kind, where, name, n)
        for (name, place, to), n in moved.items():
            yield Finding("moved", where, name, n, place, to)
        for name, (many, was, now) in times.items():
            if self._differ(was, now):
                kind = "slower" if now > was else "faster"
                yield Finding(kind, where, name, int(many), was, now)

    def _waits(self, old: Line | None, new: Line | None) -> Iterator[Finding]:
        """Lines with more or fewer waits, or with longer or shorter waits. A call that found its
        value ready in one run and waited in the other counts as a new wait."""
        sides = []
        for line in (old, new):
            found: dict[str, list[float]] = defaultdict(list)
            for wait in line.waits if line else ():
                found[wait.kind].append(wait.seconds)
            sides.append(found)
        for kind in dict.fromkeys([*sides[0], *sides[1]]):
            was, now = (side.get(kind, []) for side in sides)
            before, after = sum(was), sum(now)
            if len(now) != len(was):
                name = "newly waiting" if len(now) > len(was) else "no longer waiting"
                n = abs(len(now) - len(was))
            elif self._differ(before, after):
                n, longer = len(now), after > before
                if min(before, after) <= OF_NEW * max(before, after):
                    name = "newly waiting" if longer else "no longer waiting"
                else:
                    name = "slower" if longer else "faster"
            else:
                continue
            yield Finding(name, _where(old, new), kind, n, before, after)

    def _overlaps(self, groups: dict[Site | None, int]) -> Iterator[Finding]:
        """Operations that overlap in one run only."""
        was, now = (_together(trace, groups) for trace in (self.before, self.after))
        for pair in dict.fromkeys([*now, *was]):
            a, b = was.get(pair), now.get(pair)
            before, after = (0.0 if found is None else found[0] for found in (a, b))
            # Consecutive operations may overlap a little.
            if min(before, after) <= OF_NEW * max(before, after) and self._differ(before, after):
                kind = "newly overlapped" if after > before else "no longer overlapped"
                seen = b if after > before else a
                assert seen is not None
                x, y = seen[1]
                where = x.where if x.site == y.site else f"{x.where} | {y.where}"
                yield Finding(kind, where, f"{x.name} | {y.name}", seen[2], before, after)

    def _differ(self, was: float, now: float) -> bool:
        return abs(now - was) > max(OF_ITSELF * max(was, now), self.least_s)


# -- aligning --------------------------------------------------------------------------------------


class Line:
    """A line of a program, and its activity in a run."""

    def __init__(self, where: str):
        place, _, text = where.partition(": ")
        self.where = where
        self.text = text or place
        self.sites: set[Site | None] = set()
        self.operations: list[Operation] = []
        self.waits: list[Wait] = []

    @property
    def names(self) -> set[str]:
        """The names of its operations and waits."""
        return {wait.name for wait in self.operations} | {wait.kind for wait in self.waits}


def _lines(trace: Trace) -> list[Line]:
    """The active lines, in the order of their first activity."""
    events: list[tuple[int, Any]] = [
        (operation.pushed_ns, operation) for operation in trace.operations
    ]
    events += [(wait.begin_ns, wait) for wait in trace.waits]
    events.sort(key=lambda event: event[0])
    where: dict[Site | None, Line] = {}
    lines: dict[str, Line] = {}
    for _, event in events:
        line = where.get(event.site)
        if line is None:
            line = where[event.site] = lines.setdefault(event.where, Line(event.where))
            line.sites.add(event.site)
        (line.waits if hasattr(event, "kind") else line.operations).append(event)
    return list(lines.values())


def _pair_lines(
    old: Sequence[Line], new: Sequence[Line]
) -> Iterator[tuple[Line | None, Line | None]]:
    """Each line and its partner in the other run."""
    left: tuple[list[Line], list[Line]] = ([], [])
    texts = [line.text for line in old], [line.text for line in new]
    for same, i, j, k, m in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if same == "equal":
            yield from zip(old[i:j], new[k:m], strict=True)
            continue
        for a in old[i:j]:  # changed in place: the next line that does the same
            b = next((n for n in range(k, m) if new[n].names == a.names), None)
            if b is None:
                left[0].append(a)
            else:
                left[1].extend(new[k:b])
                yield a, new[b]
                k = b + 1
        left[1].extend(new[k:m])
    for a in left[0]:  # the same text, elsewhere
        same_text = next((line for line in left[1] if line.text == a.text), None)
        if same_text is not None:
            left[1].remove(same_text)
        yield a, same_text
    for line in left[1]:
        yield None, line


def _pair(old: Sequence[Operation], new: Sequence[Operation]) -> Pairs:
    """The operations of a line in both runs, aligned by their names."""
    a, b = [operation.name for operation in old], [operation.name for operation in new]
    most = min(len(a), len(b))
    start = next((i for i in range(most) if a[i] != b[i]), most)
    most -= start
    end = next((i for i in range(most) if a[-1 - i] != b[-1 - i]), most)
    pairs: Pairs = list(zip(old[:start], new[:start], strict=True))
    middle = old[start : len(a) - end], new[start : len(b) - end]
    pairs += (_match_by_count if max(map(len, middle)) > MANY else _match_runs)(*middle)
    if end:
        pairs += zip(old[-end:], new[-end:], strict=True)
    return pairs


def _match_runs(old: Sequence[Operation], new: Sequence[Operation]) -> Pairs:
    """The longest runs of equal names first."""
    pairs: Pairs = []
    names = [operation.name for operation in old], [operation.name for operation in new]
    for same, i, j, k, m in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if same == "equal":
            pairs += zip(old[i:j], new[k:m], strict=True)
        else:
            pairs += [(x, None) for x in old[i:j]] + [(None, y) for y in new[k:m]]
    return pairs


def _match_by_count(old: Sequence[Operation], new: Sequence[Operation]) -> Pairs:
    """The first operation of a name with the first of that name, and so on."""
    waiting: dict[str, list[Operation]] = defaultdict(list)
    for operation in reversed(old):
        waiting[operation.name].append(operation)
    pairs: Pairs = [
        (waiting[operation.name].pop() if waiting[operation.name] else None, operation)
        for operation in new
    ]
    return pairs + [(operation, None) for rest in waiting.values() for operation in reversed(rest)]


def _together(
    trace: Trace, groups: dict[Site | None, int]
) -> dict[tuple[Any, Any], tuple[float, tuple[Operation, Operation], int]]:
    """For two kinds of operation (of the same line, with the same name): the seconds of overlap,
    the first that overlapped, and their number."""
    moments: list[tuple[int, int, Operation]] = []
    for operation in trace.operations:
        if operation.run_ns:
            moments += [(operation.began_ns, 1, operation), (operation.ended_ns, 0, operation)]
    moments.sort(key=lambda moment: (*moment[:2], moment[2].number))
    running: dict[int, Operation] = {}
    found: dict[tuple[Any, Any], tuple[float, tuple[Operation, Operation], int]] = {}
    for _, begins, operation in moments:
        if begins:
            running[operation.number] = operation
            continue
        del running[operation.number]
        for other in running.values():
            both = (operation.ended_ns - max(operation.began_ns, other.began_ns)) / 1e9
            x, y = sorted((operation, other), key=lambda o: (groups[o.site], o.name, o.number))
            key = (groups[x.site], x.name), (groups[y.site], y.name)
            seconds, first, n = found.get(key, (0.0, (x, y), 0))
            found[key] = (seconds + both, first, n + 1)
    return found


def _where(old: Line | None, new: Line | None) -> str:
    line = new or old
    assert line is not None
    return line.where


def _seconds(trace: Trace) -> float:
    return (trace.end_ns - trace.begin_ns) / 1e9


def diff(before: Trace, after: Trace) -> Diff:
    """The differences in `after`; see `Trace.diff`."""
    return Diff(before, after)
