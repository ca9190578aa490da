"""Ctrl-C where one wants it: KeyboardInterrupt at the k-th point at which CPython could deliver it.

CPython runs a signal's handler between two instructions of the main thread, but only after a call,
at a jump, and on entering a function. `interrupt_at(k)` traces the instructions of some
files and raises at the k-th such point, so that a loop over k strikes everywhere once:

    for k in count():
        with interrupt_at(k, files) as strike:
            something()
        if not strike.done:
            break          # `something` has fewer points than k

One kind of point is left out, because it cannot be reproduced: after the last call of a `with` or
`try` body, where a signal still counts as raised inside it, and what we raise as raised outside.
`alarmed` covers these with real signals.
"""

from __future__ import annotations

import dis
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import d2lmini
from d2lmini.engine import signals

PACKAGE = Path(d2lmini.__file__).parent
ENGINE_FILES = tuple(
    str(p) for p in (*(PACKAGE / "engine").glob("*.py"), PACKAGE / "device" / "storage.py")
)

# Python itself ignores what is raised in a finalizer, or in a generator that is being closed.
SWALLOWING = ("__del__", "<genexpr>")

_tables: dict[CodeType, Any] = {}
_ops: dict[CodeType, dict[int, str]] = {}
# By code: is there a point between these two instructions? It is asked millions of times.
_known: dict[CodeType, dict[tuple[int, int], bool]] = {}


def _handler(code: CodeType, offset: int) -> Any:
    """What catches an exception at this instruction (None before Python 3.11, where blocks are
    entered and left by instructions of their own, so that the question does not arise)."""
    if not hasattr(code, "co_exceptiontable"):
        return None
    if code not in _tables:
        _tables[code] = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    inner = [e for e in _tables[code] if e.start <= offset < e.end]
    return inner[-1].target if inner else None


def _delivers(opname: str) -> bool:
    return opname.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "POP_JUMP"))


def _is_point(code: CodeType, last: int, offset: int) -> bool:
    """Can a signal be delivered after the instruction at `last`, when that at `offset` is next?"""
    if code not in _ops:
        _ops[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
    return _delivers(_ops[code][last]) and _handler(code, last) == _handler(code, offset)


class Strike:
    """Strikes at the k-th point; `done` and `where` tell whether and where it did, `raised` whether
    the scope was ended by it."""

    def __init__(self, k: int, files: tuple[str, ...]):
        self.left = k
        self.files = files
        self.done = self.raised = False
        self.where = ""
        self._thread = threading.get_ident()
        # Of each frame: its last instruction, and what is known of its code.
        self._last: dict[FrameType, tuple[int, dict[tuple[int, int], bool]]] = {}

    def enter(self, frame: FrameType) -> None:
        """A function begins."""
        self._point(frame)

    def instruction(self, frame: FrameType, offset: int) -> None:
        """The next instruction of `frame` is at `offset`."""
        before = self._last.get(frame)
        if before is None:
            self._last[frame] = offset, _known.setdefault(frame.f_code, {})
            return
        last, known = before
        self._last[frame] = offset, known
        here = known.get((last, offset))
        if here is None:
            here = known[last, offset] = _is_point(frame.f_code, last, offset)
        if here:
            self._point(frame)

    def _point(self, frame: FrameType) -> None:
        if self.left == 0 and not self.done:
            self.done = True
            name = Path(frame.f_code.co_filename).name
            self.where = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
            self._last.clear()
            # Raises KeyboardInterrupt, notes it (engine/signals), or is a test's (engine/handlers).
            signals.get_handler(signal.SIGINT)(signal.SIGINT, frame)
        self.left -= 1

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Until Python 3.11."""
        files = frozenset(self.files)

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            code = frame.f_code
            if code.co_filename not in files or code.co_name in SWALLOWING:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "call" and frame.f_lasti <= 0:  # else a generator goes on
                self.enter(frame)
            elif event == "opcode":
                self.instruction(frame, frame.f_lasti)
            elif event == "return":
                self._last.pop(frame, None)
            return trace

        outer = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(outer)

    @contextmanager
    def monitoring(self) -> Iterator[None]:
        """From Python 3.12 on."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        events, tool = monitoring.events, 4

        def begins(_code: CodeType, _offset: int) -> None:
            if threading.get_ident() == self._thread:
                self.enter(sys._getframe(1))

        def instruction(_code: CodeType, offset: int) -> None:
            if threading.get_ident() == self._thread:
                self.instruction(sys._getframe(1), offset)

        codes = _codes_in(self.files)
        monitoring.use_tool_id(tool, "interrupts")
        monitoring.register_callback(tool, events.PY_START, begins)
        monitoring.register_callback(tool, events.INSTRUCTION, instruction)
        for code in codes:
            monitoring.set_local_events(tool, code, events.PY_START | events.INSTRUCTION)
        try:
            yield
        finally:
            for code in codes:
                monitoring.set_local_events(tool, code, 0)
            monitoring.free_tool_id(tool)


@cache
def _codes_in(files: tuple[str, ...]) -> list[CodeType]:
    """The code of every function of these files, whatever it is nested in."""
    found: dict[CodeType, None] = {}

    def add(thing: Any) -> None:
        if isinstance(thing, CodeType):
            if thing.co_filename in files and thing not in found:
                if thing.co_name not in SWALLOWING:
                    found[thing] = None
                for constant in thing.co_consts:
                    add(constant)
        elif isinstance(thing, type):
            for value in vars(thing).values():
                add(value)
        elif isinstance(thing, property):
            add(thing.fget)
        elif hasattr(thing, "__wrapped__"):
            add(thing.__wrapped__)
        elif hasattr(thing, "__code__"):
            add(thing.__code__)

    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) in files:
            for value in list(vars(module).values()):
                add(value)
    return list(found)


@contextmanager
def interrupt_at(k: int, files: tuple[str, ...] = ENGINE_FILES) -> Iterator[Strike]:
    """Ctrl-C at the k-th point within the scope, which ends there; see above."""
    strike = Strike(k, files)
    try:
        with strike.monitoring() if hasattr(sys, "monitoring") else strike.tracing():
            yield strike
    except KeyboardInterrupt:
        if not strike.done:
            raise
        strike.raised = True
    finally:
        strike._last.clear()  # it holds frames


class _Alarm(KeyboardInterrupt):
    pass


def alarmed(seconds: float, act: Callable[[], object]) -> bool:
    """act(), ended by a real signal `seconds` from now as by Ctrl-C; was it? Main thread only."""

    over = False

    def handler(_number: int, frame: FrameType | None) -> None:
        if over:  # it rang at the last moment; wound up again, it would ring in another's handler
            return
        # All of the stack: a slow machine is still here, above a finalizer, when it rings again.
        while frame is not None and frame.f_code.co_name not in SWALLOWING:
            frame = frame.f_back
        if frame is not None:
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
        else:
            raise _Alarm

    # Not by `signal.signal`: such a handler would never be called within the engine's own work.
    outer = signals.set_handler(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            act()
        finally:
            over = True
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Alarm:
        return True
    finally:
        signals.set_handler(signal.SIGALRM, outer)
    return False
