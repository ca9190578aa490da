"""The causal profile: how long would the run take if one operation, or one line, were faster?

    print(trace.causal())
    trace.causal().plot()

The time spent in an operation does not say what a faster one would save: an operation that runs
beside a longer one saves nothing. So each kind of operation, and each line of the program, is made
faster by 10, 20, ... 100 % in a replay of the trace, which gives the run's time as a curve. A curve
that is flat from the start says: do not optimize this. One that becomes flat says how far it is
worth it; then something else decides. A curve can even turn: when other operations come first, the
new order can cost more than was won (Graham, "Bounds on multiprocessing timing anomalies", 1969).

The question, the name and the curve are those of Coz (Curtsinger and Berger, "Coz: Finding Code
that Counts with Causal Profiling", SOSP 2015). Coz makes everything else slower, in the running
program; a replay has the durations of all operations and their dependencies, and can make the one
shorter.

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(times={"exp": 60, "tanh": 100, "_ones": 0}), profile() as trace:
...     x = nd.ones((2, 2))
...     y = x.exp(), x.tanh()
>>> print(trace.causal(lines=False))
the run takes 0.10 ms; if one of these were faster:
operation, line           count        total         10 %         30 %         50 %        100 %
tanh                          1      0.10 ms      0.09 ms      0.07 ms      0.06 ms      0.06 ms
exp                           1      0.06 ms      0.10 ms      0.10 ms      0.10 ms      0.10 ms
_ones                         1      0.00 ms      0.10 ms      0.10 ms      0.10 ms      0.10 ms
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from d2lmini import callsite
from d2lmini.draw.picture import Picture
from d2lmini.draw.timeline import STYLES, legend_beside, plot_of
from d2lmini.profiler.replay import Prediction, Recording

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: The speed-ups of a curve, in percent of an operation's duration.
SPEEDUPS = tuple(range(10, 101, 10))
#: Those of the table.
_SHOWN = (10, 30, 50, 100)


@dataclass(frozen=True)
class CausalRow:
    """The operations of one name, or of one line.

    kind     "operation" or "line"
    name     the name; of a line, "train.py:12: y = x + 1"
    count, total_ns    number of these operations, and their total time
    curve    speed-up in percent -> predicted time of the run
    """

    kind: str
    name: str
    count: int
    total_ns: int
    curve: dict[int, Prediction]


class CausalProfile:
    """`rows`, the one that could save most first, and the `run`'s predicted time without a change.
    Prints as a table; `plot` draws the curves."""

    def __init__(self, run: Prediction, rows: list[CausalRow]):
        self.run = run
        self.rows = sorted(rows, key=_rank)

    def __getitem__(self, name: str) -> CausalRow:
        """The row of that name, or of the line that ends so: "y = x + 1". KeyError for none."""
        for row in self.rows:
            if row.name == name or (row.kind == "line" and row.name.endswith(f": {name}")):
                return row
        raise KeyError(f"causal: no {name!r}, but {', '.join(row.name for row in self.rows)}")

    def __str__(self) -> str:
        lines = [f"the run takes {self.run}; if one of these were faster:"]
        heads = "".join(f"{f'{percent} %':>13}" for percent in _SHOWN)
        lines.append(f"{'operation, line':<24}{'count':>7}{'total':>13}{heads}")
        for row in self.rows:
            times = "".join(f"{row.curve[percent]!s:>13}" for percent in _SHOWN)
            head = row.name if len(row.name) < 24 else f"{row.name}\n{'':<23}"
            lines.append(f"{head:<24}{row.count:>7}{row.total_ns / 1e6:>10.2f} ms{times}")
        return "\n".join(lines)

    def plot(self, most: int = 6) -> Picture:
        """The curves of the first `most` rows: the time that the run would save, in percent, over
        the speed-up of the operation or line."""
        figure, axes = plot_of(2.4, xlabel="faster by (%)", ylabel="the run saves (%)")
        shades = [STYLES["accent"][0], *(STYLES[kind][0] for kind in ("push", "copy", "compute"))]
        whole = self.run.ns or 1.0
        for k, row in enumerate(self.rows[:most]):
            saved = [100 * (1 - row.curve[percent].ns / whole) for percent in SPEEDUPS]
            dashes = "-" if k < len(shades) else "--"
            label = row.name if len(row.name) < 32 else f"{row.name[:31]}…"
            axes.plot([0, *SPEEDUPS], [0.0, *saved], dashes, color=shades[k % 4], label=label)
        axes.set_xlim(0, 100)
        legend_beside(axes, fontsize=8)
        return Picture(figure, "causal profile: what the run saves if one thing were faster")

    def __repr__(self) -> str:
        return f"<causal profile of {len(self.rows)} rows>"


def _rank(row: CausalRow) -> tuple[float, int]:
    return sum(time.ns for time in row.curve.values()), -row.total_ns


def causal_of(trace: Trace, most: int, lines: bool) -> CausalProfile:
    """See `Trace.causal`."""
    where = cache(callsite.describe)
    groups: dict[tuple[str, str], list[int]] = {}
    for i, operation in enumerate(trace.operations):
        if operation.ran:
            groups.setdefault(("operation", operation.name), []).append(i)
            if lines:
                groups.setdefault(("line", where(operation.site)), []).append(i)
    recording = Recording(trace)
    run_ns = recording.recorded.run_ns
    total = {key: int(sum(run_ns[i] for i in group)) for key, group in groups.items()}
    rows = []
    for kind in ("operation", "line"):
        mine = sorted((key for key in groups if key[0] == kind), key=lambda key: -total[key])
        for key in mine[:most]:
            curve = {}
            for percent in SPEEDUPS:
                faster = list(run_ns)
                for i in groups[key]:
                    faster[i] = round(run_ns[i] * (100 - percent) / 100)
                curve[percent] = recording.predict(replace(recording.recorded, run_ns=faster))
            rows.append(CausalRow(kind, key[1], len(groups[key]), total[key], curve))
    return CausalProfile(recording.predict(recording.recorded), rows)
