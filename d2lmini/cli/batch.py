"""Many programs, each in a process of its own with a time limit: `d2lmini run FOLDER`.

The child process runs this file with the path of a report, which it rewrites at each cell, so that
the report is there even if the child is killed. The parent prints a line for each program:

    passed     train.py  (1.2 s)
    FAILED     images.ipynb  (0.8 s)
               cell 3, line 2: NameError: name 'x' is not defined

A program that exceeds its time gets the signal of Ctrl-C first, whose traceback names the line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from d2lmini import addons, files
from d2lmini.cli.errors import CommandError
from d2lmini.cli.files import environment
from d2lmini.cli.progress import Progress
from d2lmini.scopes import contextmanager

#: Seconds that a program has to end after the signal of Ctrl-C.
GRACE_S = 3.0
#: Folders that hold no programs of the user's, besides hidden ones.
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}

Result = Literal["passed", "FAILED", "TIMED OUT", "not run"]


@dataclass
class Outcome:
    """What became of a program; `failures` as in `compat/mxnet_alias/failure.py`."""

    file: str
    result: Result = "not run"
    elapsed_s: float = 0.0
    failures: list[dict[str, str]] = field(default_factory=list)


def programs_in(folder: str) -> list[str]:
    """The .py and .ipynb files in a folder and its folders, in order; CommandError if there is
    none. Hidden folders, checkpoints and installed packages are left out."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        programs = [n for n in names if n.endswith((".py", ".ipynb")) and not n.startswith(".")]
        found += [os.path.join(place, name) for name in sorted(programs)]
    if not found:
        raise CommandError(f"there is no .py or .ipynb file in {folder!r}")
    return found


def run_all(
    paths: Sequence[str],
    arguments: Sequence[str] = (),
    timeout_s: float | None = None,
    keep_going: bool = False,
    as_json: bool = False,
    alone: bool = False,
) -> int:
    """Run all programs and report them; 0 if all passed, 1 if not, 130 after Ctrl-C.

    One program `alone` runs in the folder of this process, and shows what it prints.
    """
    outcomes = [Outcome(path) for path in paths]
    shown = names_to_show(paths)
    stopped = False
    output: int | TextIO | None = subprocess.DEVNULL
    if alone:
        output = sys.stderr if as_json else None
    with _stopped_by_sigterm(), Progress(0 if alone else len(paths)) as bar:
        for outcome, name in zip(outcomes, shown, strict=True):
            if not alone:
                bar.step(name)
            try:
                _run_one(outcome, arguments, timeout_s, keep_going, output, alone)
            except KeyboardInterrupt:
                stopped = True
            if not as_json and outcome.result != "not run":
                bar.print(as_text(outcome, name))
            if stopped:
                break
    summary = totals(outcomes)
    if as_json:
        programs = [asdict(outcome) for outcome in outcomes]
        print(json.dumps({"programs": programs, "totals": summary}, indent=2))
    else:
        print(closing(summary, sum(outcome.elapsed_s for outcome in outcomes)))
    if stopped:
        print("run: stopped by Ctrl-C", file=sys.stderr)
        return 130
    errors = [failure["error"] for outcome in outcomes for failure in outcome.failures]
    if any("left out of d2lmini" in error for error in errors) and not as_json:
        print("To list all names of MXNet that are missing: d2lmini info --for FILE or FOLDER")
    return int(any(outcome.result != "passed" for outcome in outcomes))


# -- what is printed -------------------------------------------------------------------------------


def as_text(outcome: Outcome, name: str) -> str:
    """The lines about a program."""
    begin = f"{outcome.result:<9}  "
    lines = [f"{begin}{name}  ({outcome.elapsed_s:.1f} s)"]
    for failure in outcome.failures:
        words = ": ".join(filter(None, [failure["place"], failure["error"]]))
        advice = f"hint: {failure['advice']}" if failure["advice"] else ""
        for text, indent in ((words, ""), (advice, "  ")):
            first = " " * len(begin) + indent
            lines += wrap(text, first, first + "  ")
    return "\n".join(lines)


def wrap(text: str, first: str, then: str) -> list[str]:
    """The text in lines as wide as the terminal, between 60 and 100; how the `first` begins, and
    how the others do."""
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns - 1))
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    )


def totals(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many programs there are of each result."""
    results: tuple[Result, ...] = ("passed", "FAILED", "TIMED OUT", "not run")
    return {kind: sum(outcome.result == kind for outcome in outcomes) for kind in results}


def closing(summary: dict[str, int], elapsed_s: float) -> str:
    """The last line: "4 programs in 3.2 s: 2 passed, 1 failed, 1 timed out"."""
    programs = sum(summary.values())
    counts = [f"{count} {kind.lower()}" for kind, count in summary.items() if count]
    noun = "program" if programs == 1 else "programs"
    return f"{programs} {noun} in {elapsed_s:.1f} s: {', '.join(counts)}"


def names_to_show(paths: Sequence[str]) -> list[str]:
    """The paths below the folder that all of them share."""
    shared = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    return [os.path.relpath(path, shared) for path in paths]


# -- one program -----------------------------------------------------------------------------------


def _run_one(
    outcome: Outcome,
    arguments: Sequence[str],
    timeout_s: float | None,
    keep_going: bool,
    output: int | TextIO | None,
    here: bool,
) -> None:
    """Run a program, in its own folder or in this one (`here`), and write what became of it into
    `outcome`; KeyboardInterrupt passes through."""
    path = outcome.file if here else os.path.abspath(outcome.file)
    code = "import sys; from d2lmini.cli.batch import run_child; run_child(*sys.argv[1:])"
    begin_s = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        report = os.path.join(folder, "report.json")
        child = subprocess.Popen(
            [sys.executable, "-c", code, report, str(int(keep_going)), path, *arguments],
            cwd=None if here else os.path.dirname(path),
            env={"MPLBACKEND": "Agg", **environment()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if here else subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
            _interrupt(child)
        finally:
            _kill(child)
            outcome.elapsed_s = round(time.perf_counter() - begin_s, 3)
        _judge(outcome, status, timeout_s, report)


def _judge(outcome: Outcome, status: int | None, timeout_s: float | None, report: str) -> None:
    """Set the result from the exit status (None: the time was over) and the child's report."""
    try:
        told: dict[str, Any] = json.loads(Path(report).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the child died before it began
        told = {"cell": "", "failures": []}
    outcome.failures = told["failures"]
    if status == 0:
        outcome.result = "passed"
        return
    outcome.result = "FAILED" if status is not None else "TIMED OUT"
    place = told["cell"]
    if status is None:
        interrupted = [f for f in outcome.failures if f["error"].startswith("KeyboardInterrupt")]
        place = interrupted[-1]["place"] if interrupted else place
        outcome.failures = [f for f in outcome.failures if f not in interrupted]
        error = f"still running after {timeout_s:g} s (--timeout)"
    elif outcome.failures:
        return
    elif status < 0:
        error = f"killed by {signal.Signals(-status).name}"
    else:
        error = f"ended with exit status {status}"
    outcome.failures.append(
        {"cell": told["cell"], "place": place, "error": error, "advice": "", "traceback": ""}
    )


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Ask the program to end, as Ctrl-C does, and wait a moment."""
    if os.name == "posix":
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the program, if it runs, and the processes that it has started."""
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()


def run_child(report: str, keep_going: str, path: str, *arguments: str) -> None:
    """In the child: run the program and keep the report up to date."""
    told: dict[str, Any] = {"cell": "", "failures": []}

    def listen(cell: str, failure: Any) -> None:
        told["cell"] = cell
        if failure is not None:
            told["failures"].append(failure._asdict())
        files.write(report, json.dumps(told))

    try:
        sys.exit(addons.find("run")(path, arguments, keep_going == "1", listen))
    except ValueError as problem:  # no notebook
        error = {"cell": "", "place": "", "error": str(problem), "advice": "", "traceback": ""}
        told["failures"].append(error)
        files.write(report, json.dumps(told))
        sys.exit(1)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """A scope in which SIGTERM does what Ctrl-C does: no child outlives this process."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
