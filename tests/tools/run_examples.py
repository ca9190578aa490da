"""Run every example in the docstrings of the library that is installed, with the extras that are:
an example that needs another one is left out. `noxfile.py` runs this file beside a wheel; in a
clone `make doctest` does.

>>> run("d2lmini.context").failed
0
"""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import sys
import tempfile
from collections.abc import Iterator

import d2lmini


def modules() -> Iterator[str]:
    """The names of all modules of the library."""
    for info in pkgutil.walk_packages(d2lmini.__path__, "d2lmini."):
        if not info.name.endswith("__main__"):
            yield info.name


def run(name: str) -> doctest.TestResults:
    """Run a module's examples; an import of a package that is not installed is no failure."""
    failed, tried = 0, 0
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] == "d2lmini":
            raise
        return doctest.TestResults(0, 0)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for test in doctest.DocTestFinder().find(module, name):
        told: list[str] = []
        results = doctest.DocTestRunner(optionflags=options).run(test, out=told.append)
        d2lmini.engine.waitall()
        report = "".join(told)
        if results.failed and not re.search("ModuleNotFoundError|is not installed", report):
            print(report)
            failed += results.failed
        tried += results.attempted
    return doctest.TestResults(failed, tried)


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")  # drawings open no window
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)  # some examples write files
        failed, tried = map(sum, zip(*map(run, modules())))
        os.chdir("/")
    print(f"{tried} examples, {failed} failed")
    sys.exit(failed > 0)
