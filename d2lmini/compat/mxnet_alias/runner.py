"""Run an old program, a script or a notebook, with `import mxnet` meaning d2lmini.

    from d2lmini.compat.mxnet_alias.runner import run
    status = run("train.py", ["--epochs", "3"])        # 0, or 1 after an error was printed

For the program everything is as if Python had started it: `__name__` is "__main__", `sys.argv` is
its own, its folder comes first on `sys.path`, and a traceback shows only its lines. A notebook's
code cells run in order in one namespace; the value of a cell's last line is printed, and a
traceback names the cell.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from d2lmini.base.scopes import contextmanager
from d2lmini.compat.mxnet_alias import failure, install_as_mxnet
from d2lmini.compat.mxnet_alias.notebook import Cell, parse, read_cells, to_python

#: The environment variable with the program's path, for child processes (see `spawned.py`).
PROGRAM = "D2LMINI_PROGRAM"


def run(
    path: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    keep_going: bool = False,
) -> int:
    """Run a .py or .ipynb file as the program; returns its exit status.

    Errors of the program are printed as Python prints them and give 1; SystemExit passes through.
    A notebook ends at the first cell that fails, or runs all cells (`keep_going`).
    FileNotFoundError when there is no such file, ValueError for a notebook that cannot be read.
    """
    path = os.fspath(path)
    notebook = path.endswith(".ipynb")
    cells = read_cells(path) if notebook else []
    source = b"" if notebook else Path(path).read_bytes()
    install_as_mxnet()
    failures: list[failure.Failure] = []
    with _as_main(path, arguments, notebook) as module:
        for index, cell in enumerate(cells or [Cell("", "")]):
            file = f"{path}, {cell.name}" if cell.name else path
            try:
                if notebook:
                    _run_cell(cell, file, module)
                else:
                    exec(compile(source, path, "exec", dont_inherit=True), vars(module))
            except BaseException as error:
                if isinstance(error, SystemExit):
                    if failures and not error.code:  # the program ends here, and has failed
                        break
                    raise
                failures.append(failure.describe(error, file, cell.name))
                left = len(cells) - 1 - index
                _show(error)
                if isinstance(error, KeyboardInterrupt):
                    return 130
                if not keep_going:
                    break
    if notebook and failures:
        _summarize(len(cells), left, failures, keep_going)
    return int(bool(failures))


def _summarize(cells: int, left: int, failures: list[failure.Failure], keep_going: bool) -> None:
    """Print which cells failed, or how many did not run after the first that did."""
    words = []
    if keep_going:
        words.append(f"{len(failures)} of {cells} code cells failed:")
        words += [f"  {row.place}: {row.error}" for row in failures]
    elif left:
        words.append(f"{failures[0].place} failed; {left} of {cells} code cells were not run ")
        words[0] += "(run --keep-going runs all)"
    sys.stdout.flush()
    print(*words, sep="\n", end="\n" if words else "", file=sys.stderr)


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
    """Print the error, without the frames of this folder at its beginning, and what to do."""
    sys.stdout.flush()
    if sys.excepthook is sys.__excepthook__:
        # Python's own hook looks lines up in files only, and a cell is not a file before 3.13.
        print(failure.as_python_prints(error), end="", file=sys.stderr)
    else:
        sys.excepthook(type(error), error, failure.own_frames(error))
    if hint := failure.advice(error):
        print(f"Hint: {hint}", file=sys.stderr)


# -- notebooks ----------------------------------------------------------------------------------


def _run_cell(cell: Cell, name: str, module: ModuleType) -> None:
    """Execute a cell; print the value of an expression at its end, unless a `;` follows."""
    linecache.cache[name] = _lines(cell.source, name)
    source = to_python(cell, name)
    linecache.cache[name] = _lines(source, name)
    tree = parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(_compile(tree, name), vars(module))
    if isinstance(last, ast.Expr):
        value = eval(_compile(ast.Expression(last.value), name), vars(module))
        if not source.rstrip().endswith(";"):
            sys.displayhook(value)


def _lines(source: str, name: str) -> tuple[int, None, list[str], str]:
    return len(source), None, source.splitlines(keepends=True), name


def _compile(tree: ast.Module | ast.Expression, name: str) -> CodeType:
    mode = "exec" if isinstance(tree, ast.Module) else "eval"
    return compile(tree, name, mode, dont_inherit=True)


def _display(*values: Any) -> None:
    """The `display` of notebooks: print each value."""
    for value in values:
        print(repr(value))
