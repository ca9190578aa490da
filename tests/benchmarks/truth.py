"""How often are the instruments right? One table: what was planted or drawn, and what was said.

    python tests/benchmarks/truth.py                  # all sections
    python tests/benchmarks/truth.py waits checks     # some of them

Nothing here is timed. A section is a function that gives rows: a thing that was asked, how often
the answer was right, and of how many. To add one, write the function and name it in `SECTIONS`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import planted_waits
from schedule_answers import ANSWERS, grade

import d2lmini
from d2lmini import callsite, profile


class Row(NamedTuple):
    """A line of the table: `right` of `of` answers were right; `wrong` names the others."""

    what: str
    right: int
    of: int
    wrong: tuple[str, ...] = ()


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


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {"waits": waits, "checks": checks}


def main(names: list[str]) -> bool:
    """Print the sections; True if every answer was right."""
    perfect = True
    for name in names:
        rows = list(SECTIONS[name]())
        rows.append(Row("in all", sum(row.right for row in rows), sum(row.of for row in rows)))
        print(f"{name}: {(SECTIONS[name].__doc__ or '').splitlines()[0]}")
        width = max(len(row.what) for row in rows)
        for row in rows:
            print(f"  {row.what:{width}}  {row.right:4} of {row.of}")
            for line in row.wrong:
                print(f"      not: {line}")
        print()
        perfect = perfect and rows[-1].right == rows[-1].of
    return perfect


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How often are the instruments right?")
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), metavar="section")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    sys.exit(not main(arguments.sections))
