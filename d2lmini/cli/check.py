"""A check of the installed library, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


class CheckSkipped(Exception):
    """A check cannot run here: the message says what is missing."""


class Check(NamedTuple):
    """`run()` returns the finding in a few words; raises if the check fails, or `CheckSkipped`."""

    name: str
    run: Callable[[], str]


class Outcome(NamedTuple):
    """The outcome of a check, and its message."""

    name: str
    result: Literal["ok", "FAILED", "not run"]
    said: str
    elapsed_s: float
