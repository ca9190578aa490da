"""Stragglers: the ranks for which the others waited in collectives, and what these were late with.

    print(d2lmini.profiler.merge(["t0.json.gz", "t1.json.gz"]).stragglers())

In a merged trace (`merge`) every rank has a time at which it came to a collective. The last one
made the others wait; what it was late with is found by walking back from there, through the
operations that the collective needed, to the time at which the first rank came.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from d2lmini.base import MXNetError
from d2lmini.callsite import describe
from d2lmini.engine.worker_pools import WIRE
from d2lmini.profiler.records import Operation, PlacedOperation

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


@dataclass(frozen=True)
class Straggler:
    """A rank, as the last one of the collectives.

    rank      its number
    last      number of collectives that it began last
    waited_s  seconds that the other ranks waited for it there, all together
    lines     what it was late with: (seconds, operation, its line), most seconds first; the
              operation is "issuing" if the program itself was late
    """

    rank: int
    last: int
    waited_s: float
    lines: tuple[tuple[float, str, str], ...]


class Stragglers:
    """The ranks of a merged trace, those for which the others waited most first; prints as a table.

    collectives   the number of collectives
    rows          a `Straggler` for each rank
    """

    def __init__(self, collectives: int, rows: list[Straggler]):
        self.collectives = collectives
        self.rows = rows

    def __getitem__(self, i: int) -> Straggler:
        return self.rows[i]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        text = [f"rank  last of {self.collectives}  the others waited  for"]
        for row in self.rows:
            cells = f"{row.rank:>4}{row.last:>{9 + len(str(self.collectives))}}"
            cells += f"{1e3 * row.waited_s:>16.2f} ms"
            for seconds, name, where in row.lines[:3]:
                text.append(f"{cells}  {1e3 * seconds:.2f} ms {name}, {where}")
                cells = " " * len(cells)
            if not row.lines:
                text.append(cells)
        return "\n".join(text)

    __repr__ = __str__


def stragglers_of(trace: Trace) -> Stragglers:
    """See `Trace.stragglers`."""
    own: dict[int, list[PlacedOperation]] = {}
    ranks: set[int] = set()
    for operation in trace.operations:
        if isinstance(operation, PlacedOperation) and operation.rank >= 0:
            ranks.add(operation.rank)
            if operation.lane == WIRE and operation.came_ns:
                own.setdefault(operation.rank, []).append(operation)
    if len(ranks) < 2:
        raise MXNetError(
            "stragglers: this is the trace of one process; merge the traces of all ranks first "
            "(d2lmini.profiler.merge)"
        )
    collectives = list(zip(*own.values())) if len(own) == len(ranks) else []
    last = dict.fromkeys(sorted(ranks), 0)
    lines: dict[int, dict[tuple[str, str], float]] = {rank: {} for rank in last}
    delays = _Delays(trace)
    for calls in collectives:
        late = max(calls, key=lambda call: call.came_ns)
        waited_s = sum(late.came_ns - call.came_ns for call in calls) / 1e9
        last[late.rank] += 1
        key = delays.find(late, min(call.came_ns for call in calls))
        lines[late.rank][key] = lines[late.rank].get(key, 0.0) + waited_s
    rows = []
    for rank, times in last.items():
        most = sorted(((s, *key) for key, s in lines[rank].items()), reverse=True)
        rows.append(Straggler(rank, times, sum(s for s, _, _ in most), tuple(most)))
    return Stragglers(len(collectives), sorted(rows, key=lambda row: -row.waited_s))


class _Delays:
    """Finds what a rank was late with."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self._runs: dict[str, list[Operation]] = {}  # of each worker, in order
        for operation in sorted(trace.operations, key=lambda operation: operation.began_ns):
            if operation.ran and not operation.inline:
                self._runs.setdefault(operation.worker, []).append(operation)

    def find(self, late: PlacedOperation, since_ns: int) -> tuple[str, str]:
        """The largest part of the chain of events that ends with the start of a collective, after
        `since_ns`: an operation of the late rank and its line, or "issuing" and the line that
        issued the next operation late."""
        parts: dict[tuple[str, str], int] = {}

        def add(name: str, operation: Operation, ns: int) -> None:
            key = name, describe(operation.site)
            parts[key] = parts.get(key, 0) + max(0, ns)

        operation: PlacedOperation | None = late
        now = late.came_ns
        while operation is not None and now > since_ns:
            before = self._last_needed(operation, late.rank)
            ended_ns = since_ns if before is None else max(min(before.ended_ns, now), since_ns)
            queued_ns = min(max(operation.pushed_ns, ended_ns), now)
            add("issuing", operation, queued_ns - ended_ns)
            runs = self._runs.get(operation.worker, [])  # others, before it, on its worker
            k = bisect_right(runs, now, key=lambda operation: operation.began_ns) - 1
            while k >= 0 and runs[k].ended_ns > queued_ns:
                if runs[k] is not operation:
                    other = runs[k]
                    add(
                        other.name, other, min(other.ended_ns, now) - max(other.began_ns, queued_ns)
                    )
                k -= 1
            if before is not None:
                now = max(min(before.began_ns, ended_ns), since_ns)
                add(before.name, before, ended_ns - now)
            operation = before
        return max(parts, key=parts.__getitem__, default=("issuing", describe(late.site)))

    def _last_needed(self, operation: Operation, rank: int) -> PlacedOperation | None:
        """The operation of the same rank that ended last among those that `operation` needs."""
        needs = [self.trace[number] for number in self.trace.needs(operation.number)]
        own = [o for o in needs if isinstance(o, PlacedOperation) and o.rank == rank]
        return max(own, key=lambda operation: operation.ended_ns, default=None)
