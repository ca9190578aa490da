"""A table of executed operations: count, duration and rates per place and operation, or line.

    print(trace.summary())
    print(trace.summary(by="line"))         # which lines keep the devices busy?

Times and rates are printed with their units, counts without. FLOPs and bytes come from the
operation's cost formula; a rate is their total divided by the total run time.

`print(trace)` is the table of the single operations (`timetable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from d2lmini.base import callsite

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: Values of `by`: what the rows are.
KEYS = ("operation", "line")

HEAD = ("place", "count", "total", "mean", "arithmetic", "memory")

#: Operations that `print(trace)` shows.
SHOWN = 40


@dataclass
class SummaryRow:
    """One operation, or the operations of one line, at one place: their count, total time, FLOPs
    and bytes. `name` is the operation's name, or the line: "train.py:12: l.backward()"."""

    name: str
    place: str
    count: int = 0
    total_s: float = 0.0
    flops: float = 0.0
    nbytes: float = 0.0

    @property
    def cells(self) -> tuple[str, ...]:
        """The printed cells: with the mean duration, and the achieved rates."""
        per_s = 1 / self.total_s if self.total_s else 0.0
        return (
            shorten(self.name, 60), self.place, f"{self.count}", in_time(self.total_s),
            in_time(self.total_s / self.count), in_rate(self.flops * per_s, "FLOP/s"),
            in_rate(self.nbytes * per_s, "B/s"),
        )  # fmt: skip


class Summary:
    """The table; `rows` are its rows, `missed` counts operations that failed, were skipped, or had
    not ended when the trace ended; `by` says what the rows are."""

    def __init__(self, rows: list[SummaryRow], missed: int, by: str = "operation"):
        self.rows = rows
        self.missed = missed
        self.by = by

    def __str__(self) -> str:
        lines = align([(self.by, *HEAD), *[row.cells for row in self.rows]], "<<")
        if self.missed:
            lines.append(f"{self.missed} more failed, were skipped, or had not ended")
        return "\n".join(lines)

    __repr__ = __str__


def align(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """The rows of a table as lines. `sides` has for each column "<", left, or ">", right, where all
    columns that it does not name stand.

    >>> align([("a", "1", "x"), ("bcd", "10", "")], "<><")
    ['a     1  x', 'bcd  10']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    formats = [f"{side}{width}" for side, width in zip(sides.ljust(len(widths), ">"), widths)]
    return ["  ".join(map(format, row, formats)).rstrip() for row in rows]


def shorten(text: str, length: int) -> str:
    """The text, or its begin and an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def in_time(seconds: float) -> str:
    """A time with a unit that fits.

    >>> in_time(1.234), in_time(4.5e-3), in_time(6.7e-6)
    ('1.23 s', '4.50 ms', '6.7 us')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.1f} us"


def in_rate(per_s: float, unit: str) -> str:
    """A rate with a prefix that fits.

    >>> in_rate(1.234e9, "B/s"), in_rate(4.5e8, "FLOP/s"), in_rate(0, "B/s")
    ('1.23 GB/s', '450.0 MFLOP/s', '-')
    """
    if not per_s:
        return "-"
    return f"{per_s / 1e9:.2f} G{unit}" if per_s >= 1e9 else f"{per_s / 1e6:.1f} M{unit}"


def summary_of(trace: Trace, by: str = "operation") -> Summary:
    """Count, duration and rates of each operation, or of each line that issued operations
    (by="line"), at each place; the longest total first. ValueError for an unknown `by`."""
    if by not in KEYS:
        raise ValueError(f"summary: by={by!r}; it can be one of {', '.join(KEYS)}")
    rows: dict[tuple[str, str], SummaryRow] = {}
    missed = 0
    # Operations of one kind share their footprint, so it is evaluated once for all of them.
    where_of, cost_of = cache(callsite.describe), cache(lambda footprint: footprint())
    for operation in trace.operations:
        if operation.failure is not None or not operation.ran:
            missed += 1
            continue
        name, place = operation.name, operation.place
        if by == "line":
            name = where_of(operation.site)
        row = rows.setdefault((name, place), SummaryRow(name, place))
        row.count += 1
        row.total_s += operation.run_ns / 1e9
        if operation.footprint is not None:
            cost = cost_of(operation.footprint)
            row.flops += cost.flops
            row.nbytes += cost.nbytes
    return Summary(sorted(rows.values(), key=lambda row: -row.total_s), missed, by)


def timetable(trace: Trace) -> str:
    """The operations of a trace in the order of their pushes: when each began and how long it took;
    the first and the last, if there are many."""
    operations, half = trace.operations, SHOWN // 2
    many = len(operations) > SHOWN
    rows = [("", "operation", "place", "began at", "took", "line")]
    for operation in [*operations[:half], *operations[-half:]] if many else operations:
        times = ("-", "-")
        if operation.ran and operation.ended_ns:
            began_s = (operation.began_ns - trace.begin_ns) / 1e9
            times = in_time(max(0.0, began_s)), in_time(operation.run_ns / 1e9)
        rows.append(
            (f"{operation.number}", operation.name, operation.place, *times,
             shorten(operation.where, 60))
        )  # fmt: skip
    lines = align(rows, "><<>><")
    if many:
        left_out = len(operations) - 2 * half
        lines.insert(half + 1, f"... {left_out} more; trace.summary() adds all up")
    return "\n".join([repr(trace)[1:-1], *(lines if operations else [])])
