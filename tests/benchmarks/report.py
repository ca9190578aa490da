"""From seconds to sentences: medians, their spread, ratios to peers, and whether a target is met.

The libraries took turns, so the i-th time of one and the i-th of another were taken next to each
other; a ratio is the ratio of the medians over all turns, and its spread comes from the turns' own
ratios:

>>> ours, theirs = [1.0, 1.1, 1.2], [2.0, 2.0, 2.0]
>>> found = ratio(ours, theirs)
>>> found
Figure(value=0.55, low=0.525, high=0.575)
>>> judge(found, Target("numpy", 0.6))
'met'
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from row import Target, Workload

SCALE = {"us": 1e6, "ms": 1e3}
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Figure:
    """A measured figure, with the quartiles of what the single turns say about it."""

    value: float
    low: float
    high: float


@dataclass
class Outcome:
    """What one workload gave: seconds by row, in turns; what went wrong, by row."""

    workload: Workload
    seconds: Seconds
    problems: dict[str, str]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p25, median, p75.

    >>> quartiles([1, 2, 3, 4, 5]), quartiles([7])
    ((2.0, 3.0, 4.0), (7, 7, 7))
    """
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    low, _, high = quartiles([a / b for a, b in zip(ours, theirs, strict=True)])
    return Figure(
        rounded(statistics.median(ours) / statistics.median(theirs)), *map(rounded, (low, high))
    )


def extra(ours: Sequence[float], theirs: Sequence[float], unit: str) -> Figure:
    """How much longer ours takes, in `unit`.

    >>> extra([0.1002, 0.1001, 0.1004], [0.1, 0.1, 0.1], "us")
    Figure(value=200.0, low=150.0, high=300.0)
    """
    low, _, high = quartiles([a - b for a, b in zip(ours, theirs, strict=True)])
    middle = statistics.median(ours) - statistics.median(theirs)
    return Figure(*(rounded(seconds * SCALE[unit]) for seconds in (middle, low, high)))


def rounded(value: float) -> float:
    return round(value, 6)


def gain(
    ours: Sequence[float], theirs: Sequence[float], bases: tuple[Sequence[float], Sequence[float]]
) -> Figure:
    """(ours / our base) / (theirs / their base).

    >>> gain([6.0, 6.0], [8.0, 8.0], ([10.0, 10.0], [10.0, 10.0])).value
    0.75
    """
    a, b = ratio(ours, bases[0]), ratio(theirs, bases[1])
    turns = zip(ours, bases[0], theirs, bases[1], strict=True)
    low, _, high = quartiles([(w / x) / (y / z) for w, x, y, z in turns])
    return Figure(*map(rounded, (a.value / b.value, low, high)))


def compare(seconds: Seconds, row: str, target: Target) -> Figure | None:
    """The figure that the target speaks of, None if a row it needs has no time."""
    needed = (target.row, row, *(target.bases or ()))
    if not all(name in seconds for name in needed):
        return None
    ours, theirs, *bases = (seconds[name] for name in needed)
    if target.bases:
        return gain(ours, theirs, (bases[0], bases[1]))
    return ratio(ours, theirs) if target.unit == "ratio" else extra(ours, theirs, target.unit)


def judge(found: Figure, target: Target) -> str:
    """`met` or `missed`, and whether a quarter of the turns says otherwise.

    >>> judge(Figure(0.59, 0.5, 0.7), Target("numpy", 0.6))
    'met, not in every turn'
    >>> judge(Figure(250, 220, 300), Target("numpy", 200, "us"))
    'missed'
    """
    if found.value <= target.at_most:
        return "met" if found.high <= target.at_most else "met, not in every turn"
    return "missed" if found.low > target.at_most else "missed, not in every turn"


def fastest(label: str, seconds: Seconds) -> str | None:
    """Of "jax or jax jit" the row with the smaller median, None if none ran."""
    rows = [row for row in label.split(" or ") if row in seconds]
    return min(rows, key=lambda row: statistics.median(seconds[row]), default=None)


def digits(value: float) -> str:
    """Three digits that mean something.

    >>> digits(0.01234), digits(1.234), digits(123.4), digits(12345.6)
    ('0.0123', '1.23', '123', '12346')
    """
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def words(found: Figure) -> str:
    """The figure and its spread: `0.55 (0.525 - 0.575)`."""
    return f"{digits(found.value)} ({digits(found.low)} - {digits(found.high)})"


def aims(outcome: Outcome) -> Iterator[tuple[str, Target, Figure | None]]:
    """For each target the peer's row that counts, and the figure, None if one is missing."""
    for target in outcome.workload.targets:
        row = fastest(target.peer, outcome.seconds) or target.peer
        yield row, target, compare(outcome.seconds, row, target)


def targets(outcomes: Sequence[Outcome], ours: str = "d2lmini") -> list[str]:
    """A line for each target: the figure found, the figure aimed at, the verdict.

    >>> workload = Workload("w", "", "", {}, list, None, targets=(Target("numpy", 0.6),))
    >>> targets([Outcome(workload, {"d2lmini": [1.0, 1.1], "numpy": [2.0, 2.0]}, {})])
    ['w beside numpy: ratio 0.525 (0.512 - 0.537), target <= 0.6: met']
    >>> targets([Outcome(workload, {"numpy": [2.0, 2.0]}, {})])
    ['w beside numpy: ratio not measured, target <= 0.6']
    """
    lines = []
    for outcome in outcomes:
        for row, target, found in aims(outcome):
            what = "ratio" if target.unit == "ratio" else f"extra {target.unit}"
            what = "gain, ratio" if target.bases else what
            which = "" if target.row == ours else f" ({target.row})"
            line = f"{outcome.workload.name}{which} beside {row}: {what} "
            goal = f"target <= {digits(target.at_most)}"
            if found is None:
                lines.append(f"{line}not measured, {goal}")
            else:
                lines.append(f"{line}{words(found)}, {goal}: {judge(found, target)}")
    return lines


def verdict(found: Figure, aimed: Target, ours: str) -> str:
    """The last column: whose row if it is not ours, the figure if the table does not show it.

    >>> verdict(Figure(0.5, 0.4, 0.6), Target("torch", 0.7), "d2lmini")
    '<= 0.7: met'
    >>> verdict(Figure(0.5, 0.4, 0.6), Target("torch", 0.7, row="d2lmini hybrid"), "d2lmini")
    'd2lmini hybrid 0.5 (0.4 - 0.6) <= 0.7: met'
    """
    said = [] if aimed.row == ours else [aimed.row]
    if aimed.row != ours or aimed.unit != "ratio" or aimed.bases:
        said.append(words(found))
    if aimed.bases or aimed.unit != "ratio":
        said.append("of gains" if aimed.bases else aimed.unit)
    return " ".join([*said, f"<= {digits(aimed.at_most)}: {judge(found, aimed)}"])


HEADINGS = ["median", "p25 - p75", "d2lmini / it (p25 - p75)", "target"]


def rows(outcome: Outcome, ours: str = "d2lmini") -> list[list[str]]:
    """One table row for each library: its times, ours divided by them, the target and verdict."""
    table, unit = [], outcome.workload.unit
    for row, seconds in outcome.seconds.items():
        low, middle, high = (digits(value * SCALE[unit]) for value in quartiles(seconds))
        compared, verdicts = "", []
        if ours in outcome.seconds and row != ours:
            compared = words(ratio(outcome.seconds[ours], seconds))
        for against, aimed, found in aims(outcome):
            if against == row and found:
                verdicts.append(verdict(found, aimed, ours))
        table.append([row, f"{middle} {unit}", f"{low} - {high}", compared, "; ".join(verdicts)])
    problems = [[row, f"no time: {why}", "", "", ""] for row, why in outcome.problems.items()]
    return table + problems


def headings(outcome: Outcome) -> list[str]:
    turns = max(map(len, outcome.seconds.values()), default=0)
    return [f"library, {turns} turns" if turns > 1 else "library", *HEADINGS]


def text(outcome: Outcome) -> str:
    """A workload's table for the terminal, columns aligned."""
    lines = [headings(outcome), *rows(outcome)]
    timed = [line for line in lines if not line[1].startswith("no time")]
    widths = [max(len(line[column]) for line in timed) for column in range(len(lines[0]))]
    body = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)) for line in lines]
    notes = [outcome.workload.note] if outcome.workload.note else []
    indented = [f"  {line}".rstrip() for line in [*notes, *body]]
    return "\n".join([f"{outcome.workload.name}: {outcome.workload.title}", *indented, ""])


def grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table of a page: names to the left, figures to the right."""
    aligned = ["---", *["---:"] * (len(headings) - 2), "---"]
    return [
        "| " + " | ".join(line).replace("\n", " ") + " |" for line in (headings, aligned, *lines)
    ]


def markdown(outcomes: Sequence[Outcome], about: Sequence[str], said: Sequence[str]) -> str:
    """The machine, what is `said` about the targets and all tables as a page to commit."""
    page = ["# d2lmini beside its peers", "", *(f"- {line}" for line in about)]
    page += ["", "## Targets", "", *(f"- {line}" for line in said), ""]
    for outcome in outcomes:
        page += [f"## {outcome.workload.name}: {outcome.workload.title}", ""]
        if outcome.workload.note:
            page += [outcome.workload.note, ""]
        page += [*grid(headings(outcome), rows(outcome)), ""]
    return "\n".join(page)


def revision() -> str:
    """Which d2lmini this is: the commit, and whether files differ from it; empty without git."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=, changed"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return asked.stdout.strip()


def machine() -> str:
    """The processor, its cores and the system, in words that name no host."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    return f"{processor()}, {cores} cores, {platform.system()}"


def processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    if platform.system() == "Darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()
