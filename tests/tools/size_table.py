"""How big the project is: lines and tokens per folder, without docstrings and comments.

A line counts when it holds at least one token of code; a token is what Python's tokenizer calls
one, except line ends and indentation. Packing lines therefore wins nothing: the tokens stay.
`measure` is also what `tests/repository/test_layout.py` holds every file of the library to, and
`tests/repository/test_size_budget.py` every folder: to the lines that `size_budget.txt` gives it.

>>> measure('x = 1  # one\\n\\ndef f():\\n    "Doc."\\n    return x\\n')
Size(lines=3, tokens=10)
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUDGET = ROOT / "tests/repository/size_budget.txt"
TOPS = ("d2lmini", "chapters", "tests")

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
# Python 3.12 cuts f-strings into parts and 3.14 has t-strings; one string is one token for us,
# so that the table does not depend on the Python that prints it.
_OPENS = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")} - {None}
_CLOSES = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")} - {None}


class Size(NamedTuple):
    lines: int
    tokens: int


def _blocks(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all statements below it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from _blocks(child)


def _docstring_starts(source: str) -> set[tuple[int, int]]:
    """(line, column) where each docstring begins."""
    starts = set()
    for node in _blocks(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                starts.add((first.value.lineno, first.value.col_offset))
    return starts


def measure(source: str) -> Size:
    """Lines and tokens of Python source, without docstrings and comments."""
    docstrings = _docstring_starts(source)
    lines: set[int] = set()
    tokens = 0
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _LAYOUT or token.start in docstrings:
            continue
        lines.update(range(token.start[0], token.end[0] + 1))
        if depth == 0:
            tokens += 1
        depth += (token.type in _OPENS) - (token.type in _CLOSES)
    return Size(len(lines), tokens)


@cache
def measure_file(path: Path) -> Size:
    return measure(path.read_text(encoding="utf-8"))


def folders(root: Path) -> dict[str, list[tuple[Path, Size]]]:
    """Each folder of Python files below `TOPS`, with its files and their sizes."""
    table = defaultdict(list)
    for top in TOPS:
        for path in sorted((root / top).rglob("*.py")):
            table[path.parent.relative_to(root).as_posix()].append((path, measure_file(path)))
    return dict(sorted(table.items()))


def lines_of(root: Path) -> dict[str, int]:
    """Lines of each folder, without those below it; and of each of `TOPS` with all below it, under
    its name and a slash: {"d2lmini": 1837, "d2lmini/autograd": 870, ..., "d2lmini/": 64179}."""
    lines = {}
    for folder, files in folders(root).items():
        lines[folder] = sum(size.lines for _, size in files)
        top = folder.split("/")[0] + "/"
        lines[top] = lines.get(top, 0) + lines[folder]
    return lines


def read_budget(text: str) -> dict[str, int]:
    """The rows of a budget: a folder as in `lines_of`, and the most lines that it may have.

    >>> read_budget("# why\\nd2lmini/   57000\\nd2lmini/d2l  1300  # the helpers\\n")
    {'d2lmini/': 57000, 'd2lmini/d2l': 1300}
    """
    rows = (line.split("#")[0].split() for line in text.splitlines())
    return {folder: int(lines) for folder, lines in filter(None, rows)}


def main() -> int:
    budget = read_budget(BUDGET.read_text(encoding="utf-8"))
    print(f"{'folder':<28}{'files':>6}{'lines':>8}{'budget':>8}{'tokens':>9}   largest file")
    totals = dict.fromkeys(TOPS, (0, Size(0, 0)))
    for folder, files in folders(ROOT).items():
        found = Size(sum(size.lines for _, size in files), sum(size.tokens for _, size in files))
        path, size = max(files, key=lambda file: file[1].lines)
        _print_row(folder, len(files), found, budget.get(folder), f"{path.name} ({size.lines})")
        top = folder.split("/")[0]
        count, total = totals[top]
        totals[top] = (count + len(files), Size(*map(sum, zip(total, found, strict=True))))
    for top, (count, total) in totals.items():
        _print_row(f"all of {top}", count, total, budget.get(f"{top}/"), "")
    print("without docstrings, comments and blank lines")
    return 0


def _print_row(folder: str, files: int, size: Size, budget: int | None, largest: str) -> None:
    row = f"{folder:<28}{files:>6}{size.lines:>8}{budget or '':>8}{size.tokens:>9}   {largest}"
    print(row.rstrip())


if __name__ == "__main__":
    sys.exit(main())
