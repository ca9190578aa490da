"""The line of the user's program that issued an operation: cheap to keep, turned to text on demand.

Every task records the line that issued it, every wait the line that waited: the nearest frame
outside this package. A site is the pair (code object, instruction offset), half a microsecond to
take; turning it into "train.py:12" needs the line table and happens only in messages and reports.

>>> from d2lmini.base import callsite
>>> callsite.describe(None)
'an unknown line'

Backward issues dozens of operations from one line and searches for the line once
(`call_remembering_site`). Frames of the standard library and of installed packages between the
user's line and this package are skipped: the wait in `logging.info("%s", l)` belongs to the program
and not to logging, the wait in `ax.plot(losses)` not to Matplotlib. If the program is itself an
installed package (`python -m train`, or a command), its own lines count.

A thread may run no line of the program at all, as in `executor.map(float, losses)`. While anything
listens to the engine, the line that started the thread, or gave the pool its work, stands for it.
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


class RecordedCode:
    """The code object of a site that was read from a file: the numbers and the texts of its lines
    by the site's offset, as `describe` gave them when the file was written."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[int, tuple[int, str]] = {}


Site = tuple[CodeType | RecordedCode, int]

#: The folder of this package.
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]([^\\/]+)")
#: These call the program's functions in threads; they are not what the program calls.
_NO_CALLEES = tuple(os.path.join(HERE, "base", f) for f in ("threads.py", "callsite.py"))
_COMMANDS = os.path.dirname(os.path.abspath(sys.executable)) + os.sep
#: Names that packages give to the functions that they write as text.
_GENERATED = ("<frozen ", "<__array_function__", "<decorator-gen-", "<attrs generated")

_OURS, _BETWEEN, _PROGRAM, _USERS = 1, 2, 3, 4
#: The owner of each file's code.
_whose: dict[str, int] = {}


class _ThreadState(threading.local):
    """site: set by `call_remembering_site`; origin: the line that gave this thread its work, known
    while anything listens (`threads`)."""

    site: Site | None = None
    origin: Site | None = None


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


def call_with_origin(origin: Site | None, function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), where `origin` stands for this thread if it runs no line of the program."""
    before, _thread_state.origin = _thread_state.origin, origin
    try:
        return function(*args)
    finally:
        _thread_state.origin = before


def find(above: int = 0) -> Site | None:
    """The innermost frame of the calling thread that lies outside this package, as a site.

    The nearest frames, the caller's and `above` more, are known to be the library's and skipped,
    because Python needs a fifth of a microsecond to produce one."""
    if _thread_state.site is not None:
        return _thread_state.site
    frame: FrameType | None = sys._getframe(1 + above)
    other: Site | None = None
    best = _OURS
    while frame is not None:
        code = frame.f_code
        whose = _whose.get(code.co_filename) or _look(frame)
        if whose == _USERS:
            return code, frame.f_lasti
        if whose > best:
            other, best = (code, frame.f_lasti), whose
        frame = frame.f_back
    return other if best == _PROGRAM else _thread_state.origin or other


def lines_of_error(error: BaseException) -> list[Site]:
    """The user's lines in the traceback of `error`, the outermost first."""
    found: list[Site] = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if _look(step.tb_frame) >= _PROGRAM:
            found.append((code, step.tb_lasti))
        step = step.tb_next
    return found


def called_function(above: int = 0) -> CodeType | None:
    """The function of this package that the program called and that led here; None if there is
    none, as in this package's own threads. `above` as for `find`."""
    frame: FrameType | None = sys._getframe(1 + above)
    last: CodeType | None = None
    while frame is not None:
        code = frame.f_code
        whose = _whose.get(code.co_filename) or _look(frame)
        if whose >= _PROGRAM:
            return last
        if whose == _OURS and code.co_filename not in _NO_CALLEES:
            last = code
        frame = frame.f_back
    # In a thread that runs no line of the program.
    is_private = last is None or re.match(r"_(?!_)", last.co_name)
    return None if is_private else last


def name_of(function: CodeType | None) -> str:
    """The result of `called_function` as text: "NDArray.asnumpy", before Python 3.11 without the
    class; "" for None."""
    return "" if function is None else getattr(function, "co_qualname", function.co_name)


def is_ours(frame: FrameType) -> bool:
    """Does the frame run code of this package?"""
    return _look(frame) == _OURS


def is_users_own(frame: FrameType) -> bool:
    """Does the frame run code of the user, in a cell or a file, not of an installed package?"""
    return _look(frame) == _USERS


def _look(frame: FrameType) -> int:
    """The owner of a frame's code: this package, a package between, the program, or the user."""
    filename = frame.f_code.co_filename
    if filename == "<string>":  # `python -c`, `exec`, a dataclass: each frame may be another's
        return _look_at_text(frame)
    whose = _whose[filename] = _owner_of(filename)
    return whose


def _owner_of(filename: str) -> int:
    """The owner of a file's code. A package counts as the program if it is what runs."""
    if filename.startswith(HERE):
        return _OURS
    if package := _INSTALLED.search(filename):
        return _PROGRAM if package[1].partition(".")[0] in _running() else _BETWEEN
    return _BETWEEN if filename.startswith((_STANDARD, _COMMANDS, *_GENERATED)) else _USERS


def _look_at_text(frame: FrameType) -> int:
    """The owner of code without a file, by the module in which the code runs."""
    name = frame.f_globals.get("__name__") or ""
    if name.partition(".")[0] == "d2lmini":
        return _OURS
    if name.startswith("namedtuple_") or name_of(frame.f_code).startswith("__create_fn__"):
        return _BETWEEN
    filename = frame.f_globals.get("__file__")
    return _owner_of(filename) if isinstance(filename, str) else _USERS


def _running() -> set[str]:
    """The names of the installed packages that are the program: the one with `__main__`, or those
    that a command imports."""
    main = sys.modules.get("__main__")
    filename = getattr(main, "__file__", None) or ""
    if package := _INSTALLED.search(filename):
        return {package[1].partition(".")[0]}
    if not filename.startswith(_COMMANDS):
        return set()
    modules = [getattr(value, "__module__", None) for value in vars(main).values()]
    return {name.partition(".")[0] for name in modules if isinstance(name, str)}


# -- sites as text ---------------------------------------------------------------------------------


def line_of(site: Site) -> int:
    """The line number of a site."""
    code, offset = site
    if isinstance(code, RecordedCode):
        return code.lines[offset][0]
    for start, end, line in code.co_lines():
        if line is not None and start <= offset < end:
            return line
    return code.co_firstlineno


def same_line(site: Site | None) -> tuple[CodeType | RecordedCode, int] | None:
    """A key that is equal for all sites of a line."""
    return None if site is None else (site[0], line_of(site))


def warn(text: str) -> None:
    """A UserWarning that points to the user's line."""
    site = find()
    if site is None or isinstance(site[0], RecordedCode):
        warnings.warn_explicit(text, UserWarning, "unknown", 0)
    else:
        warnings.warn_explicit(text, UserWarning, site[0].co_filename, line_of(site))


def describe(site: Site | None) -> str:
    """`train.py:12: y = nd.dot(x, x)`, or `In [3], line 2: ...` for a notebook's cell."""
    if site is None:
        return "an unknown line"
    if isinstance(site[0], RecordedCode):
        return site[0].lines[site[1]][1]
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
