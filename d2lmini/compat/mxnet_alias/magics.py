"""IPython's syntax in the cells of a notebook that `runner.py` runs.

`%matplotlib` draws figures in memory; `%time` and its kin run what follows them; settings of the
editor do nothing; commands that install packages are left out, with a note. Everything else needs
IPython: where it is installed, it translates the line or the cell, and runs it; where it is not,
the line is left out, with a note.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from types import ModuleType
from typing import Any

from d2lmini.compat.mxnet_alias.notebook import Cell, is_ipython, plain_python

# Commands of IPython that have no effect on a program that runs from top to bottom.
_SILENT = ("matplotlib", "config", "load_ext", "autoreload", "reload_ext", "pylab")
# Commands that run the rest of their line.
_TRANSPARENT = ("time", "timeit", "prun", "capture")
# Cells in the language of a web page: there is no page.
_OF_PAGES = ("html", "HTML", "javascript", "js", "latex", "markdown", "svg", "SVG")
_INSTALLS = re.compile(r"[!%]+\s*(sudo\s+)?(\S*python\S*\s+-m\s+)?(pip|conda|mamba|apt|brew|yum)")


def to_python(cell: Cell, name: str, module: ModuleType) -> str:
    """The cell's text without IPython's syntax, with the same line numbers; SyntaxError, in a file
    called `name`, if a line is neither Python nor IPython."""
    source = cell.source
    if source.startswith("%%"):
        first, _, rest = source.partition("\n")
        command, *_ = first[2:].split() or [""]
        if command in _OF_PAGES:
            return ""
        if command not in _TRANSPARENT:
            return _by_ipython(cell, source, "the whole cell", module)
        source = "\n" + rest
    return plain_python(source, lambda line: _line_to_python(cell, line, module), name)


def _line_to_python(cell: Cell, line: str, module: ModuleType) -> str | None:
    if not is_ipython(line):
        return None
    command, _, rest = line[1:].partition(" ") if line.startswith("%") else ("", "", "")
    if command in _TRANSPARENT:
        return rest.strip() or "pass"
    if command == "matplotlib":
        # There is no page for figures: draw them in memory, for savefig.
        os.environ.setdefault("MPLBACKEND", "Agg")
    if command in _SILENT:
        return "pass"
    return _by_ipython(cell, line, "this line", module)


def _by_ipython(cell: Cell, text: str, what: str, module: ModuleType) -> str:
    """The Python that IPython makes of the text, else "pass" after a note."""
    if _INSTALLS.match(text):
        why = "install packages before the program runs"
    elif importlib.util.find_spec("IPython") is None:
        why = "only IPython understands it (pip install ipython)"
    else:
        return str(shell_of(module).transform_cell(text)).rstrip("\n")
    first = text.partition("\n")[0]
    print(f"{cell.name}: {what} is left out, {why}: {first}", file=sys.stderr)
    return "pass"


def shell_of(module: ModuleType) -> Any:
    """IPython's shell over the program's namespace; it keeps no history and no files."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    if not InteractiveShell.initialized():
        folder = tempfile.mkdtemp(prefix="d2lmini-ipython-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        InteractiveShell.instance(
            config=Config(HistoryManager={"enabled": False}),
            ipython_dir=folder,
            user_module=module,
            user_ns=vars(module),
        )
        # IPython's own would ask a terminal; Python's end the program.
        vars(module).pop("exit", None)
        vars(module).pop("quit", None)
    return InteractiveShell.instance()
