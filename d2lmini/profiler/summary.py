"""A table of executed operations: count, duration and rates per place and operation, or line.

    print(trace.summary())
    print(trace.summary(by="line"))         # which lines keep the devices busy?

Times and rates are printed with their units, counts without. FLOPs and bytes come from the
operation's cost formula; a rate is their total divided by the total run time.

`print(trace)` is the table of the single operations (`timetable`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from d2lmini.base import callsite

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.profiler.tracing import Trace

#: Values of `by`: what the rows are.
KEYS = ("operation", "line")

HEAD = ("place", "count", "total", "mean", "arithmetic", "memory")

#: Operations that `print(trace)` shows.
SHOWN = 40


@dataclass(frozen=True)
class SummaryRow:
    """One operation, or the operations of one line, at one place: their count, total time, FLOPs
    and bytes. `name` is the operation's name, or the line: "train.py:12: l.backward()"."""

    name: str
    place: str
    count: int
    total_s: float
    flops: float
    nbytes: float

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        return self.total_s / self.count

    @property
    def flops_per_s(self) -> float:
        """The achieved FLOP/s."""
        return self.flops / self.total_s if self.total_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """The achieved memory traffic per second."""
        return self.nbytes / self.total_s if self.total_s else 0.0

    @property
    def cells(self) -> tuple[str, ...]:
        """The printed cells."""
        return (
            shorten(self.name, 60),
            self.place,
            f"{self.count}",
            in_time(self.total_s),
            in_time(self.mean_s),
            in_rate(self.flops_per_s, "FLOP/s"),
            in_rate(self.bytes_per_s, "B/s"),
        )


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
    columns = [
        (max(map(len, column)), side)
        for column, side in zip(zip(*rows, strict=True), sides.ljust(len(rows[0]), ">"))
    ]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, (width, side) in zip(row, columns, strict=True)
        ).rstrip()
        for row in rows
    ]


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
    """See `Trace.summary`. ValueError for an unknown `by`."""
    if by not in KEYS:
        raise ValueError(f"summary: by={by!r}; it can be one of {', '.join(KEYS)}")
    calls: Counter[tuple[str, str, Any]] = Counter()
    run_ns: Counter[tuple[str, str]] = Counter()
    lines: dict[Site | None, str] = {}
    missed = 0
    for operation in trace.operations:
        if operation.failure is not None or not operation.ran:
            missed += 1
            continue
        name, site = operation.name, operation.site
        if by == "line":
            if site not in lines:
                lines[site] = callsite.describe(site)
            name = lines[site]
        calls[name, operation.place, operation.footprint] += 1
        run_ns[name, operation.place] += operation.run_ns
    count: Counter[tuple[str, str]] = Counter()
    flops: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    # Calls of one kind share their cost function, so it is evaluated once for all of them.
    for (name, place, footprint), n in calls.items():
        count[name, place] += n
        if footprint is not None:
            cost = footprint()
            flops[name, place] += n * cost.flops
            nbytes[name, place] += n * cost.nbytes
    rows = [
        SummaryRow(*key, count[key], run_ns[key] / 1e9, flops[key], nbytes[key]) for key in count
    ]
    return Summary(sorted(rows, key=lambda row: -row.total_s), missed, by)


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
