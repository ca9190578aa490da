"""Capture what one thread prints.

A notebook shows a thread's output in the cell that is running at that time. The output of a
background run belongs to the run: within `capture_prints`, this thread's lines are captured, and
the lines of other threads pass through.

>>> from d2lmini.widgets.captured_output import capture_prints
>>> with capture_prints() as kept:
...     print("hello")
>>> kept.getvalue()
'hello\\n'
"""

from __future__ import annotations

import io
import sys
import threading
from functools import partial
from typing import Any

from d2lmini import forks
from d2lmini.scopes import Undo, scope

_door = forks.guard(threading.Lock())


class _StdoutByThread:
    """Replaces sys.stdout while any thread's lines are captured."""

    def __init__(self, real: Any):
        self._real = real
        self._kept: dict[int, io.StringIO] = {}

    def write(self, text: str) -> int:
        kept = self._kept.get(threading.get_ident())
        return int((self._real if kept is None else kept).write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@scope
def capture_prints(undo: Undo) -> io.StringIO:
    """Capture what this thread prints in the scope."""
    mine, kept = threading.get_ident(), io.StringIO()
    undo.append(partial(_stop, mine))
    with _door:
        switch: Any = sys.stdout
        if not isinstance(switch, _StdoutByThread):
            switch = _StdoutByThread(switch)
            sys.stdout = switch
        switch._kept[mine] = kept
    return kept


def _stop(thread: int) -> None:
    with _door:
        switch = sys.stdout
        if isinstance(switch, _StdoutByThread):
            switch._kept.pop(thread, None)
            if not switch._kept:
                sys.stdout = switch._real
