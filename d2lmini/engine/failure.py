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

    __slots__ = ("failure", "order", "seen", "site", "text", "told")

    def __init__(self, failure: Failure, text: str, site: Site | None):
        self.failure: Callable[[], Failure | None] = weakref.ref(failure)
        self.text = text
        self.site = site
        self.seen = False
        self.told: tuple[object, int] | None = None  # by which engine's wait, behind which push
        self.order = 0  # of the push

    def tell(self, engine: object, order: int) -> None:
        """A wait raises it: a wait of `engine`, whose last push was number `order`."""
        if not self.seen:
            self.seen = True
            self.told = engine, order

    def known(self, engine: object, order: int | None = None) -> bool:
        """Was it told before `engine` was given its task number `order`? None: until now."""
        if self.told is None or order is None:
            return self.told is not None
        # Engines are changed while they are idle: what another one runs was pushed later.
        return self.told[0] is not engine or order > self.told[1]

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

    #: Is there a value all the same, the one before a write that did not happen?
    unchanged = False

    @property
    def origin(self) -> Failure:
        """The failure itself."""
        return self

    def blocks(self, engine: object, order: int | None = None) -> bool:
        """Is the value missing for the task that `engine` was given as number `order`? None: for
        whoever comes now."""
        return True

    def error(self, noticed: Site | None, by: str) -> MXNetError:
        """A fresh exception for a wait called `by` at the line `noticed`."""
        return self.kind(
            f"{self.report.summary()}\n  noticed at  {callsite.describe(noticed)} ({by})"
        )


class Unchanged(Failure):
    """Why a write in place did not happen: the value is still the one before it.

    It counts as missing until a wait has raised the failure: nothing that was pushed before that
    goes on with the old value unknown to the user. For everything pushed later the value is there.
    """

    __slots__ = ("_origin",)

    unchanged = True

    def __init__(self, origin: Failure, engine: object, order: int):
        """Of the write that `engine` was given as task number `order`."""
        self._origin = origin  # as long as this lives, the failure is raised, not only warned of
        self.kind = origin.kind
        self.report = report = origin.report
        self.sudden = False
        if report.known(engine, order):  # the user knows of the failure, not of this write
            self.report = Report(self, report.text, report.site)

    @property
    def origin(self) -> Failure:
        return self._origin

    def blocks(self, engine: object, order: int | None = None) -> bool:
        return not self.report.known(engine, order)


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

    def take(self, engine: object, order: int) -> tuple[list[Failure], list[Report]]:
        """Those whose Vars live, those whose Vars died, as pushed; all are told from now on, by a
        wait of `engine` behind push number `order`."""
        unseen, self._unseen = [r for r in self._unseen if not r.seen], []
        unseen.sort(key=lambda report: report.order)  # not as they failed, which is chance
        for report in unseen:
            report.tell(engine, order)
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
