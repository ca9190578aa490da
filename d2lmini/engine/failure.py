"""Run-time errors: kept on the Vars a task should have written, raised at the waits that meet them.

A `Failure` holds text and lines, never frames or arrays, so that nothing stays alive through it.
Each wait raises a fresh exception from it that names the operation, the line that issued it and
the line that noticed it:

>>> from d2lmini import nd, MXNetError
>>> x = nd.random.normal(0, -1, shape=(2,))      # returns: the error is the back end's
>>> try:
...     x.asnumpy()
... except MXNetError as error:
...     print(str(error).splitlines()[0])
_random_normal: scale must be 0 or more, got -1.0
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.callsite import Site


class OutOfMemoryError(MXNetError, MemoryError):
    """An operation found no memory for its result; caught by `except MemoryError` as well."""


class OutOfRangeError(MXNetError, IndexError):
    """An index that was only known while computing lies outside its axis; an IndexError too."""


class Report:
    """Outlives the Failure it belongs to: what to say of it, and whether a wait has said it."""

    __slots__ = ("failure", "order", "seen", "site", "text")

    def __init__(self, failure: Failure, text: str, site: Site | None):
        self.failure: Callable[[], Failure | None] = weakref.ref(failure)
        self.text = text
        self.site = site
        self.seen = False
        self.order = 0  # of the push

    def summary(self) -> str:
        """What failed and where it was issued, in two lines."""
        return f"{self.text}\n  issued at   {callsite.describe(self.site)}"


class Failure:
    """Why a value is missing: the operation, its line, what went wrong."""

    __slots__ = ("kind", "report", "sudden", "__weakref__")

    def __init__(self, name: str, site: Site | None, problem: BaseException):
        self.kind: type[MXNetError] = MXNetError
        self.sudden = not isinstance(problem, Exception)  # Ctrl-C: it may be half done
        if isinstance(problem, MemoryError):
            self.kind = OutOfMemoryError
        elif isinstance(problem, IndexError):
            self.kind = OutOfRangeError
        try:
            text = str(problem)
        except Exception as another:
            text = f"(its text cannot be had: {type(another).__name__})"
        if isinstance(problem, KeyboardInterrupt):
            text = "interrupted by Ctrl-C while it ran, so its result is not known"
        elif not isinstance(problem, (MXNetError, MemoryError, IndexError)):
            text = f"{type(problem).__name__}: {text}"
        text = text if text.startswith(f"{name}:") else f"{name}: {text}"
        self.report = Report(self, text, site)

    def error(self, noticed: Site | None, by: str) -> MXNetError:
        """A fresh exception for a wait called `by` at the line `noticed`."""
        self.report.seen = True
        return self.kind(
            f"{self.report.summary()}\n  noticed at  {callsite.describe(noticed)} ({by})"
        )


class Reports:
    """The failures that no wait has raised yet (lock held)."""

    def __init__(self) -> None:
        self._unseen: list[Report] = []
        self._prune_at = 64

    def add(self, failure: Failure, order: int, keep: bool) -> None:
        """A task failed, pushed as number `order`. `keep`: it writes nothing, so nobody else
        holds its failure."""
        report = failure.report
        report.order = order
        if keep:
            report.failure = lambda: failure
        self._unseen.append(report)
        if len(self._unseen) >= self._prune_at:
            self._unseen = [r for r in self._unseen if not r.seen]
            self._prune_at = max(64, 2 * len(self._unseen))

    def take(self) -> tuple[list[Failure], list[Report]]:
        """Those whose Vars live, those whose Vars died, as pushed; all are seen from now on."""
        unseen, self._unseen = [r for r in self._unseen if not r.seen], []
        unseen.sort(key=lambda report: report.order)  # not as they failed, which is chance
        for report in unseen:
            report.seen = True
        failures = [(report.failure(), report) for report in unseen]
        return (
            [failure for failure, _ in failures if failure is not None],
            [report for failure, report in failures if failure is None],
        )

    def move_to(self, other: Reports) -> None:
        """Leave them to another engine."""
        moved, self._unseen = self._unseen, []
        other._unseen += moved


def listed(summaries: Sequence[str], most: int = 10) -> str:
    """One below the other; only so many."""
    more = len(summaries) - most
    return "\n".join(summaries[:most]) + (f"\n... and {more} more" if more > 0 else "")
