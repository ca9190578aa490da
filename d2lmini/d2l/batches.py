"""Where the batches of a traced program end, and which waits belong to a batch.

>>> from d2lmini import autograd, nd, profile
>>> w, X = nd.ones((2,)), nd.ones((2,))
>>> w.attach_grad()
>>> with profile() as trace:
...     for _ in range(3):
...         with autograd.record():
...             l = (w * X).sum()
...         l.backward()
...         w[:] = w - 0.1 * w.grad
>>> [trace[number].name for number in find_ends(trace)]
['_assign', '_assign', '_assign']

An operator that updates weights ends a batch. If the program has none, it updates by hand: then
the line counts whose operations depend, through `backward`, on those of the same line before. In a
loop of training every line of the step does, forward too; the last of them is the update.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from d2lmini import callsite
from d2lmini.profiler.records import Wait
from d2lmini.profiler.tracing import Trace


def find_ends(trace: Trace) -> list[int]:
    """The numbers of the operations that end a batch; empty if none is known."""
    updates: dict[int, list[int]] = defaultdict(list)  # of each weight
    for operation in trace.operations:
        if "update" in operation.name:
            for serial in operation.writes:
                updates[serial].append(operation.number)
    if updates:
        return max(updates.values(), key=len)
    return _ends_by_hand(trace)


def _ends_by_hand(trace: Trace) -> list[int]:
    lines = _lines(trace)
    sites = {operation.site for operation in trace.operations}
    backward = {callsite.same_line(s) for s in sites if "backward(" in callsite.describe(s)}
    rounds = [_rounds(trace, lines, line, backward) for line in dict.fromkeys(lines[1:])]
    best = max(rounds, key=lambda ends: (len(ends), ends[-1:]), default=[])
    return best if len(best) > 1 else []


def _rounds(trace: Trace, lines: list[Any], line: Any, backward: set[Any]) -> list[int]:
    """The last operation of each round of `line`: a round begins when an operation of the line
    depends on one of the round before, through other lines, one of them in `backward`."""
    # For each operation the last round it depends on: in any way, and through `backward`.
    plain, through = [0], [0]
    ends: dict[int, int] = {}
    for number in range(1, len(lines)):
        needs = [n for n in trace.needs(number) if n < number]
        any_way = max((plain[n] for n in needs), default=0)
        round_ = max((through[n] for n in needs), default=0)
        if lines[number] == line:
            ends[round_ + 1] = number
            any_way = round_ + 1
        elif lines[number] in backward or not backward:
            round_ = any_way
        plain.append(any_way)
        through.append(round_)
    return list(ends.values())


def _lines(trace: Trace) -> list[Any]:
    """The line of each operation, by number."""
    known = {o.site: callsite.same_line(o.site) for o in trace.operations}
    return [None, *(known[operation.site] for operation in trace.operations)]


def waits_of_parts(
    trace: Trace, cuts: Sequence[int], waits: Sequence[Wait], batches: bool
) -> list[list[Wait]]:
    """The waits of each part between two of the operations `cuts`.

    The first of the `batches` begins before the first of the cuts, and what stands outside the loop
    does not count: before the first batch, or once in an epoch. It lies before the first operation
    of a part whose line is in most parts, at a line whose waits are not.
    """
    lines = _lines(trace)
    parts = [range(begin + 1, end + 1) for begin, end in zip([0, *cuts], cuts)]
    usual = _in_most(parts, lambda part: {lines[number] for number in part})
    bodies = [next((n for n in part if lines[n] in usual), part.start) for part in parts]
    found: list[list[Wait]] = [[] for _ in range(len(parts) + 1)]
    for wait in waits:
        found[bisect_left(cuts, wait.pushed + 1)].append(wait)
    found.pop()
    if not batches:
        return found[1:]
    usual_waits = _in_most(found, lambda part: {callsite.same_line(wait.site) for wait in part})
    return [
        [w for w in part if w.pushed >= body or callsite.same_line(w.site) in usual_waits]
        for part, body in zip(found, bodies)
    ]


def _in_most(parts: Sequence[Any], lines_of: Any) -> set[Any]:
    """The lines in at least half of the parts."""
    counts: dict[Any, int] = defaultdict(int)
    for part in parts:
        for line in lines_of(part):
            counts[line] += 1
    return {line for line, count in counts.items() if 2 * count >= len(parts)}
