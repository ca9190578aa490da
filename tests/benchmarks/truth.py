"""How often are the instruments right? One table: what was planted or drawn, and what was said.

    python tests/benchmarks/truth.py                  # all sections, in a few minutes
    python tests/benchmarks/truth.py waits checks     # some of them
    python tests/benchmarks/truth.py --full           # as many programs as the documentation states

Only `what_if` and `compare` are timed, and so depend on what else the machine does. A section is a
function that gives rows: a thing that was asked, how often the answer was right, and of how many.
To add one, write the function and name it in `SECTIONS`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "chapters"))

import bands
import planted_waits
from schedule_answers import ANSWERS, grade
from virtual_programs import (
    Program,
    changed,
    draw,
    length,
    spans,
    trace_of,
    where,
)

import d2lmini
from d2lmini import d2l, nd, profile
from d2lmini.base import callsite
from d2lmini.profiler.replay import Prediction

#: The ends of a band are at most this factor apart, in the median.
WIDTH = 2.4
#: Does the command try all that there is? (`--full`)
full = False


class Row(NamedTuple):
    """A line of the table: `right` of `of` answers were right; `wrong` names the others, of which
    `allowed` do no harm."""

    what: str
    right: int
    of: int
    wrong: tuple[str, ...] = ()
    allowed: int = 0


def waits() -> Iterator[Row]:
    """Hidden waits planted at known lines: are they found there, and no others accused?"""
    program = planted_waits.write_all()
    lines = program.text.splitlines()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with d2lmini.lint_waits("warn") as lint, profile() as trace:
            planted_waits.run(program.text, Path(folder) / "planted.py")
    named = {callsite.line_of(found.site) for found in lint.found if found.site}
    named &= {callsite.line_of(row.site) for row in trace.waits().hidden if row.site}
    for kind in planted_waits.HIDDEN:
        planted = [line for line, its_kind in program.planted.items() if its_kind == kind]
        missed = tuple(lines[line - 1] for line in planted if line not in named)
        yield Row(kind, len(planted) - len(missed), len(planted), missed)
    accused = tuple(lines[line - 1] for line in sorted(named - set(program.planted)))
    plain = len(planted_waits.PLAIN)
    yield Row("not a hidden wait, and not accused", plain - len(accused), plain, accused)


def checks() -> Iterator[Row]:
    """Answers to exercises on schedules: do right ones pass, and wrong ones fail?"""
    judged: Counter[tuple[str, bool]] = Counter()
    mistaken: dict[tuple[str, bool], list[str]] = {}
    for answer in ANSWERS:
        key = answer.exercise.name, answer.right
        judged[key] += 1
        mistaken.setdefault(key, [])
        with contextlib.redirect_stdout(io.StringIO()):
            hint = grade(answer)
        if (hint is None) != answer.right:
            mistaken[key].append(answer.function.__name__)
    for (exercise, right), times in judged.items():
        wrong = mistaken[exercise, right]
        said = "right ones that pass" if right else "wrong ones that fail"
        yield Row(f"{exercise}: {said}", times - len(wrong), times, tuple(wrong))


class Tally:
    """Counts answers by what was asked, for the rows of a section."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.wrong: dict[str, list[str]] = {}

    def add(self, what: str, right: bool, name: str) -> None:
        """An answer to the question `what`, about the thing of that name."""
        self.of[what] += 1
        self.wrong.setdefault(what, [])
        if not right:
            self.wrong[what].append(name)

    def rows(self, allowed: float = 0.0) -> Iterator[Row]:
        """A row for each question; the first wrong answers are named. A share of `allowed` wrong
        ones does no harm."""
        for what, n in self.of.items():
            wrong = self.wrong[what]
            yield Row(what, n - len(wrong), n, tuple(wrong[:5]), math.ceil(n * allowed))


def random_programs(few: int, all: int, **draws: float) -> Iterator[tuple[str, Program]]:
    """Programs for the virtual clock by name, on the CPU and with two devices."""
    for seed in range(all if full else few):
        for gpus in (0, 2):
            yield f"seed {seed}, {gpus} devices", draw(seed, gpus, **draws)


def causes() -> Iterator[Row]:
    """The account on the virtual clock: is what saves time listed, with what it truly saves?"""
    tally = Tally()
    for name, program in random_programs(25, 200, waits=0.2, inner=0):
        trace = trace_of(program)
        account = trace.account(cores=4)
        for cause, true in changed(program, trace, 4).items():
            saved = max(0, length(trace) - length(true))
            exact = account[cause].saves == Prediction(saved, saved)
            tally.add(f"{cause}: the saving is that of the changed program", exact, name)
            if saved:
                tally.add(f"{cause}: saves time, and is listed", cause in account.causes, name)
    yield from tally.rows()


def replay() -> Iterator[Row]:
    """Replays on the virtual clock: is every time that of a run of the changed program?"""
    tally = Tally()
    for name, program in random_programs(25, 200, inner=0):
        trace = trace_of(program)
        answers = {
            "as it was": (trace.replay(), trace),
            "1 worker": (trace.replay(workers=1), trace_of(program, workers=1)),
            "3 workers": (trace.replay(workers=3), trace_of(program, workers=3)),
        }
        if trace.waits:
            without = trace.replay(without_wait_at=where(trace))
            answers["without waits"] = without, trace_of(program, waits=False)
        for what, (predicted, true) in answers.items():
            exact = spans(predicted) == spans(true) and length(predicted) == length(true)
            tally.add(what, exact and predicted.prediction == _point(true), name)
    yield from tally.rows()


def _point(true: d2lmini.profiler.Trace) -> Prediction:
    return Prediction(length(true), length(true))


def what_if() -> Iterator[Row]:
    """Programs in another world than the recorded one: does the truth lie in the predicted band?"""
    for said, programs in bands.SETS.items():
        for kind in bands.KINDS if full or programs is bands.JUDGED else ():
            tally, widths = Tally(), []
            for answer in bands.answers(kind, programs, bands.ROUNDS if full else 3):
                tally.add(f"{answer.before} to {answer.after}, {said}", answer.right, str(answer))
                widths.append(answer.width)
            yield from tally.rows(0.1)
            width = median(widths)
            yield Row(f"bands {width:.2f} times wide in the median", width <= WIDTH, 1)


def compare() -> Iterator[Row]:
    """Comparisons beside two busy processes: are equals equal, and a factor of 1.3 found?"""
    x = nd.random.uniform(shape=(200, 200))
    nd.waitall()

    def once() -> None:
        nd.dot(x, x).wait_to_read()

    def ten() -> None:
        for _ in range(10):
            once()

    def thirteen() -> None:
        for _ in range(13):
            once()

    def twenty() -> None:
        for _ in range(20):
            once()

    def twenty_three() -> None:
        for _ in range(23):
            once()

    tally = Tally()
    for k in range(100 if full else 20):
        verdict = d2l.compare({"20": twenty, "23": twenty_three}, explain=False)
        tally.add("a factor of 1.15, nothing beside it: found", verdict.slower, f"{k}: {verdict}")
    with busy(2):
        for k in range(100 if full else 20):
            verdict = d2l.compare({"a": once, "b": lambda: once()}, explain=False)
            tally.add("equals: no difference claimed", verdict.no_difference, f"{k}: {verdict}")
        for k in range(25 if full else 5):
            verdict = d2l.compare({"10": ten, "13": thirteen}, rounds=40, explain=False)
            tally.add("a factor of 1.3: found", verdict.slower, f"{k}: {verdict}")
    yield from tally.rows(0.01)


@contextlib.contextmanager
def busy(n: int) -> Iterator[None]:
    """Processes that compute without end, meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    section.__name__: section for section in (waits, checks, causes, replay, what_if, compare)
}


def main(names: list[str]) -> bool:
    """Print the sections; True if all answers are right, but for those allowed."""
    perfect = True
    for name in names:
        rows = list(SECTIONS[name]())
        perfect = perfect and all(row.of - row.right <= row.allowed for row in rows)
        rows.append(Row("in all", sum(row.right for row in rows), sum(row.of for row in rows)))
        print(f"{name}: {(SECTIONS[name].__doc__ or '').splitlines()[0]}")
        width = max(len(row.what) for row in rows)
        for row in rows:
            print(f"  {row.what:{width}}  {row.right:4} of {row.of}")
            for line in row.wrong:
                print(f"      not: {line}")
        print()
    return perfect


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How often are the instruments right?")
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), metavar="section")
    parser.add_argument("--full", action="store_true", help="try all that there is")
    arguments = parser.parse_args()
    full = arguments.full
    unknown = sorted(set(arguments.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    sys.exit(not main(arguments.sections))
