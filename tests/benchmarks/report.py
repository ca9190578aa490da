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

from floors import Limits, Work
from row import Target, Workload

SCALE = {"us": 1e6, "ms": 1e3}
#: The row of the least that Python and NumPy can do.
BARE = "numpy-bare"
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Figure:
    """A measured figure, with the quartiles of what the single turns say about it."""

    value: float
    low: float
    high: float


@dataclass
class Outcome:
    """What one workload gave: seconds by row, in turns; what went wrong, by row; its work."""

    workload: Workload
    seconds: Seconds
    problems: dict[str, str]
    work: Work | None = None


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


def floor(outcome: Outcome, limits: Limits | None) -> tuple[float, str] | None:
    """The least time that a program of Python and NumPy takes for a row, in seconds, and what that
    is: the longest of what its work costs at the machine's limits, or what the row `numpy-bare`
    took if that is longer. None where nobody knows."""
    known: list[tuple[float, str]] = []
    if limits is not None and outcome.work is not None:
        known += limits.parts_s(outcome.work)
    if BARE in outcome.seconds:
        known.append((statistics.median(outcome.seconds[BARE]), BARE))
    return max(known, default=None)


def reason(outcome: Outcome, row: str, aimed: Target, limits: Limits | None) -> str:
    """What a missed target asks for beside the row's floor; empty where there is no floor."""
    least = floor(outcome, limits)
    if least is None or aimed.bases or row not in outcome.seconds:
        return ""
    unit, (least_s, what) = outcome.workload.unit, least
    asked_s = statistics.median(outcome.seconds[row])
    asked_s = (
        asked_s * aimed.at_most if aimed.unit == "ratio" else asked_s + aimed.at_most / SCALE["us"]
    )
    asked, at_least = (f"{digits(s * SCALE[unit])} {unit}" for s in (asked_s, least_s))
    if asked_s < least_s:
        return f"; it asks for {asked}, less than the floor of {at_least} ({what})"
    return f"; it asks for {asked}, the floor is {at_least} ({what})"


def targets(
    outcomes: Sequence[Outcome], limits: Limits | None = None, ours: str = "d2lmini"
) -> list[str]:
    """A line for each target: the figure found, the figure aimed at, the verdict; where it is
    missed, what it asks for and the floor.

    >>> workload = Workload("w", "", "", {}, list, None, targets=(Target("numpy", 0.6),))
    >>> targets([Outcome(workload, {"d2lmini": [1.0, 1.1], "numpy": [2.0, 2.0]}, {})])
    ['w beside numpy: ratio 0.525 (0.512 - 0.537), target <= 0.6: met']
    >>> targets([Outcome(workload, {"numpy": [2.0, 2.0]}, {})])
    ['w beside numpy: ratio not measured, target <= 0.6']
    >>> seconds = {"d2lmini": [0.008], "numpy": [0.01], BARE: [0.007]}
    >>> line, = targets([Outcome(workload, seconds, {})])
    >>> line.partition(": missed; ")[2]
    'it asks for 6 ms, less than the floor of 7 ms (numpy-bare)'
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
                said = judge(found, target)
                why = reason(outcome, row, target, limits) if said.startswith("missed") else ""
                lines.append(f"{line}{words(found)}, {goal}: {said}{why}")
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


def missed(outcome: Outcome, ours: str = "d2lmini") -> list[str]:
    """The peers beside which a target is missed, and by which row of ours if by another."""
    return [
        row if aimed.row == ours else f"{row} ({aimed.row})"
        for row, aimed, found in aims(outcome)
        if found and found.value > aimed.at_most
    ]


FLOOR = [
    "row", "arithmetic", "traffic", "calls", "floor", "d2lmini / floor", "peer / floor",
    "missed beside",
]  # fmt: skip


def distances(outcomes: Sequence[Outcome], limits: Limits) -> list[list[str]]:
    """For each row whose work is known: the parts of its floor, how far the fastest of our rows and
    the fastest of the peers' are above it, and beside whom a target is missed."""
    table = []
    for outcome in outcomes:
        work, scale = outcome.work, SCALE[outcome.workload.unit]
        if work is None or not outcome.seconds:
            continue
        parts = [seconds for seconds, _ in limits.parts_s(work)]
        line = [outcome.workload.name, *(digits(s * scale) for s in parts)]
        line.append(f"{digits(max(parts) * scale)} {outcome.workload.unit}")
        sides: list[Seconds] = [{}, {}]
        for row, seconds in outcome.seconds.items():
            if row == BARE:
                continue
            sides[not row.startswith("d2lmini")][row] = seconds
        for rows_of_side in sides:
            row = fastest(" or ".join(rows_of_side), rows_of_side)
            far = statistics.median(rows_of_side[row]) / max(parts) if row else 0.0
            line.append(f"{digits(far)} ({row})" if row else "")
        table.append([*line, ", ".join(missed(outcome))])
    return table


HOW_FLOORS = """\
What plain NumPy has to do for one call (`floors.py` counts it): arithmetic on all cores, at the
speed of these very products and functions; what must be read and written once, at the memory's
bandwidth (nothing if it fits a cache); NumPy calls times the smallest one's time. The longest of
the three is the floor of a program made of NumPy's calls, and so is the time of the row
`numpy-bare` where there is one. A library whose own functions are faster can be below it."""


def limits_section(
    outcomes: Sequence[Outcome], limits: Limits, machine: Sequence[str]
) -> list[str]:
    """What this machine can do at most, and how far from it the rows are."""
    functions = ", ".join(f"{name} {digits(s * 1e9)}" for name, s in limits.element_s.items())
    return [
        "## The limits of this machine", "", "```text", *machine, "```", "",
        f"The smallest NumPy call takes {digits(limits.call_s * 1e6)} us.",
        f"An element in a cache, on one core, in ns: {functions}.", "",
        "## How far from the limits", "", HOW_FLOORS, "",
        *grid(FLOOR, distances(outcomes, limits)), "",
    ]  # fmt: skip


def grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table of a page: names to the left, figures to the right."""
    aligned = ["---", *["---:"] * (len(headings) - 2), "---"]
    return [
        "| " + " | ".join(line).replace("\n", " ") + " |" for line in (headings, aligned, *lines)
    ]


def markdown(
    outcomes: Sequence[Outcome], about: Sequence[str], said: Sequence[str],
    limits: Sequence[str] = (),
) -> str:  # fmt: skip
    """The machine, what is `said` about the targets, the `limits_section` and all tables as a page
    to commit."""
    page = ["# d2lmini beside its peers", "", *(f"- {line}" for line in about)]
    page += ["", "## Targets", "", *(f"- {line}" for line in said), "", *limits]
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
