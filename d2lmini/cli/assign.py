"""`d2lmini assign CHAPTER`: a chapter's exercises as an assignment for a class.

    d2lmini assign auto-parallelism                      two notebooks, for students and teachers
    d2lmini assign auto-parallelism --format nbgrader    source/ of a course for nbgrader
    d2lmini assign auto-parallelism --format otter       a notebook for `otter assign`

The assignment holds the exercises whose answer a function of the chapter checks: in the list of a
chapter's exercises their text names the call, as in "`check_deal(deal)`", and the fold "An answer
to 8" defines `deal`. Each becomes three cells: the text, an empty answer, the check with its
points. A first cell defines what answers and checks use from the chapter; the checks themselves
stand in the chapter's module of `labs`, which is written beside the notebooks. A check that passes
returns or prints a sentence, one that does not raises. The checks draw new instances at each call;
when a teacher grades, each runs HIDDEN more times, so an answer that knows one instance by heart
fails.

Ids of cells follow the exercises' numbers, so that answers find their questions again in a later
edition. Checks cannot be edited or deleted in Jupyter.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import re
import symtable
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from d2lmini.cli import files
from d2lmini.cli.errors import CommandError
from d2lmini.files import write
from d2lmini.profiler import json_stream

#: How many more times a check runs when a teacher grades.
HIDDEN = 3

Cell = dict[str, Any]
#: Files of `labs` by their paths -> their texts.
Labs = dict[str, str]


class Exercise(NamedTuple):
    """A checked exercise of a chapter.

    number   in the chapter's list
    text     Markdown
    check    the name of the function that checks it; `answer` that of the function to be written
    code     the chapter's own answer
    """

    number: int
    text: str
    check: str
    answer: str
    code: str

    @property
    def call(self) -> str:
        return f"{self.check}({self.answer})"


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
    name = files.chapter_name(path)
    cell = "notebook"
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number, found in enumerate(cells):
            cell = f"cell {number}"
            json_stream.check(found, {"cell_type": str, "source": (str, [str])})
            found["cell_type"], found["source"]
        cell = "exercises"
        exercises = find_exercises(cells)
        if not exercises:
            raise CommandError(f"{path.name} has no exercise that a function checks")
        setup = _setup(cells, exercises)
        labs = _labs(path.parent, setup["source"])
        head = [_text("head", _heading(path.name, cells, exercises)), setup]
        parts = FORMATS[options.format](name, head, exercises, options.points, labs)
        made = [(file, (x if isinstance(x, str) else _notebook(x)).encode()) for file, x in parts]
    except (ValueError, LookupError, TypeError, SyntaxError, RecursionError) as problem:
        raise CommandError(
            f"{path}: {cell}: {type(problem).__name__}: {problem}: this is no chapter"
        ) from problem
    for file, content in made:
        place = options.out / file
        place.parent.mkdir(parents=True, exist_ok=True)
        write(place, content)
        print(place)
    return 0


def find_exercises(cells: Iterable[Cell]) -> list[Exercise]:
    """The checked exercises of a chapter, in the order of their numbers."""
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    text = text.split("\n## Exercises\n")[-1]
    folds = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", text, re.S)
    answers = {
        int(number): "\n\n".join(re.findall(r"```python\n(.*?)```", body, re.S))
        for title, body in folds
        for number in re.findall(r"answer to (?:exercise )?(\d+)", title)
    }
    found = []
    questions = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    for number, words in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", questions, re.S | re.M):
        for check, answer in re.findall(r"`(check_\w+)\((\w+)\)`", words):
            code = answers.get(int(number), "")
            name = answer if answer in _defined(ast.parse(code)) else _main(code)
            if name:
                words = words.replace(f"{check}({answer})", f"{check}({name})")
                found.append(Exercise(int(number), words.strip(), check, name, code))
    return found


def _main(code: str) -> str:
    """The last function or class that no other one of the code uses; "" if there is none."""
    parts = [
        node for node in ast.parse(code).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    used = set().union(*(_used(ast.get_source_segment(code, part) or "") for part in parts))
    return next((part.name for part in reversed(parts) if part.name not in used), "")


# -- cells -----------------------------------------------------------------------------------------


def _heading(chapter: str, cells: list[Cell], exercises: list[Exercise]) -> str:
    title = "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
    numbers = ", ".join(str(exercise.number) for exercise in exercises)
    return (
        f"# {title}: exercises {numbers}\n\nThey belong to the chapter `{chapter}`. Write "
        "each answer in its cell, and run the cell below it: a check that passes says so; one that "
        "does not raises an error that says what is in the way."
    )


def _setup(cells: list[Cell], exercises: list[Exercise]) -> Cell:
    """One cell with the chapter's imports, and what checks and answers use of its other code."""
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    statements: list[tuple[str, ast.stmt]] = []
    for source in sources[1:]:
        for statement in ast.parse(_without_magics(source)).body:
            statements.append((ast.get_source_segment(source, statement) or "", statement))
    wanted = {exercise.check for exercise in exercises}
    for exercise in exercises:
        wanted |= _used(exercise.code) - {exercise.answer}
    chosen: set[int] = set()
    while True:
        more = {
            at
            for at, (_, statement) in enumerate(statements)
            if at not in chosen and _defined(statement) & wanted
        }
        if not more:
            break
        chosen |= more
        wanted |= set().union(*(_used(statements[at][0]) for at in more))
    parts = [sources[0].rstrip(), *(statements[at][0] for at in sorted(chosen))]
    return _code("setup", "\n\n\n".join(parts), locked=True)


def _labs(folder: Path, source: str) -> Labs:
    """The modules of `labs` that a program imports, and those that they import."""
    found: Labs = {}
    programs = [source]
    while programs:
        for name in _imported(programs.pop()):
            file = "labs/__init__.py" if name == "labs" else f"{name.replace('.', '/')}.py"
            if file not in found and (folder / file).is_file():
                found[file] = (folder / file).read_text(encoding="utf-8")
                programs.append(found[file])
    return found


def _imported(program: str) -> Iterator[str]:
    """Names that may be modules of `labs`.

    >>> sorted({*_imported("from labs.a import b")})
    ['labs', 'labs.a', 'labs.a.b']
    """
    for node in ast.walk(ast.parse(_without_magics(program))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "labs":
                yield from ("labs", name)


def _without_magics(source: str) -> str:
    return "\n".join("" if line.startswith(("%", "!")) else line for line in source.split("\n"))


def _defined(statement: ast.AST) -> set[str]:
    """The names that a statement, or a module's statements, define."""
    if isinstance(statement, ast.Module):
        return set().union(*map(_defined, statement.body))
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    names = (name for target in targets if target is not None for name in ast.walk(target))
    return {name.id for name in names if isinstance(name, ast.Name)}


def _used(code: str) -> set[str]:
    """The names that a piece of code reads and does not define itself.

    >>> sorted(_used("def f(x, n=N):\\n    return [g(y) for y in x]"))
    ['N', 'g']
    """
    names: set[str] = set()
    tables = [symtable.symtable(code, "code", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
                names.add(symbol.get_name())
    return names - set(dir(builtins)) - _defined(ast.parse(code))


def _text(name: str, source: str) -> Cell:
    return {
        "cell_type": "markdown", "id": name, "source": source,
        "metadata": {"editable": False, "deletable": False},
    }  # fmt: skip


def _code(name: str, source: str, *, locked: bool, **metadata: Any) -> Cell:
    if locked:
        metadata = {"editable": False, "deletable": False, **metadata}
    return {
        "cell_type": "code", "id": name, "source": source, "metadata": metadata,
        "execution_count": None, "outputs": [],
    }  # fmt: skip


def _raw(source: str) -> Cell:
    return {"cell_type": "raw", "id": "raw", "source": source, "metadata": {}}


def _notebook(cells: list[Cell]) -> str:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _bodies(code: str, change: Callable[[list[str]], list[str]]) -> str:
    """The code with the lines of each function's or class's body changed."""
    lines = code.rstrip().split("\n")
    for node in reversed(ast.parse(code).body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first = node.body[0]
            starts = [first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]
            body = slice(min(starts) - 1, node.end_lineno)
            changed = change(textwrap.dedent("\n".join(lines[body])).split("\n"))
            lines[body] = [f"    {line}" if line else "" for line in changed]
    return "\n".join(lines)


# -- formats: each gives (name of a file, cells or text) -------------------------------------------


def _plain(
    chapter: str, head: list[Cell], exercises: list[Exercise], points: int, labs: Labs
) -> Any:
    for reader in ("students", "teachers"):
        cells = list(head)
        for e in exercises:
            answer = e.code.rstrip()
            check = f"# {points} points\n{e.call}"
            if reader == "students":
                answer = _bodies(_only(e), lambda _: ['"""Write your answer here."""'])
            else:
                check = f"# {points} points\nfor _ in range({1 + HIDDEN}):\n    {e.call}"
            cells += [
                _text(f"exercise-{e.number}", e.text),
                _code(f"answer-{e.number}", answer, locked=False),
                _code(f"check-{e.number}", check, locked=True, points=points),
            ]
        yield f"{chapter}-{reader}.ipynb", cells
    yield from labs.items()


def _nbgrader(
    chapter: str, head: list[Cell], exercises: list[Exercise], points: int, labs: Labs
) -> Any:
    def marks(name: str, **what: Any) -> dict[str, Any]:
        kinds = {"grade": False, "solution": False, "locked": True, "task": False, **what}
        return {"grade_id": name, "schema_version": 3, **kinds}

    cells = [{**cell, "metadata": {"nbgrader": marks(cell["id"])}} for cell in head]
    for e in exercises:
        answer = _bodies(e.code, lambda body: ["### BEGIN SOLUTION", *body, "### END SOLUTION"])
        hidden = f"### BEGIN HIDDEN TESTS\nfor _ in range({HIDDEN}):\n    {e.call}\n"
        check = f"# {points} points\n{e.call}\n{hidden}### END HIDDEN TESTS"
        question, mine, graded = (f"{word}-{e.number}" for word in ("exercise", "answer", "check"))
        cells += [
            {**_text(question, e.text), "metadata": {"nbgrader": marks(question)}},
            _code(mine, answer, locked=False, nbgrader=marks(mine, solution=True, locked=False)),
            _code(graded, check, locked=False, nbgrader=marks(graded, grade=True, points=points)),
        ]
    yield f"source/{chapter}/{chapter}.ipynb", cells
    yield from ((f"source/{chapter}/{file}", text) for file, text in labs.items())
    yield (
        "nbgrader_config.py",
        'c = get_config()  # noqa: F821\nc.CourseDirectory.course_id = "d2lmini"\n',
    )


def _otter(
    chapter: str, head: list[Cell], exercises: list[Exercise], points: int, labs: Labs
) -> Any:
    config = "# ASSIGNMENT CONFIG\nexport_cell: false\nrun_tests: false\ngenerate: true"
    if labs:
        config += "".join(["\nfiles:", *(f"\n  - {file}" for file in labs)])
    cells = [_raw(config), *head]
    for e in exercises:
        answer = _bodies(e.code, lambda body: ["# BEGIN SOLUTION", *body, "# END SOLUTION"])
        question = f"# BEGIN QUESTION\nname: exercise-{e.number}\npoints: {points}"
        # Otter compares what a test prints; a check prints why it is satisfied.
        silent = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        check = f"{silent}    passed = {e.call}"
        hidden = f"# HIDDEN\n{silent}    passed = [{e.call} for _ in range({HIDDEN})]"
        cells += [
            _raw(question), _text(f"exercise-{e.number}", e.text),
            _raw("# BEGIN SOLUTION"), _code(f"answer-{e.number}", answer, locked=False),
            _raw("# END SOLUTION"),
            _raw("# BEGIN TESTS"), _code(f"check-{e.number}", check, locked=False),
            _code(f"hidden-{e.number}", hidden, locked=False), _raw("# END TESTS"),
            _raw("# END QUESTION"),
        ]  # fmt: skip
    yield (
        f"{chapter}.ipynb",
        [{**cell, "id": f"{at}-{cell['id']}"} for at, cell in enumerate(cells)],
    )
    yield from labs.items()


def _only(exercise: Exercise) -> str:
    """The part of the chapter's answer that defines the name asked for."""
    for statement in ast.parse(exercise.code).body:
        if exercise.answer in _defined(statement):
            return ast.get_source_segment(exercise.code, statement) or ""
    return exercise.code


FORMATS = {"plain": _plain, "nbgrader": _nbgrader, "otter": _otter}
