"""Run an old program, a script or a notebook, with `import mxnet` meaning d2lmini.

    from d2lmini.compat.mxnet_alias.runner import run
    status = run("train.py", ["--epochs", "3"])        # 0, or 1 after an error was printed

For the program everything is as if Python had started it: `__name__` is "__main__", `sys.argv` is
its own, its folder comes first on `sys.path`, and a traceback shows only its lines. A notebook's
code cells run in order in one namespace; the value of a cell's last line is printed, and a
traceback names the cell. Lines that only IPython understands are left out, most with a note.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from d2lmini.compat.mxnet_alias import install_as_mxnet

#: The environment variable with the program's path, for child processes (see `spawned.py`).
PROGRAM = "D2LMINI_PROGRAM"

# Commands of IPython that have no effect on a program that runs from top to bottom.
_SILENT = ("matplotlib", "config", "load_ext", "autoreload", "reload_ext", "pylab")
# Commands that run the rest of their line.
_TRANSPARENT = ("time", "timeit", "prun", "capture")


def run(path: str | os.PathLike[str], arguments: Sequence[str] = ()) -> int:
    """Run a .py or .ipynb file as the program; returns its exit status.

    Errors of the program are printed as Python prints them and give 1; SystemExit passes through.
    FileNotFoundError when there is no such file, ValueError for a notebook that cannot be read.
    """
    path = os.fspath(path)
    notebook = path.endswith(".ipynb")
    cells = list(_cells(path)) if notebook else [("", Path(path).read_bytes())]
    install_as_mxnet()
    with _as_main(path, arguments, notebook) as module:
        for name, source in cells:
            try:
                if notebook:
                    assert isinstance(source, str)
                    _run_cell(source, f"{path}, {name}", module)
                else:
                    exec(compile(source, path, "exec", dont_inherit=True), vars(module))
            except SystemExit:
                raise
            except BaseException as error:
                _show(error)
                return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


@contextmanager
def _as_main(path: str, arguments: Sequence[str], notebook: bool) -> Iterator[ModuleType]:
    """A fresh `__main__` with its own arguments; restores the former one at the end."""
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    folder = os.path.dirname(os.path.abspath(path))
    before = sys.modules["__main__"], sys.argv, sys.path[:], os.environ.get(PROGRAM)
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    if notebook:
        vars(module)["display"] = _display
    else:
        # Child processes run the program again, as "__mp_main__", to find its functions; they start
        # with the module `spawned`, which installs the alias first.
        os.environ[PROGRAM] = os.path.abspath(path)
        module.__spec__ = ModuleSpec("d2lmini.compat.mxnet_alias.spawned", None)
    try:
        yield module
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:], program = before
        os.environ.pop(PROGRAM, None)
        if program is not None:
            os.environ[PROGRAM] = program


def _show(error: BaseException) -> None:
    """Print the error, without the frames of this file at its beginning."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    sys.stdout.flush()
    if sys.excepthook is sys.__excepthook__:
        # Python's own hook looks lines up in files only, and a cell is not a file before 3.13.
        traceback.print_exception(type(error), error, frames)
    else:
        sys.excepthook(type(error), error, frames)


# -- notebooks ----------------------------------------------------------------------------------


def _cells(path: str) -> Iterator[tuple[str, str]]:
    """The code cells as ("cell 3", source); cells of all kinds count, from 1."""
    found = []
    try:
        book = json.loads(Path(path).read_text(encoding="utf-8"))
        cells = book["cells"] if "cells" in book else book["worksheets"][0]["cells"]
        for number, cell in enumerate(cells, start=1):
            if cell["cell_type"] == "code":
                source = cell.get("source", cell.get("input", ""))
                text = source if isinstance(source, str) else "".join(source)
                found.append((f"cell {number}", text))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as problem:
        words = repr(problem)[:300]
        raise ValueError(f"{path} is not a readable notebook: {words}") from None
    yield from found


def _run_cell(source: str, name: str, module: ModuleType) -> None:
    """Execute a cell; print the value of an expression at its end, unless a `;` follows."""
    source = _plain_python(source, name)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = _parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(_compile(tree, name), vars(module))
    if isinstance(last, ast.Expr):
        value = eval(_compile(ast.Expression(last.value), name), vars(module))
        if not source.rstrip().endswith(";"):
            sys.displayhook(value)


def _parse(source: str, name: str) -> ast.Module:
    tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


def _compile(tree: ast.Module | ast.Expression, name: str) -> CodeType:
    mode = "exec" if isinstance(tree, ast.Module) else "eval"
    return compile(tree, name, mode, dont_inherit=True)


def _plain_python(source: str, name: str) -> str:
    """The cell without IPython's syntax, with the same line numbers.

    Only lines at which Python finds a syntax error are changed: a `%` at the begin of a formula's
    second line, or a line of a string, is not one.
    """
    lines = source.split("\n")
    if lines[0].startswith("%%"):
        command, *_ = lines[0][2:].split() or [""]
        if command not in _TRANSPARENT:
            _note(name, lines[0], "the whole cell")
            return ""
        lines[0] = ""
    while True:
        try:
            _parse("\n".join(lines), name)
            return "\n".join(lines)
        except SyntaxError as error:
            number = (error.lineno or 1) - 1
            line = lines[number] if number < len(lines) else ""
            plain = _without_magic(line, name)
            if plain is None:
                linecache.cache[name] = (len(source), None, [x + "\n" for x in lines], name)
                raise
            lines[number] = plain


def _without_magic(line: str, name: str) -> str | None:
    """A line of IPython's syntax as Python; None if it is not one."""
    text = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    if text.startswith("%"):
        command, _, rest = text[1:].partition(" ")
        if command in _TRANSPARENT:
            return indent + (rest.strip() or "pass")
        if command == "matplotlib":
            # There is no page for figures: draw them in memory, for savefig.
            os.environ.setdefault("MPLBACKEND", "Agg")
        elif command not in _SILENT:
            _note(name, text, "this line")
        return indent + "pass"
    if text.startswith("!") or text.endswith("?"):
        _note(name, text, "this line")
        return indent + "pass"
    return None


def _note(name: str, text: str, what: str) -> None:
    print(f"{name}: {what} is left out, only IPython understands it: {text}", file=sys.stderr)


def _display(*values: Any) -> None:
    """The `display` of notebooks: print each value."""
    for value in values:
        print(repr(value))
