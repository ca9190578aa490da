"""Notebooks as text: their code cells, and IPython's syntax in them.

>>> from d2lmini.compat.mxnet_alias.notebook import plain_python
>>> print(plain_python("%matplotlib inline\\nx = (7\\n  % 4)\\n!ls", lambda line: "pass"))
pass
x = (7
  % 4)
pass

Only lines at which Python finds a syntax error are changed: the `%` at the begin of a formula's
second line is Python, and so is a line of a string.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_IPYTHON = re.compile(r"[%!?]|\S.*\?$|[\w\s,.*\[\]]+=\s*[%!]")
# Commands of IPython that have no effect on a program that runs from top to bottom.
_SILENT = ("matplotlib", "config", "load_ext", "autoreload", "reload_ext", "pylab")
# Commands that run the rest of their line, or of their cell.
_TRANSPARENT = ("time", "timeit", "prun", "capture")


class Cell(NamedTuple):
    """A code cell: its name in messages, "cell 3", and its text. Cells of all kinds count, from
    1."""

    name: str
    source: str


def read_cells(path: str) -> list[Cell]:
    """The code cells of a notebook of any format; ValueError if the file is no notebook."""
    found = []
    try:
        book = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        cells = book["cells"] if "cells" in book else book["worksheets"][0]["cells"]
        for number, cell in enumerate(cells, start=1):
            if cell["cell_type"] == "code":
                source = cell.get("source", cell.get("input", ""))
                text = source if isinstance(source, str) else "".join(source)
                found.append(Cell(f"cell {number}", text))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as problem:
        words = repr(problem)[:300]
        raise ValueError(f"{path} is not a readable notebook: {words}") from None
    return found


def is_ipython(line: str) -> bool:
    """True if a line that is not Python looks like IPython's: `%magic`, `!command`, `help?`."""
    return _IPYTHON.match(line.strip()) is not None


def to_python(cell: Cell, name: str) -> str:
    """The cell's text without IPython's syntax, with the same line numbers: `%time` and its kin run
    what follows them, and what only IPython understands is left out with a note. SyntaxError, in a
    file called `name`, if a line is neither Python nor IPython."""
    source = cell.source
    if source.startswith("%%"):
        first, _, rest = source.partition("\n")
        if first[2:].partition(" ")[0].strip() not in _TRANSPARENT:
            return _leave_out(cell, "the whole cell", first)
        source = "\n" + rest
    return plain_python(source, lambda line: _line_to_python(cell, line), name)


def _line_to_python(cell: Cell, line: str) -> str | None:
    if not is_ipython(line):
        return None
    command, _, rest = line[1:].partition(" ") if line.startswith("%") else ("", "", "")
    if command in _TRANSPARENT:
        return rest.strip() or "pass"
    if command == "matplotlib":
        # There is no page for figures: draw them in memory, for savefig.
        os.environ.setdefault("MPLBACKEND", "Agg")
    return "pass" if command in _SILENT else _leave_out(cell, "this line", line)


def _leave_out(cell: Cell, what: str, text: str) -> str:
    print(f"{cell.name}: {what} is left out, only IPython understands it: {text}", file=sys.stderr)
    return "pass"


def plain_python(source: str, translate: Callable[[str], str | None], name: str = "<cell>") -> str:
    """The source with the same number of lines, all of them Python.

    `translate` gets each line that is not Python, without its indentation, and returns the Python
    for it. If it returns None, the SyntaxError is raised, in a file called `name`.
    """
    lines = source.split("\n")
    while True:
        try:
            parse("\n".join(lines), name)
            return "\n".join(lines)
        except SyntaxError as error:
            number = (error.lineno or 1) - 1
            line = lines[number] if number < len(lines) else ""
            plain = translate(line.strip())
            if plain is None or plain == line.strip():
                raise
            lines[number] = line[: len(line) - len(line.lstrip())] + plain


def parse(source: str, name: str = "<cell>") -> ast.Module:
    """The syntax tree; SyntaxError, or ValueError for text with null bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree
