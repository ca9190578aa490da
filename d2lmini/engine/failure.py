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

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.callsite import Site


class OutOfMemoryError(MXNetError, MemoryError):
    """An operation found no memory for its result; caught by `except MemoryError` as well."""


class Report:
    """Outlives the Failure it belongs to: what to say of it, and whether a wait has said it."""

    __slots__ = ("failure", "seen", "summary")

    def __init__(self, failure: Failure, summary: str):
        self.failure = weakref.ref(failure)
        self.summary = summary
        self.seen = False


class Failure:
    """Why a value is missing: the operation, its line, what went wrong."""

    __slots__ = ("kind", "name", "report", "site", "text", "__weakref__")

    def __init__(self, name: str, site: Site | None, problem: BaseException):
        self.name = name
        self.site = site
        if isinstance(problem, MemoryError):
            self.kind: type[MXNetError] = OutOfMemoryError
        else:
            self.kind = MXNetError
        text = str(problem)
        if not isinstance(problem, (MXNetError, MemoryError)):
            text = f"{type(problem).__name__}: {text}"
        self.text = text if text.startswith(f"{name}:") else f"{name}: {text}"
        self.report = Report(self, self.summary())

    def summary(self) -> str:
        """What failed and where it was issued, in two lines."""
        return f"{self.text}\n  issued at   {callsite.describe(self.site)}"

    def error(self, noticed: Site | None, by: str) -> MXNetError:
        """A fresh exception for a wait called `by` at the line `noticed`."""
        self.report.seen = True
        return self.kind(f"{self.summary()}\n  noticed at  {callsite.describe(noticed)} ({by})")
