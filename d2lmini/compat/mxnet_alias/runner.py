"""Run an old program, a script or a notebook, with `import mxnet` meaning d2lmini.

    from d2lmini.compat.mxnet_alias.runner import run
    status = run("train.py", ["--epochs", "3"])        # 0, or 1 after an error was printed

For the program everything is as if Python had started it: `__name__` is "__main__", `sys.argv` is
its own, its folder comes first on `sys.path`, and a traceback shows only its lines. A notebook's
code cells run in order in one namespace; the value of a cell's last line is printed, and a
traceback names the cell.

IPython's syntax in a cell is changed only at lines where Python finds a syntax error: the `%` at
the begin of a formula's second line is Python, and so is a line of a string.

>>> cell = Cell("cell 3", "%matplotlib inline\\nx = (7\\n  % 4)\\n%time f(x)")
>>> print(to_python(cell, "cell 3"))
pass
x = (7
  % 4)
f(x)
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import linecache
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from d2lmini.base.scopes import contextmanager
from d2lmini.compat.mxnet_alias import install_as_mxnet


class Cell(NamedTuple):
    """A code cell: its name in messages, "cell 3", and its text. Cells of all kinds count, from 1;
    the one cell of a script has the name ""."""

    name: str
    source: str


def run(path: str | os.PathLike[str], arguments: Sequence[str] = ()) -> int:
    """Run a .py or .ipynb file as the program; returns its exit status.

    Errors of the program are printed as Python prints them and give 1; SystemExit passes through. A
    notebook ends at the first cell that fails. FileNotFoundError when there is no such file,
    ValueError for a notebook that cannot be read.
    """
    path = os.fspath(path)
    notebook = path.endswith(".ipynb")
    cells = read_cells(path) if notebook else [Cell("", "")]
    source = b"" if notebook else Path(path).read_bytes()
    install_as_mxnet()
    with _as_main(path, arguments, notebook) as module:
        for number, cell in enumerate(cells, start=1):
            file = f"{path}, {cell.name}" if notebook else path
            try:
                if notebook:
                    _run_cell(cell, file, module)
                else:
                    exec(compile(source, path, "exec", dont_inherit=True), vars(module))
            except SystemExit:
                raise
            except BaseException as error:
                _show(error)
                if left := len(cells) - number:
                    said = f"{cell.name} failed; {left} more code cells were not run"
                    print(said, file=sys.stderr)
                return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


@contextmanager
def _as_main(path: str, arguments: Sequence[str], notebook: bool) -> Iterator[ModuleType]:
    """A fresh `__main__` with its own arguments; restores the former one at the end."""
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    folder = os.path.dirname(os.path.abspath(path))
    before = sys.modules["__main__"], sys.argv, sys.path[:]
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    if notebook:
        vars(module)["display"] = _display
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before


# -- errors ----------------------------------------------------------------------------------------


def _show(error: BaseException) -> None:
    """Print the error, without the frames of this folder at its beginning."""
    sys.stdout.flush()
    ours = (os.path.dirname(__file__), contextlib.__file__)
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    if sys.excepthook is sys.__excepthook__:
        # Python's own hook looks lines up in files only, and a cell is not a file before 3.13.
        traceback.print_exception(type(error), error, frames)
    else:
        sys.excepthook(type(error), error, frames)


# -- notebooks -------------------------------------------------------------------------------------

_IPYTHON = re.compile(r"[%!?]|\S.*\?$|[\w\s,.*\[\]]+=\s*[%!]")
# Commands of IPython that have no effect on a program that runs from top to bottom.
_SILENT = ("matplotlib", "config", "load_ext", "autoreload", "reload_ext", "pylab")
# Commands that run the rest of their line, or of their cell.
_TRANSPARENT = ("time", "timeit", "prun", "capture")


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


def _run_cell(cell: Cell, name: str, module: ModuleType) -> None:
    """Execute a cell; print the value of an expression at its end, unless a `;` follows."""
    linecache.cache[name] = _lines(cell.source, name)
    source = to_python(cell, name)
    linecache.cache[name] = _lines(source, name)
    tree = parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec", dont_inherit=True), vars(module))
    if isinstance(last, ast.Expr):
        expression = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
        value = eval(expression, vars(module))
        if not source.rstrip().endswith(";"):
            sys.displayhook(value)


def _lines(source: str, name: str) -> tuple[int, None, list[str], str]:
    return len(source), None, source.splitlines(keepends=True), name


def _display(*values: Any) -> None:
    """The `display` of notebooks: print each value."""
    for value in values:
        print(repr(value))


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
    lines = source.split("\n")
    while True:
        try:
            parse("\n".join(lines), name)
            return "\n".join(lines)
        except SyntaxError as error:
            number = (error.lineno or 1) - 1
            line = lines[number] if number < len(lines) else ""
            plain = _line_to_python(cell, line.strip())
            if plain == line.strip():
                raise
            lines[number] = line[: len(line) - len(line.lstrip())] + plain


def _line_to_python(cell: Cell, line: str) -> str:
    """The Python for a line that is not Python; the line itself if it is not IPython either."""
    if not _IPYTHON.match(line):
        return line
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


def parse(source: str, name: str = "<cell>") -> ast.Module:
    """The syntax tree; SyntaxError, or ValueError for text with null bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree
