"""Which names of MXNet does a program use that d2lmini lacks, or does differently? The program is
read, not run.

    from d2lmini.compat.mxnet_alias.examine import examine
    found = examine("old.ipynb")
    [name.name for name in found.missing]              # ["mxnet.image.imread"]

`names_used.py` finds the names, `ask.py` asks the library for each. `differences.txt` says what
d2lmini does differently from MXNet 1.9.1 on purpose; docs/migration.md shows it as a table. A
paragraph of it is a row, with the names that it is about, if any ("nd.arange(dtype)" is a call of
`nd.arange` with the keyword `dtype`):

    a failed operation
      MXNet: raises once, at a wait
      d2lmini: raises at every wait that meets it
      names: nd.arange(dtype) nd.mean
"""

from __future__ import annotations

import ast
import functools
import os
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from d2lmini.base import LeftOut
from d2lmini.base.left_out import reason_of
from d2lmini.compat.mxnet_alias import install_as_mxnet, short
from d2lmini.compat.mxnet_alias.ask import ask
from d2lmini.compat.mxnet_alias.names_used import Use, names_used
from d2lmini.compat.mxnet_alias.notebook import Cell, is_ipython, parse, plain_python, read_cells
from d2lmini.ndarray import NDArray


class Difference(NamedTuple):
    """A row: what differs, what MXNet does, what d2lmini does; in Markdown."""

    what: str
    mxnet: str
    here: str
    names: str = ""


_PATTERN = re.compile(r"(.*?) MXNet: (.*?) d2lmini: (.*?)(?: names: (.*))?")


def _read(paragraph: str) -> Difference:
    found = _PATTERN.fullmatch(" ".join(paragraph.split()))
    assert found is not None, paragraph
    return Difference(*found.groups(default=""))


_TEXT = Path(__file__).with_name("differences.txt").read_text(encoding="utf-8")
DIFFERENCES = [_read(paragraph) for paragraph in _TEXT.split("\n\n")]


@dataclass
class Name:
    """A name, the places that use it (one for each use), and what is to be said about it."""

    name: str
    reason: str
    places: list[str] = field(default_factory=list)


@dataclass
class Examined:
    """What is known of a program: how many names of MXNet it uses, those that are missing, those
    that differ, and the places that are not Python 3."""

    names: int
    missing: list[Name]
    differs: list[Name]
    not_python: list[str]


def examine(path: str) -> Examined:
    """Read a .py or .ipynb file; ValueError if it is not readable."""
    unread: list[str] = []
    trees = [(cell.name, _tolerant_tree(cell, unread)) for cell in _cells(path)]
    install_as_mxnet()
    uses = [use for use in names_used(trees) if not _is_own_package(use, path)]
    missing: dict[str, Name] = {}
    differs: dict[str, Name] = {}
    names = set()
    for use in uses:
        if use.paths[0].startswith("."):
            found = _missing_methods().get(use.paths[0][1:])
        else:
            found = _first_missing(use)
            if not use.is_import:
                names.add(short(use.paths[0]))
            for row in () if use.is_import else _differences(use):
                words = f"{row.what}: MXNet: {row.mxnet}; d2lmini: {row.here}"
                name = differs.setdefault(row.what, Name(short(use.paths[0]), words))
                name.places.append(use.place)
        if found is not None:
            names.add(found[0])
            missing.setdefault(found[0], Name(*found)).places.append(use.place)
    return Examined(len(names), _in_order(missing.values()), _in_order(differs.values()), unread)


def _in_order(names: Iterable[Name]) -> list[Name]:
    return sorted(names, key=lambda name: name.name)


# -- reading ---------------------------------------------------------------------------------------


def _cells(path: str) -> list[Cell]:
    if path.endswith(".ipynb"):
        return read_cells(path)
    try:
        with tokenize.open(path) as file:  # in the encoding that its first lines name
            return [Cell("", file.read())]
    except (SyntaxError, UnicodeError) as problem:
        raise ValueError(f"{path} is not a readable program: {problem}") from None


def _tolerant_tree(cell: Cell, unread: list[str]) -> ast.Module:
    """The syntax tree of all lines that are Python. Lines of IPython are left out, and so are other
    lines, which are added to `unread`."""
    source = cell.source
    if source.startswith("%%"):
        source = "\n" + source.partition("\n")[2]  # %%time, %%capture; %%bash is no Python at all
    begin = f"{cell.name}, " if cell.name else ""
    try:
        plain = plain_python(source, _leave_out)
        tree = parse(plain)
    except SyntaxError as error:
        # Leaving out a line did not help: the lines before it can be read.
        lines = source.split("\n")
        number = min((error.lineno or 1) - 1, len(lines) - 1)
        tree = _tolerant_tree(Cell(cell.name, "\n".join(lines[:number])), unread)
        unread.append(f"{begin}line {number + 1} and what follows")
        return tree
    except (ValueError, RecursionError, MemoryError):
        unread.append(f"{begin}all lines")
        return ast.Module([], [])
    if not cell.source.startswith("%%"):
        pairs = zip(source.split("\n"), plain.split("\n"), strict=True)
        unread += [
            f"{begin}line {number}"
            for number, (before, after) in enumerate(pairs, start=1)
            if before != after and not is_ipython(before)
        ]
    return tree


def _leave_out(line: str) -> str:
    """What replaces a line that is not Python: a call, for the print statement of Python 2; `pass`;
    nothing, where even that is an error."""
    if line in ("", "pass"):
        return ""
    printed = re.fullmatch(r"print\s+(?:>>\s*[\w.]+\s*,)?(.+?),?", line)
    return f"print({printed[1]})" if printed else "pass"


def _is_own_package(use: Use, path: str) -> bool:
    """True if `d2l` stands for a file in the program's folder."""
    top = use.paths[0].partition(".")[0]
    here = os.path.join(os.path.dirname(os.path.abspath(path)), top)
    return top == "d2l" and (os.path.exists(here) or os.path.exists(f"{here}.py"))


# -- judging ---------------------------------------------------------------------------------------


_ask = functools.cache(ask)


def _first_missing(use: Use) -> tuple[str, str] | None:
    """The first path that the library lacks, and why. What is left out can be imported."""
    for path in use.paths:
        reason = _ask(path)
        if reason and not (use.is_import and reason.startswith("left out")):
            return short(path), reason
    return None


def _differences(use: Use) -> list[Difference]:
    """The rows about the name, or about a keyword of its call."""
    name = short(use.paths[0]).removeprefix("mxnet.")
    asked = {name, *(f"{name}({keyword})" for keyword in use.keywords)}
    return [row for row in DIFFERENCES if asked & set(row.names.split())]


@functools.cache
def _missing_methods() -> dict[str, tuple[str, str]]:
    """The methods of arrays that are left out, by their own names."""
    names = [name for name, method in vars(NDArray).items() if isinstance(method, LeftOut)]
    return {name: (f"NDArray.{name}", f"left out: {reason_of(name)}") for name in names}
