"""A check of the installed library, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


class NotRun(Exception):
    """A check has nothing to look at here: the message says what is missing."""


class Check(NamedTuple):
    """`run()` returns what was found, in a few words; raises if it is wrong, or `NotRun`."""

    name: str
    run: Callable[[], str]


class Outcome(NamedTuple):
    """How a check ended, and what it said."""

    name: str
    result: Literal["ok", "FAILED", "not run"]
    said: str
    elapsed_s: float
