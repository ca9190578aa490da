"""The line of the user's program that issued an operation: cheap to keep, turned to text on demand.

Every task records the line that issued it, every wait the line that waited: the nearest frame
outside this package. A site is the pair (code object, instruction offset), half a microsecond to
take; turning it into "train.py:12" needs the line table and happens only in messages and reports.

>>> from d2lmini import callsite
>>> callsite.describe(None)
'an unknown line'

Backward issues dozens of operations from one line and searches for the line once
(`call_remembering_site`). Frames of the standard library, NumPy and IPython between the user's line
and this package are skipped: the wait in `logging.info("%s", l)` belongs to the program, not to
logging, and that for the value of a cell's last line belongs to the cell.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

Site = tuple[CodeType, int]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# IPython 8 uses the package `decorator` to show values.
_PACKAGES = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]((?:numpy|IPython|decorator)(?:[\\/]|\.py))?"
)

_OURS, _BETWEEN, _USERS = 1, 2, 3
#: The owner of each file's code.
_whose: dict[str, int] = {}


class _ThreadState(threading.local):
    """The site set by `call_remembering_site`, if any."""

    site: Site | None = None


_thread_state = _ThreadState()


def call_remembering_site(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs); all its operations count as issued by the present user's line."""
    before, _thread_state.site = _thread_state.site, find()
    try:
        return function(*args, **kwargs)
    finally:
        _thread_state.site = before


def forgotten(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), a user's function: its own lines count again."""
    before, _thread_state.site = _thread_state.site, None
    try:
        return function(*args)
    finally:
        _thread_state.site = before


def find(above: int = 0) -> Site | None:
    """The innermost frame of the calling thread that lies outside this package, as a site.

    The nearest frames, the caller's and `above` more, are known to be the library's and skipped,
    because Python needs a fifth of a microsecond to produce one."""
    if _thread_state.site is not None:
        return _thread_state.site
    frame: FrameType | None = sys._getframe(1 + above)
    between: Site | None = None
    while frame is not None:
        code = frame.f_code
        whose = _whose.get(code.co_filename) or _look(code.co_filename)
        if whose == _USERS:
            return code, frame.f_lasti
        if whose == _BETWEEN and between is None:
            between = code, frame.f_lasti
        frame = frame.f_back
    return between


def lines_of_error(error: BaseException) -> list[Site]:
    """The user's lines in the traceback of `error`, the outermost first."""
    found: list[Site] = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if _look(code.co_filename) == _USERS:
            found.append((code, step.tb_lasti))
        step = step.tb_next
    return found


def called_function(above: int = 0) -> CodeType | None:
    """The function of this package that the user's line called and that led here; None if no
    user's line is on the stack. `above` as for `find`."""
    frame: FrameType | None = sys._getframe(1 + above)
    last: CodeType | None = None
    while frame is not None:
        code = frame.f_code
        whose = _whose.get(code.co_filename) or _look(code.co_filename)
        if whose == _USERS:
            return last
        if whose == _OURS:
            last = code
        frame = frame.f_back
    return None


def name_of(function: CodeType | None) -> str:
    """The result of `called_function` as text: "NDArray.asnumpy", before Python 3.11 without the
    class; "" for None."""
    return "" if function is None else getattr(function, "co_qualname", function.co_name)


def _look(filename: str) -> int:
    """The owner of this file's code: the library, the user, or a package in between."""
    if filename.startswith(_HERE) or filename == "<string>":
        whose = _OURS
    elif package := _PACKAGES.search(filename):
        whose = _BETWEEN if package[1] else _USERS
    else:
        whose = _BETWEEN if filename.startswith((_STANDARD, "<frozen ")) else _USERS
    _whose[filename] = whose
    return whose


def is_users(code: CodeType) -> bool:
    """True for code of the program, not of this library or the packages in between."""
    return (_whose.get(code.co_filename) or _look(code.co_filename)) == _USERS


def is_ours(code: CodeType) -> bool:
    """True for code of this library."""
    return (_whose.get(code.co_filename) or _look(code.co_filename)) == _OURS


def line_of(site: Site) -> int:
    """The line number of a site."""
    code, offset = site
    for start, end, line in code.co_lines():
        if line is not None and start <= offset < end:
            return line
    return code.co_firstlineno


def same_line(site: Site | None) -> tuple[CodeType, int] | None:
    """A key that is equal for all sites of a line."""
    return None if site is None else (site[0], line_of(site))


def warn(text: str) -> None:
    """A UserWarning that points to the user's line."""
    site = find()
    if site is None:
        warnings.warn_explicit(text, UserWarning, "unknown", 0)
    else:
        warnings.warn_explicit(text, UserWarning, site[0].co_filename, line_of(site))


def describe(site: Site | None) -> str:
    """`train.py:12: y = nd.dot(x, x)`, or `In [3], line 2: ...` for a notebook's cell."""
    if site is None:
        return "an unknown line"
    filename, line = site[0].co_filename, line_of(site)
    text = linecache.getline(filename, line).strip()
    where = _cell_name(filename)
    where = f"{where}, line {line}" if where else f"{_short(filename)}:{line}"
    return f"{where}: {text}" if text else where


def _cell_name(filename: str) -> str | None:
    """`In [3]` if the file is a notebook's cell, whose real name holds a process number."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    names = getattr(getattr(shell, "compile", None), "_filename_map", None)
    if names and filename in names:
        return f"In [{names[filename]}]"
    return None


def _short(filename: str) -> str:
    """The path relative to the working folder if it lies in there."""
    try:
        relative = os.path.relpath(filename)
    except ValueError:  # another drive on Windows
        return filename
    return filename if relative.startswith("..") else relative
