"""`d2lmini test`: does the library, as it is installed here, work on this machine?

The command is for a wheel, a new machine, another build of NumPy: the checks of `checks.py`, each
against an oracle of its own, take some seconds and need only the library. `--all` also runs every
example in the docstrings. A missing extra is not an error: its check counts as not run. In a clone,
`make test` runs all tests.

>>> from d2lmini.cli.check import Outcome
>>> closing([Outcome("a", "ok", "", 0.5), Outcome("b", "not run", "no GPU", 0.0)])
'1 passed, 0 failed, 1 not run, in 0.5 s'
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import os
import pkgutil
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import d2lmini
from d2lmini.cli.check import Check, CheckSkipped, Outcome
from d2lmini.cli.errors import CommandError
from d2lmini.cli.progress import Progress
from d2lmini.scopes import contextmanager


def add_to(commands: Any) -> None:
    """Declare `test`."""
    parser = commands.add_parser(
        "test",
        help="check the installed library on this machine",
        description="Check the library as it is installed here: some seconds; --all: a minute. "
        "The exit status is 0 if no check failed.",
    )
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only checks that have it in their name"
    )
    parser.add_argument("--all", action="store_true", help="all examples in docstrings, too")
    parser.add_argument("--list", action="store_true", help="only name the checks")
    parser.set_defaults(do=test)


def test(options: argparse.Namespace) -> int:
    """Run the checks, a line each; 0 if none failed, else 1."""
    from d2lmini.cli.checks import CHECKS

    checks = [*CHECKS, *(examples() if options.all else ())]
    if options.words:
        names = {check.name for check in checks}
        checks = [c for c in checks if any(_means(word, c.name, names) for word in options.words)]
        if not checks:
            raise CommandError(f"no check is named so: {' '.join(options.words)}; see test --list")
    if options.list:
        print("\n".join(check.name for check in checks))
        return 0
    outcomes = run(checks)
    print(closing(outcomes))
    return int(any(outcome.result == "FAILED" for outcome in outcomes))


def _means(word: str, name: str, names: set[str]) -> bool:
    """True if a word selects this check: by its name, or else by a part of the name."""
    return word == name if word in names else word in name


def run(checks: Sequence[Check]) -> list[Outcome]:
    """Run all checks in order, and report each when it has ended."""
    outcomes = []
    os.environ.setdefault("MPLBACKEND", "Agg")  # drawings in examples open no window
    with Progress(len(checks)) as bar, _elsewhere():
        for check in checks:
            bar.step(check.name)
            outcomes.append(_outcome(check))
            bar.print(_line(outcomes[-1]))
    return outcomes


def closing(outcomes: Sequence[Outcome]) -> str:
    """The summary line."""
    counts = [sum(o.result == kind for o in outcomes) for kind in ("ok", "FAILED", "not run")]
    elapsed_s = sum(outcome.elapsed_s for outcome in outcomes)
    return "{} passed, {} failed, {} not run, in {:.1f} s".format(*counts, elapsed_s)


def _outcome(check: Check) -> Outcome:
    begin_s = time.perf_counter()
    result: Literal["ok", "FAILED", "not run"] = "ok"
    try:
        said = check.run()
        d2lmini.engine.waitall()
    except CheckSkipped as why:
        result, said = "not run", str(why)
    except Exception as problem:
        result, said = "FAILED", "".join(traceback.format_exception(problem)).rstrip()
        with suppress(Exception):  # so that a failed check does not affect the next
            d2lmini.engine.waitall()
    return Outcome(check.name, result, said, time.perf_counter() - begin_s)


def _line(outcome: Outcome) -> str:
    if outcome.result == "FAILED":
        return f"FAILED   {outcome.name}\n{outcome.said}"
    return f"{outcome.result:<8} {outcome.name:<18} {outcome.said}"


@contextmanager
def _elsewhere() -> Iterator[None]:
    """A temporary folder, for checks and examples that write files."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


# -- the examples in docstrings --------------------------------------------------------------------


def examples() -> list[Check]:
    """A check for each module of the library."""
    names = [
        info.name
        for info in pkgutil.walk_packages(d2lmini.__path__, "d2lmini.")
        if not info.name.endswith("__main__")
    ]
    return [Check(f"examples {name}", lambda name=name: _examples_of(name)) for name in names]  # type: ignore[misc]


def _examples_of(name: str) -> str:
    """Run a module's examples; AssertionError with doctest's report of failures."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] == "d2lmini":
            raise
        raise CheckSkipped(f"{problem.name} is not installed") from None
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tests = [example for example in doctest.DocTestFinder().find(module, name) if example.examples]
    for test in tests:
        runner.run(test, out=told.append)
        d2lmini.engine.waitall()
    missing = [line for text in told for line in text.splitlines() if "ModuleNotFoundError" in line]
    if runner.failures and missing:
        raise CheckSkipped(missing[0].strip())
    if runner.failures:
        raise AssertionError("".join(told))
    return f"{runner.tries} examples"
