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
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_IPYTHON = re.compile(r"[%!?]|\S.*\?$|[\w\s,.*\[\]]+=\s*[%!]")


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
