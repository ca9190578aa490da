"""Run-time errors: kept on the Vars a task should have written, raised at the waits on them.

A `Failure` holds text and source lines, never frames or arrays, so that it keeps nothing alive.
Each wait raises a fresh exception that names the operation, the line that issued it and the line
that noticed the failure:

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

from d2lmini.base import MXNetError, callsite
from d2lmini.base.callsite import Site


class OutOfMemoryError(MXNetError, MemoryError):
    """An operation found no memory for its result; also caught by `except MemoryError`."""


class OutOfRangeError(MXNetError, IndexError):
    """An index known only at run time lies outside its axis; also an IndexError."""


class Report:
    """The message of a Failure, which it outlives, and whether a wait has raised it."""

    __slots__ = ("failure", "order", "seen", "site", "text", "reported_at")

    def __init__(self, failure: Failure, text: str, site: Site | None):
        self.failure: Callable[[], Failure | None] = weakref.ref(failure)
        self.text = text
        self.site = site
        self.seen = False
        self.reported_at: tuple[object, int] | None = (
            None  # (engine of the wait, its last push number)
        )
        self.order = 0  # number of the failed push

    def tell(self, engine: object, order: int) -> None:
        """Note that a wait of `engine`, whose last push was number `order`, raises the failure."""
        if not self.seen:
            self.seen = True
            self.reported_at = engine, order

    def was_reported(self, engine: object, order: int | None = None) -> bool:
        """True if the failure was raised before push number `order` of `engine`; None: before
        now."""
        if self.reported_at is None or order is None:
            return self.reported_at is not None
        # Engines are idle when they are switched: tasks of another engine were pushed later.
        return self.reported_at[0] is not engine or order > self.reported_at[1]

    def summary(self) -> str:
        """The failure and the line that issued the operation, as two lines."""
        return f"{self.text}\n  issued at   {callsite.describe(self.site)}"


class Failure:
    """Why a value is missing: the operation, its line, the error."""

    __slots__ = ("kind", "report", "interrupt", "__weakref__")

    def __init__(self, name: str, site: Site | None, problem: BaseException):
        self.kind: type[MXNetError] = MXNetError
        self.interrupt = not isinstance(problem, Exception)  # Ctrl-C: the work may be half done
        if isinstance(problem, MemoryError):
            self.kind = OutOfMemoryError
        elif isinstance(problem, IndexError):
            self.kind = OutOfRangeError
        try:
            text = str(problem)
        except Exception as another:
            text = f"(its text is not available: {type(another).__name__})"
        if isinstance(problem, KeyboardInterrupt):
            text = "interrupted by Ctrl-C while it ran, so its result is not known"
        elif not isinstance(problem, (MXNetError, MemoryError, IndexError)):
            text = f"{type(problem).__name__}: {text}"
        text = text if text.startswith(f"{name}:") else f"{name}: {text}"
        self.report = Report(self, text, site)

    #: True if the Var still has the value from before a write that did not happen.
    unchanged = False

    @property
    def origin(self) -> Failure:
        """The original failure."""
        return self

    def blocks(self, engine: object, order: int | None = None) -> bool:
        """True if the value is missing for task number `order` of `engine`; None: for a task pushed
        now."""
        return True

    def error(self, noticed: Site | None, by: str) -> MXNetError:
        """A fresh exception for a wait called `by` at the line `noticed`."""
        return self.kind(
            f"{self.report.summary()}\n  noticed at  {callsite.describe(noticed)} ({by})"
        )


class WriteSkipped(Failure):
    """Why a write in place did not happen: the Var still has its old value.

    The value counts as missing until a wait has raised the failure: no task pushed before that
    wait computes with the old value. For every task pushed later the value is there.
    """

    __slots__ = ("_origin",)

    unchanged = True

    def __init__(self, origin: Failure, engine: object, order: int):
        """For the write that was task number `order` of `engine`."""
        self._origin = origin  # keeps the failure alive: it is raised, not only warned of
        self.kind = origin.kind
        self.report = report = origin.report
        self.interrupt = False
        if report.was_reported(engine, order):  # the user knows of the failure, not of this write
            self.report = Report(self, report.text, report.site)

    @property
    def origin(self) -> Failure:
        return self._origin

    def blocks(self, engine: object, order: int | None = None) -> bool:
        return not self.report.was_reported(engine, order)


class Reports:
    """The failures that no wait has raised yet (lock held)."""

    def __init__(self) -> None:
        self._unseen: list[Report] = []
        self._prune_at = 64

    def add(self, failure: Failure, order: int, keep: bool) -> None:
        """The task pushed as number `order` failed. `keep`: the task writes nothing, so only this
        list holds its failure."""
        report = failure.report
        report.order = order
        if keep:
            report.failure = lambda: failure
        self._unseen.append(report)
        if len(self._unseen) >= self._prune_at:
            self._unseen = [r for r in self._unseen if not r.seen]
            self._prune_at = max(64, 2 * len(self._unseen))

    def take(self, engine: object, order: int) -> tuple[list[Failure], list[Report]]:
        """The failures whose Vars live and the reports of those whose Vars died, in push order. All
        count as raised from now on, by a wait of `engine` after push number `order`."""
        unseen, self._unseen = [r for r in self._unseen if not r.seen], []
        unseen.sort(key=lambda report: report.order)  # the order in which they failed is random
        for report in unseen:
            report.tell(engine, order)
        failures = [(report.failure(), report) for report in unseen]
        return (
            [failure for failure, _ in failures if failure is not None],
            [report for failure, report in failures if failure is None],
        )

    def move_to(self, other: Reports) -> None:
        """Move all reports to another engine's list."""
        moved, self._unseen = self._unseen, []
        other._unseen += moved


def join_summaries(summaries: Sequence[str], most: int = 10) -> str:
    """The summaries joined by newlines, at most `most` of them."""
    more = len(summaries) - most
    return "\n".join(summaries[:most]) + (f"\n... and {more} more" if more > 0 else "")
