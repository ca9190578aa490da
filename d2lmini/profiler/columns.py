"""The columns of a trace's records in a file: their names, forms, and how they are written.

`chrome` writes a trace by these tables, `load` reads it. A form says what a value in a file may be;
it is checked before anything is made of the value.

>>> fits([1, 2], [int]), fits([1, "2"], [int]), fits({"cpu": -1}, {str: int})
(True, False, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from sys import intern
from typing import Any, NamedTuple

from d2lmini.base import MXNetError, callsite
from d2lmini.base.callsite import RecordedCode, Site
from d2lmini.context import Context
from d2lmini.profiler.evidence import CpuTime, Pause
from d2lmini.profiler.records import Copy, Notice, SplitRecord

# -- forms -----------------------------------------------------------------------------------------


def is_time(value: Any) -> bool:
    """A number of microseconds, of 30 years at most."""
    return type(value) in (int, float) and abs(value) < 1e15


def is_whole(value: Any) -> bool:
    """A whole number of 64 bits, of either sign."""
    return type(value) is int and abs(value) < 1 << 62


def is_few(value: Any) -> bool:
    """A number of workers, threads or devices."""
    return type(value) is int and 0 <= value < 1 << 16


def fits(value: Any, form: Any) -> bool:
    """Has a value this form? A type (int: not negative; float: any finite number), None, a function
    that says so, a tuple of alternatives, a list of one form for all elements or of one for each,
    or {str: form}."""
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, list):
        forms = form * len(value) if isinstance(value, list) and len(form) == 1 else form
        return isinstance(value, list) and len(value) == len(forms) and all(map(fits, value, forms))
    if isinstance(form, dict):
        return isinstance(value, dict) and all(fits(v, form[str]) for v in value.values())
    if form is int or form is float:
        number = type(value) is int or (form is float and type(value) is float)
        return number and (0 <= value < 1 << 62 if form is int else abs(value) < 1e300)
    if form is None or isinstance(form, type):
        return value is None if form is None else type(value) is form
    return form(value)


def check(record: Any, forms: Mapping[str, Any]) -> None:
    """ValueError unless this is an object, whose members have their forms."""
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {repr(record)[:60]}")
    for key, value in record.items():
        if key in forms and not fits(value, forms[key]):
            raise ValueError(f"{key} is {repr(value)[:60]}, which it cannot be")


# -- columns ---------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """Values of a kind: their form in a file, and how they are written and read. Times in a file
    are microseconds since `zero`, with three decimals: nanoseconds exactly."""

    form: Any
    save: Callable[[Any, int], Any] = lambda value, zero: value
    load: Callable[[Any, int], Any] = lambda value, zero: value


@lru_cache(None)
def context_of(text: str) -> Context:
    """The context that `str` gave: "gpu(0)". MXNetError if it is none."""
    found = re.fullmatch(r"(\w+)\((\d+)\)", text)
    try:
        assert found is not None
        return Context(found[1], int(found[2]))
    except (AssertionError, ValueError) as problem:
        raise MXNetError(f"a trace names the context {text!r}; one is like 'gpu(0)'") from problem


@lru_cache(1 << 16)
def _shared(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The same tuple for the same numbers: a long trace repeats them."""
    return numbers


TIME = Kind(
    (None, is_time),
    lambda ns, zero: (ns - zero) / 1e3 if ns else None,
    lambda us, zero: 0 if us is None else zero + round(us * 1e3),
)
TEXT = Kind(str, load=lambda text, zero: intern(text))
COUNT, WHOLE = Kind(int), Kind(is_whole)
NUMBERS = Kind([is_whole], load=lambda numbers, zero: _shared(tuple(numbers)))
#: JSON has neither infinity nor nan.
REAL = Kind(
    (float, str),
    lambda value, zero: value if isfinite(value) else str(value),
    lambda value, zero: float(value) if isinstance(value, str) else value,
)
CONTEXT = Kind(str, lambda ctx, zero: str(ctx), lambda text, zero: context_of(text))
MAYBE_TEXT = Kind((None, str), load=lambda text, zero: text and intern(text))

#: Name in a file -> attribute and kind.
Columns = dict[str, tuple[str, Kind]]
OPERATION: Columns = {
    "number": ("number", COUNT), "issued by": ("thread", TEXT), "context": ("ctx", CONTEXT),
    "lane": ("lane", TEXT), "pushed us": ("pushed_ns", TIME), "ready us": ("ready_ns", TIME),
    "priority": ("priority", WHOLE), "predicted us": ("predicted_us", REAL),
    "reads": ("reads", NUMBERS), "writes": ("writes", NUMBERS),
}  # fmt: skip
#: Of an operation that did not run.
NOT_RUN: Columns = {
    "worker": ("worker", TEXT), "began us": ("began_ns", TIME), "ended us": ("ended_ns", TIME),
}  # fmt: skip
WAIT: Columns = {
    "for operation": ("operation", COUNT), "target": ("target", Kind((None, is_whole))),
    "pushed": ("pushed", COUNT), "call": ("call", TEXT), "instead": ("instead", MAYBE_TEXT),
}  # fmt: skip

#: More than any operation takes.
_ALL_NS = 1 << 60


def _cpu_time(ns: int, delayed_ns: int | None, pushed: bool, *asleep: int) -> CpuTime:
    """Older files tell waits for Python's global lock from other sleeps, or tell of no sleeps."""
    known = pushed and delayed_ns is not None
    blocked_ns = sum(asleep) if asleep else _ALL_NS
    return CpuTime(ns, delayed_ns, pushed, blocked_ns if known else 0)


_SPENT = tuple([int, (None, int), bool, *asleep] for asleep in ([], [int], [int, int]))
#: What only some operations have: name -> where the trace keeps it by number, form, type.
BY_NUMBER: dict[str, tuple[Callable[[Any], dict[int, Any]], Any, Callable[..., Any]]] = {
    "cpu": (lambda trace: trace.cpu.times, _SPENT, _cpu_time),
    "split": (lambda trace: trace.shared, [is_few, int, int, bool], SplitRecord),
    "joined": (lambda trace: trace._joined, [is_whole], lambda *serials: serials),
}

_OF_SITE = [(None, [int, is_whole, is_whole]), str]
#: Records in "otherData" that end with a site: name -> their list, the forms of the rest, type.
OUTSIDE: dict[str, tuple[Callable[[Any], list[Any]], list[Any], Callable[..., Any]]] = {
    "pauses": (lambda trace: trace.cpu.pauses, [is_whole, is_whole, str], Pause),
    "notices": (lambda trace: trace.notices, [is_whole, str, str, int, int, int], Notice),
    "copies": (lambda trace: trace.copies, [is_whole, is_whole], Copy),
}

#: Attributes of a trace in "otherData".
FACTS: dict[str, Any] = {
    "begin_ns": is_whole, "left_ns": is_whole, "end_ns": is_whole, "workers": {str: is_few},
    "blas_threads": is_few, "cores": is_few, "engine_kind": str, "older": {str: {str: int}},
    "lacks": {str: str}, "thread": str,
}  # fmt: skip

#: The forms of all members of a file's objects, by name.
FORMS: dict[str, Any] = {
    **{key: kind.form for key, (_, kind) in {**OPERATION, **NOT_RUN, **WAIT}.items()},
    **{key: form for key, (_, form, _) in BY_NUMBER.items()},
    **{key: [[*forms, *_OF_SITE]] for key, (_, forms, _) in OUTSIDE.items()},
    **FACTS, "roles": {str: [is_whole]}, "spans": [[str, is_whole, is_whole, str]],
    "name": str, "ph": str, "args": dict, "ts": is_time, "dur": lambda us: is_time(us) and us >= 0,
    "tid": int, "issued at": str, "at": str, "site": _OF_SITE[0], "FLOPs": REAL.form, "by": int,
    "failure": str, "pushed us": is_time,
    # memory changes; the context and the bytes of an operation
    "context": (str, [int]), "bytes": ([is_whole], *REAL.form), "contexts": [str],
    "when": [is_whole], "serial": [is_whole], "operation": [int], "live": [is_whole],
    "cached": [is_whole], "sites": {str: _OF_SITE},
}  # fmt: skip


# -- lines -----------------------------------------------------------------------------------------


class Sites:
    """The lines of a trace in a file: (number of a code object, offset, line), and the text."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._codes: dict[int, RecordedCode] = {}
        self._sites: dict[tuple[int, int], Site] = {}
        self.text = lru_cache(None)(callsite.describe)
        self._line = lru_cache(None)(callsite.line_of)

    def save(self, site: Site | None) -> list[int] | None:
        """The value of a site; None for an unknown one."""
        if site is None:
            return None
        return [self._numbers.setdefault(site[0], len(self._numbers)), site[1], self._line(site)]

    def load(self, saved: list[int] | None, text: str) -> Site | None:
        """The site of a value and its text: the same object for the same code and offset."""
        if saved is None:
            return None
        number, offset, line = saved
        site = self._sites.get((number, offset))
        if site is None:
            code = self._codes.setdefault(number, RecordedCode())
            code.lines[offset] = (line, text)
            site = self._sites[number, offset] = (code, offset)
        return site
