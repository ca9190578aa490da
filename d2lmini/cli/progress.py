"""A progress bar for long work on a terminal; nothing if the output goes to a file.

>>> import io
>>> with Progress(3, io.StringIO()) as bar:     # no terminal: no bar
...     bar.step("first")
"""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

WIDTH = 24  # characters of the bar itself


class Progress:
    """`total` steps; `step(what)` names the step that begins, `print` writes a line above the
    bar."""

    def __init__(self, total: int, stream: TextIO | None = None):
        self.total = total
        self.begun = 0
        self.stream = sys.stderr if stream is None else stream
        self.shown = self.stream.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._wipe()

    def step(self, what: str) -> None:
        """Begin the next step: show the number of finished steps, and the name of this one."""
        self.begun += 1
        if self.shown:
            done = WIDTH * (self.begun - 1) // max(1, self.total)
            line = f"[{'#' * done}{'.' * (WIDTH - done)}] {self.begun}/{self.total} {what}"
            columns = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r\x1b[K{line[:columns]}")
            self.stream.flush()

    def print(self, line: str) -> None:
        """Print a line to standard output, above the bar."""
        self._wipe()
        print(line, flush=True)

    def _wipe(self) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
