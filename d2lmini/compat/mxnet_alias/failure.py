"""What is said about a program that failed: the place, the error, and what to do about it."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from types import TracebackType
from typing import NamedTuple

from d2lmini.compat.mxnet_alias import ask

# What Python 3 says of programs that were written for Python 2.
_PYTHON_2 = re.compile(
    r"Missing parentheses in call|multiple exception types must be parenthesized|"
    r"leading zeros in decimal integer|inconsistent use of tabs|invalid octal literal|"
    r"'?(raw_input|xrange|unicode|cPickle|urllib2|reload|iteritems|has_key)'?"
)
_IMPORTED = re.compile(r"cannot import name '(\w+)' from 'd2lmini\.([\w.]+)'")


class Failure(NamedTuple):
    """One error of a program: `place` is "cell 3, line 2" or "line 7", `error` is one line, without
    the notes below it."""

    place: str
    error: str


def describe(error: BaseException, file: str, cell: str) -> Failure:
    """The failure that an error in a file, or in a cell of this file name, is."""
    line = _line(error, file)
    place = ", ".join(filter(None, [cell, f"line {line}" if line else ""]))
    return Failure(place, _one_line(error))


def as_python_prints(error: BaseException) -> str:
    """The traceback as Python prints it, with the program's own lines only."""
    return "".join(traceback.format_exception(type(error), error, own_frames(error)))


def own_frames(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of this folder at its beginning."""
    ours = (os.path.dirname(__file__), contextlib.__file__)
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return frames


def _line(error: BaseException, file: str) -> int | None:
    """The innermost line of the file in the traceback."""
    found = error.lineno if isinstance(error, SyntaxError) and error.filename == file else None
    frames: TracebackType | None = error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == file:
            found = frames.tb_lineno
        frames = frames.tb_next
    return found


def _one_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    words = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def advice(error: BaseException) -> str:
    """What to do about an error, in one line; "" if the error says it itself."""
    words = str(error)
    of_python = isinstance(error, (SyntaxError, NameError, ImportError, AttributeError))
    if of_python and _PYTHON_2.search(words):
        return "the program is written for Python 2: rewrite it for Python 3"
    if isinstance(error, ImportError):
        imported = _IMPORTED.search(words)
        if imported:
            return ask.ask(f"mxnet.{imported[2]}.{imported[1]}") or ""
        top = (error.name or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and top != "mxnet":
            return f"the program needs the package {top}, which is not installed here"
    if isinstance(error, EOFError) and "reading a line" in words:
        return "the program asks for input; run it alone, in a terminal"
    return ""
