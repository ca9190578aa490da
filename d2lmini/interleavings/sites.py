"""Where in the program an operation stands, and what an object is called there."""

from __future__ import annotations

import linecache
import os
import queue
import re
import sys
import threading
from typing import Any, NamedTuple

#: Frames of these files do not belong to the program.
_HIDDEN = {threading.__file__, queue.__file__}
_HERE = os.path.dirname(__file__) + os.sep
_FUTURES = os.sep + os.path.join("concurrent", "futures") + os.sep
_known: dict[str, bool] = {}


class Site(NamedTuple):
    """A line of the program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        name = os.path.basename(self.file)
        if "ipykernel" in self.file or name.startswith("<"):
            name = self.function if self.function != "<module>" else "cell"
        return f"{name}:{self.line}"

    @property
    def source(self) -> str:
        """The text of the line; empty if it is not known."""
        return linecache.getline(self.file, self.line).strip()


def is_hidden(file: str) -> bool:
    """True if `file` is this package's or one of the standard library that makes threads wait."""
    known = _known.get(file)
    if known is None:
        known = file in _HIDDEN or file.startswith(_HERE) or _FUTURES in file
        _known[file] = known
    return known


def find_site() -> Site:
    """The innermost line of the program that calls."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
    library = frame
    while is_hidden(frame.f_code.co_filename):
        frame = frame.f_back
        if frame is None:  # a thread that runs no line of the program
            frame = library
            break
    code = frame.f_code
    return Site(code.co_filename, frame.f_lineno, code.co_name)


def name_at(site: Site, kind: str, number: int) -> str:
    """The name that the line at `site` gives to the object of class `kind` that it makes as its
    `number`-th; empty if it gives none."""
    match = re.search(rf"([\w., ]+?)(?::[^=;]+)?=[^=;]*?\b{kind}\(", site.source)
    if match is None:
        return ""
    names = [name.strip().split(".")[-1] for name in match[1].split(",")]
    if len(names) > 1:
        return names[number % len(names)]
    if " for " in site.source:
        return f"{names[0]}[{number}]"
    return names[0] if number == 0 else f"{names[0]} {number + 1}"


def site_of(function: object) -> Site:
    """Where `function` is defined."""
    code = getattr(function, "__code__", None)
    return (
        find_site() if code is None else Site(code.co_filename, code.co_firstlineno, code.co_name)
    )
