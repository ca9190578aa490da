"""Every line of given functions or modules as a step of its own.

A step is cut where a thread reads or writes memory that others see too, with no lock about it. The
lines of a function are such places, and within a line each store to an attribute, an element or a
variable that is not local: so `self.n += 1` may be interrupted between its read and its write.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from types import CodeType, FrameType, ModuleType
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.interleavings.controlled import current
from d2lmini.interleavings.sites import Site, is_hidden

_STORES = {
    dis.opmap[name]
    for name in ("STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL", "STORE_SUBSCR")
    if name in dis.opmap
}


class _Memory:
    key = ("memory",)
    owner = None

    def __str__(self) -> str:
        return ""


_memory = _Memory()


def make_tracer(places: Iterable[Any]) -> Any:
    """The trace function that makes steps of the lines of `places`: functions, classes, modules."""
    files: set[str] = set()
    codes: set[CodeType] = set()
    for place in places:
        if isinstance(place, ModuleType) and place.__file__ is not None:
            files.add(place.__file__)
        elif isinstance(place, type):
            codes.update(_codes_of_class(place))
        elif hasattr(place, "__code__"):
            codes.update(_codes_in(place.__code__))
        else:
            raise MXNetError(
                f"explore: `lines` has {place!r}; expected functions, classes, modules"
            )
    if not files and not codes:
        return None

    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks at this when tracing begins

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code in codes or (code.co_filename in files and not is_hidden(code.co_filename)):
            frame.f_trace = trace_inside  # Python 3.13 wants it before the next line
            frame.f_trace_opcodes = True
            return trace_inside
        return None

    def trace_inside(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            _step("runs", frame)
        elif event == "opcode" and frame.f_code.co_code[frame.f_lasti] in _STORES:
            _step("stores", frame)
        return trace_inside

    return trace


def _step(what: str, frame: FrameType) -> None:
    thread = current()
    if thread is not None and not thread.run.over:
        code = frame.f_code
        site = Site(code.co_filename, frame.f_lineno, code.co_name)
        thread.step(what, _memory, site=site)


def _codes_of_class(owner: type) -> Iterable[CodeType]:
    for value in vars(owner).values():
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        if hasattr(function, "__code__"):
            yield from _codes_in(function.__code__)


def _codes_in(code: CodeType) -> Iterable[CodeType]:
    """The code of a function and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in(constant)


def access(name: str, write: bool = False) -> None:
    """Mark that the next expression reads, or writes, what the program calls `name`: a step of its
    own in an exploration, nothing elsewhere.

    >>> access("count", write=True)
    """
    thread = current()
    if thread is not None:
        what = "writes" if write else "reads"
        thread.step(what, _Named(name), uses=((("memory", name), write),))


class _Named:
    owner = None

    def __init__(self, name: str):
        self.key = "memory", name
        self.name = name

    def __str__(self) -> str:
        return self.name
