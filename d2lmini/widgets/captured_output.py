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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from d2lmini import forks

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


@contextmanager
def capture_prints() -> Iterator[io.StringIO]:
    """Capture what this thread prints in the scope."""
    mine, kept = threading.get_ident(), io.StringIO()
    with _door:
        switch: Any = sys.stdout
        if not isinstance(switch, _StdoutByThread):
            switch = _StdoutByThread(switch)
            sys.stdout = switch
        switch._kept[mine], real = kept, switch._real
    try:
        yield kept
    finally:
        with _door:
            del switch._kept[mine]
            if not switch._kept and switch is sys.stdout:
                sys.stdout = real
