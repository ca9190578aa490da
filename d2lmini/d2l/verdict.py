"""What may be concluded from timings: faster, slower, or no measurable difference.

A computer is never quiet: another program runs, a clock rate falls, a page is fetched. So two
single numbers prove little. The candidates run in rounds, in turns, and we look at the *ratio
within each round*: a disturbance of a whole round affects both candidates and cancels. Of those
ratios we take the median and the interval that holds the true median, for any distribution of the
noise (no bell curve is assumed), and one spoilt round in ten moves neither by much. While the
interval leaves the answer open, `compare` doubles the rounds, once and twice; so that it asks three
times, each interval may miss one time in 40, and all three are right 95 times in 100 or more (ten,
twenty and forty rounds miss 22, 12 and 17 times in 1000). While other programs keep a quarter of a
core busy or more, rounds in a row are disturbed alike, and an interval may miss one time in 128;
the sentence then names the load.

>>> from d2lmini.d2l import Verdict
>>> print(Verdict({"tortoise": [6, 6.1, 6, 5.9, 6.2], "hare": [3, 3.1, 3, 3, 3]}))
verdict: hare is 2.0 times faster than tortoise (2.0-2.1, 5 rounds)

A verdict of `compare` knows more than the totals: `print(verdict.table)` shows where the time of a
call went, and `verdict.causes()` says why there is no difference (`explain.py`).

Nothing here reads a clock (see `compare.py`), so all of it can be tested on invented times.
"""

import math
import statistics
import textwrap
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from d2lmini.d2l import explain
from d2lmini.d2l.explain import Observed
from d2lmini.d2l.load import LOADED
from d2lmini.profiler.summary import align

Relation = Literal["faster", "slower", "no measurable difference", "too few rounds"]

# Below five rounds no pair of ratios encloses the median with 15/16 certainty.
MIN_ROUNDS = 5
# How often an interval may miss the median, and beside other programs.
MISSED, MISSED_LOADED = 1 / 40, 1 / 128
# No call takes less than a nanosecond; a clock that says so has not ticked.
SHORTEST_S = 1e-9
# JupyterLab breaks longer lines within words in a window 700 pixels wide.
COLUMNS = 72


@dataclass(frozen=True)
class Ratio:
    """Time of one candidate over another's: median over the rounds, and the interval around it."""

    value: float
    low: float
    high: float


class Parts(NamedTuple):
    """Where the time of a call goes, in seconds: see `Verdict.parts`."""

    issue_s: float
    wait_s: float
    drain_s: float


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """Timings of two or more candidates and what they say. Made by `compare`; of times
    measured elsewhere by `Verdict({"name": [seconds of each round], ...})`.

    `times[name]` holds the seconds of one call, one entry per round. `ratio` is the time of the
    last candidate over that of the first, below 1 when the last is faster. `faster`, `slower` and
    `no_difference` speak of the last against the first: the whole interval must lie beyond 1 by the
    factor 1 + margin to claim a difference. With fewer than five rounds none of the three is true.
    `claim`: see `compare`.

    `compare` also measures, per call and round (empty or None if not measured):

    issue, wait, drain    `times` split: the caller's own time, its waits, and what was still in
                          flight when the call returned
    cpu                   processor time of all threads of this process
    observed              one round of each candidate as a trace shows it (`explain.py`)
    cores                 how many this process may use
    elsewhere             how many of them, on average, were busy with other programs
    remark                lines that are printed beneath (`compare.remarks`); "" for none
    """

    times: dict[str, list[float]]
    margin: float = 0.05
    blas_threads: int | None = None
    issue: dict[str, list[float]] = field(default_factory=dict)
    drain: dict[str, list[float]] = field(default_factory=dict)
    claim: str | None = None
    wait: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    observed: dict[str, Observed] = field(default_factory=dict)
    cores: int | None = None
    elsewhere: float | None = None
    remark: str = ""

    def __post_init__(self) -> None:
        lengths = {name: len(times) for name, times in self.times.items()}
        if len(lengths) < 2:
            raise ValueError(f"Verdict: need two or more candidates, got {list(lengths)}")
        if len(set(lengths.values())) > 1 or 0 in lengths.values():
            raise ValueError(
                "Verdict: rounds are paired, so each candidate needs equally many times, and at "
                f"least one; got {lengths}"
            )
        for name, times in self.times.items():
            if not all(0 <= t < math.inf for t in times):
                raise ValueError(f"Verdict: times are finite seconds >= 0, got {name}: {times}")

    @property
    def names(self) -> list[str]:
        """The candidates, in the order they were given."""
        return list(self.times)

    @property
    def rounds(self) -> int:
        """How often each candidate ran."""
        return len(self.times[self.names[0]])

    @property
    def medians(self) -> dict[str, float]:
        """Median seconds of a call, for reading; the verdict rests on the paired ratios."""
        return {name: statistics.median(times) for name, times in self.times.items()}

    @property
    def parts(self) -> dict[str, Parts]:
        """Median seconds of a call by where they go: `issue_s` in the call itself, which pushes and
        computes, `wait_s` in its own waits, `drain_s` from its return until all its work is done.
        Empty if not measured."""
        splits = (self.issue, self.wait, self.drain)
        if not all(splits):
            return {}
        return {n: Parts(*(statistics.median(split[n]) for split in splits)) for n in self.names}

    @property
    def cores_busy(self) -> dict[str, float]:
        """How many cores each candidate kept busy, on average; empty where not measured."""
        return {
            name: sum(cpu) / max(sum(self.times[name]), SHORTEST_S)
            for name, cpu in self.cpu.items()
        }

    def between(self, name: str, other: str) -> Ratio:
        """Time of `name` over the time of `other`, with its interval."""
        return Ratio(*map(math.exp, self._log_ratio(name, other)))

    def relation(self, name: str, other: str) -> Relation:
        """Decide if `name` is faster or slower than `other`; every other property uses this
        decision."""
        _, low, high = self._log_ratio(name, other)
        if self.rounds < MIN_ROUNDS:
            return "too few rounds"
        if high < -math.log1p(self.margin):
            return "faster"
        return "slower" if low > math.log1p(self.margin) else "no measurable difference"

    @property
    def is_open(self) -> bool:
        """True if more rounds may change what is said of a candidate and the first: the interval
        lies on both sides of the margin."""
        edge = math.log1p(self.margin)
        first, *others = self.names
        found = [self._log_ratio(name, first) for name in others]
        return any(low <= side <= high for _, low, high in found for side in (-edge, edge))

    def _log_ratio(self, name: str, other: str) -> tuple[float, float, float]:
        """Median of log(time / time of other), and its interval.

        In logarithms, so that the figures of (b, a) are exactly those of (a, b) with other signs.
        """
        ours, theirs = (
            [math.log(max(t, SHORTEST_S)) for t in self.times[n]] for n in (name, other)
        )
        logs = sorted(a - b for a, b in zip(ours, theirs, strict=True))
        k = _interval_rank(len(logs), MISSED_LOADED if self.loaded else MISSED)
        return statistics.median(logs), logs[k - 1], logs[-k]

    @property
    def loaded(self) -> bool:
        """True if other programs kept a quarter of a core busy or more; False if not measured."""
        return self.elsewhere is not None and self.elsewhere >= LOADED

    @property
    def ratio(self) -> Ratio:
        """The last candidate's time over that of the first."""
        return self.between(self.names[-1], self.names[0])

    @property
    def faster(self) -> bool:
        """True if the last candidate is faster than the first, as surely as was asked."""
        return self.relation(self.names[-1], self.names[0]) == "faster"

    @property
    def slower(self) -> bool:
        """True if the last candidate is slower than the first, as surely as was asked."""
        return self.relation(self.names[-1], self.names[0]) == "slower"

    @property
    def no_difference(self) -> bool:
        """Neither: a part of the interval lies within the margin. Not a proof of equality."""
        return self.relation(self.names[-1], self.names[0]) == "no measurable difference"

    def causes(self, name: str | None = None, other: str | None = None) -> list[str]:
        """Why no difference was found between two candidates, the surest cause first, as far as the
        measurements tell; by default the last candidate and the first."""
        return explain.causes(self, name or self.names[-1], other or self.names[0])

    @property
    def table(self) -> str:
        """Where the time of a call goes, a line for each candidate: the medians of its parts,
        of their sum and of the processor time of all threads."""
        # Times only, none wider than its head, so that the test of the chapters can leave them out.
        rows = [["", "in the call", "waiting", "draining", "in all", "processor"]]
        for name, total_s in self.medians.items():
            parts = self.parts.get(name, ())
            cells = [explain.duration(s) for s in parts] or ["-"] * 3
            cpu = explain.duration(statistics.median(self.cpu[name])) if self.cpu else "-"
            rows.append([name, *cells, explain.duration(total_s), cpu])
        return "\n".join(align(rows, "<"))

    @property
    def sentence(self) -> str:
        """The finding in words; "1.9 times faster" means 1/1.9 of the time. If no difference is
        measurable, the sentence explains why, where the measurements allow."""
        first, *others = self.names
        setting = f"{self.rounds} round{'s' * (self.rounds != 1)}"
        if self.rounds < MIN_ROUNDS:
            setting += f", at least {MIN_ROUNDS} are needed"
        if self.blas_threads is not None:
            setting += f", {self.blas_threads} BLAS thread{'s' * (self.blas_threads != 1)}"
        if self.rounds < MIN_ROUNDS:
            return f"too few rounds to compare {first} and {' and '.join(others)} ({setting})"
        # Where no difference is found, the load is among the causes.
        relations = {self.relation(name, first) for name in others}
        if self.loaded and relations != {"no measurable difference"}:
            setting += f", other programs on {self.elsewhere:.1f} of {self.cores} cores"
        findings = [self._finding(name, first) for name in others]
        if len(findings) == 1:
            words, spread, cause = findings[0]
            return f"{words} ({spread}, {setting}){cause}"
        return (
            "; ".join(f"{words} ({spread}){why}" for words, spread, why in findings)
            + f"; {setting}"
        )

    def _finding(self, name: str, first: str) -> tuple[str, str, str]:
        relation, ratio = self.relation(name, first), self.between(name, first)
        if relation == "no measurable difference":
            words = f"{relation} between {first} and {name}"
            cause = "".join(f": {cause}" for cause in self.causes(name, first)[:1])
            return words, f"{ratio.low:.2f}-{ratio.high:.2f}", cause
        if relation == "faster":
            ratio = self.between(first, name)
        digits = _digits(ratio.value)
        words = f"{name} is {ratio.value:.{digits}f} times {relation} than {first}"
        return words, f"{ratio.low:.{digits}f}-{ratio.high:.{digits}f}", ""

    def __str__(self) -> str:
        return fold("verdict: ", self.sentence) + (f"\n{self.remark}" if self.remark else "")

    __repr__ = __str__


def fold(head: str, sentence: str) -> str:
    """The sentence after its head, in lines of at most COLUMNS.

    The test of the chapters leaves these lines out: it knows the first by its head, and the others
    because they begin below the sentence.

    >>> print(fold("verdict: ", "one is faster " * 6))
    verdict: one is faster one is faster one is faster one is faster one is
             faster one is faster
    """
    return textwrap.fill(
        head + sentence, COLUMNS, subsequent_indent=" " * len(head), break_on_hyphens=False
    )


def _interval_rank(n: int, missed_at_most: float = MISSED) -> int:
    """The k for which the k-th smallest and k-th largest of n values enclose the median.

    Each value lies below the true median with probability 1/2, so the interval misses it with
    probability 2 P(Binomial(n, 1/2) < k), whatever the distribution (the sign test turned round).
    We take the largest k that misses no more often than `missed_at_most`, and 1 if none does: up to
    nine values (five miss one time in 16). From ten values on one outlier is powerless, and two are
    from 13 on.
    """
    k, missed = 1, 1
    while 2 * (missed + math.comb(n, k)) <= missed_at_most * 2**n:
        missed += math.comb(n, k)
        k += 1
    return k


def _digits(ratio: float) -> int:
    """The number of decimals to print: 1.08, 1.9, 19."""
    return 0 if ratio >= 10 else 1 if ratio >= 1.25 else 2
