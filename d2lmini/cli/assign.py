"""`d2lmini assign CHAPTER`: a chapter's exercises as an assignment for a class.

    d2lmini assign auto-parallelism                      two notebooks, for students and teachers
    d2lmini assign auto-parallelism --format nbgrader    source/ of a course for nbgrader
    d2lmini assign auto-parallelism --format otter       a notebook for `otter assign`

The assignment holds the exercises whose answer a function of the chapter checks: in the list of a
chapter's exercises their text names the call, as in "`check_deal(deal)`", and the fold "An answer
to 8" begins with the line `def deal(cards):`. Each becomes three cells: the text, an answer of
which students see this line only, the check with its points. Before them stands the chapter's first
code cell, which imports all that answers and checks use; the modules of `labs` that it imports are
written beside the notebooks.

A check that passes returns or prints a sentence, one that does not raises. The checks draw new
instances at each call; when a teacher grades, each runs HIDDEN more times, so an answer that knows
one instance by heart fails.

Ids of cells follow the exercises' numbers, so that answers find their questions again in a later
edition. Checks cannot be edited or deleted in Jupyter.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from d2lmini.cli import files
from d2lmini.cli.files import CommandError
from d2lmini.device.files import write

#: How many more times a check runs when a teacher grades.
HIDDEN = 3

#: The metadata of a cell that Jupyter neither edits nor deletes.
LOCKED = {"editable": False, "deletable": False}

Cell = dict[str, Any]


class Exercise(NamedTuple):
    """A checked exercise of a chapter.

    number   in the chapter's list
    text     Markdown
    check    the name of the function that checks it; `answer` that of what is to be written
    head     the first line of the chapter's own answer, and its other lines: `body`
    """

    number: int
    text: str
    check: str
    answer: str
    head: str
    body: str

    @property
    def code(self) -> str:
        return f"{self.head}\n{self.body}"

    @property
    def call(self) -> str:
        return f"{self.check}({self.answer})"


class Chapter(NamedTuple):
    """What an assignment is made of; `head`: the cells before the exercises; `labs`: the text of
    each file of `labs` that the head imports, by its path."""

    name: str
    head: list[Cell]
    exercises: list[Exercise]
    labs: dict[str, str]


def add_to(commands: Any) -> None:
    """Declare `assign`."""
    parser = commands.add_parser(
        "assign",
        help="a chapter's exercises as an assignment for a class",
        description="Write the checked exercises of a chapter as notebooks for a class: with empty "
        "answers for students, with the chapter's answers for teachers, or for a grading tool.",
    )
    parser.add_argument("chapter", help="a name such as auto-parallelism, or a notebook")
    parser.add_argument(
        "--format", choices=list(FORMATS), default="plain",
        help="plain (default): two notebooks; nbgrader, otter: what the tool of that name reads",
    )  # fmt: skip
    parser.add_argument("--points", type=int, default=10, help="of each exercise; default: 10")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder; default: this one")
    parser.set_defaults(do=assign)


def assign(options: argparse.Namespace) -> int:
    """Write the notebooks and print their names; returns the exit status."""
    path = Path(options.chapter)
    if not path.is_file():
        path = files.find_chapter(path.name.removesuffix(".ipynb"))
    try:
        made = FORMATS[options.format](_read(path), options.points)
    except (ValueError, LookupError, TypeError, RecursionError) as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise CommandError(f"{path} is no chapter: {said}") from problem
    for file, content in made.items():
        place = options.out / file
        place.parent.mkdir(parents=True, exist_ok=True)
        write(place, content if isinstance(content, str) else _notebook(content))
        print(place)
    return 0


# -- reading a chapter -----------------------------------------------------------------------------


def _read(path: Path) -> Chapter:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    exercises = find_exercises(cells)
    if not exercises:
        raise CommandError(f"{path.name} has no exercise that a function checks")
    title = "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
    heading = (
        f"# {title}: exercises\n\nThey belong to the chapter `{path.name}`. Write "
        "each answer in its cell, and run the cell below it: a check that passes says so; one that "
        "does not raises an error that says what is in the way."
    )
    setup = next("".join(c["source"]) for c in cells if c["cell_type"] == "code").rstrip()
    head = [_cell("markdown", "head", heading, **LOCKED), _cell("code", "setup", setup, **LOCKED)]
    return Chapter(files.chapter_name(path), head, exercises, _labs(path.parent, setup))


def find_exercises(cells: list[Cell]) -> list[Exercise]:
    """The checked exercises of a chapter, in the order of their numbers."""
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    text = text.split("\n## Exercises\n")[-1]
    folds = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", text, re.S)
    answers = {
        number: "\n\n".join(re.findall(r"```python\n(.*?)```", body, re.S))
        for title, body in folds
        for number in re.findall(r"answer to (?:exercise )?(\d+)", title)
    }
    found = []
    questions = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    for number, words in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", questions, re.S | re.M):
        for check, answer in re.findall(r"`(check_\w+)\((\w+)\)`", words):
            head, _, body = answers.get(number, "").rstrip().partition("\n")
            if re.fullmatch(rf"(def|class) {answer}\b.*:", head):
                found.append(Exercise(int(number), words.strip(), check, answer, head, body))
    return found


def _labs(folder: Path, program: str) -> dict[str, str]:
    """The modules of `labs` that a program imports, and those that they import."""
    found: dict[str, str] = {}
    programs = [program]
    while programs:
        for line in re.findall(r"^\s*(?:from|import) labs\b(.*)", programs.pop(), re.M):
            for name in ("__init__", *re.findall(r"\w+", line)):
                file = f"labs/{name}.py"
                if file not in found and (folder / file).is_file():
                    found[file] = (folder / file).read_text(encoding="utf-8")
                    programs.append(found[file])
    return found


# -- cells -----------------------------------------------------------------------------------------


def _cell(kind: str, name: str, source: str, **metadata: Any) -> Cell:
    own: Cell = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": name, "source": source, "metadata": metadata, **own}


def _notebook(cells: list[Cell]) -> str:
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


# -- formats: each gives the files to write: cells of a notebook, or text --------------------------


def _plain(chapter: Chapter, points: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for reader in ("students", "teachers"):
        cells = list(chapter.head)
        for e in chapter.exercises:
            blank = f'{e.head}\n    """Write your answer here."""'
            answer, times = (blank, 1) if reader == "students" else (e.code, 1 + HIDDEN)
            check = "\n".join([f"# {points} points", *[e.call] * times])
            cells += [
                _cell("markdown", f"exercise-{e.number}", e.text, **LOCKED),
                _cell("code", f"answer-{e.number}", answer),
                _cell("code", f"check-{e.number}", check, points=points, **LOCKED),
            ]
        made[f"{chapter.name}-{reader}.ipynb"] = cells
    return {**made, **chapter.labs}


def _nbgrader(chapter: Chapter, points: int) -> dict[str, Any]:
    def marks(name: str, **what: Any) -> dict[str, Any]:
        kinds = {"grade": False, "solution": False, "locked": True, "task": False, **what}
        return {"nbgrader": {"grade_id": name, "schema_version": 3, **kinds}}

    cells = [{**cell, "metadata": marks(cell["id"])} for cell in chapter.head]
    for e in chapter.exercises:
        answer = f"{e.head}\n    ### BEGIN SOLUTION\n{e.body}\n    ### END SOLUTION"
        hidden = ["### BEGIN HIDDEN TESTS", *[e.call] * HIDDEN, "### END HIDDEN TESTS"]
        check = "\n".join([f"# {points} points", e.call, *hidden])
        question, mine, graded = (f"{word}-{e.number}" for word in ("exercise", "answer", "check"))
        cells += [
            _cell("markdown", question, e.text, **marks(question)),
            _cell("code", mine, answer, **marks(mine, solution=True, locked=False)),
            _cell("code", graded, check, **marks(graded, grade=True, points=points)),
        ]
    folder = f"source/{chapter.name}"
    return {
        f"{folder}/{chapter.name}.ipynb": cells,
        **{f"{folder}/{file}": text for file, text in chapter.labs.items()},
        "nbgrader_config.py":
        'c = get_config()  # noqa: F821\nc.CourseDirectory.course_id = "d2lmini"\n',
    }  # fmt: skip


def _otter(chapter: Chapter, points: int) -> dict[str, Any]:
    files_used = "".join(f"\n  - {file}" for file in chapter.labs) or " []"
    config = "# ASSIGNMENT CONFIG\nexport_cell: false\nrun_tests: false\ngenerate: true\nfiles:"
    cells = [_cell("raw", "config", config + files_used), *chapter.head]
    for e in chapter.exercises:
        # Otter compares what a test prints; a check prints why it is satisfied.
        silent = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):"
        call = f"    passed = {e.call}"
        parts = [
            ("raw", "question", f"# BEGIN QUESTION\nname: exercise-{e.number}\npoints: {points}"),
            ("markdown", "exercise", e.text),
            ("raw", "solution", "# BEGIN SOLUTION"),
            ("code", "answer", f"{e.head}\n    # BEGIN SOLUTION\n{e.body}\n    # END SOLUTION"),
            ("raw", "solution-end", "# END SOLUTION"),
            ("raw", "tests", "# BEGIN TESTS"),
            ("code", "check", f"{silent}\n{call}"),
            ("code", "hidden", "\n".join(["# HIDDEN", silent, *[call] * HIDDEN])),
            ("raw", "tests-end", "# END TESTS"),
            ("raw", "question-end", "# END QUESTION"),
        ]
        cells += [_cell(kind, f"{name}-{e.number}", source) for kind, name, source in parts]
    return {f"{chapter.name}.ipynb": cells, **chapter.labs}


FORMATS = {"plain": _plain, "nbgrader": _nbgrader, "otter": _otter}
