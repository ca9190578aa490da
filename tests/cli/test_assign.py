"""`d2lmini assign`: a chapter's exercises as notebooks that a class can be graded with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from d2lmini.cli import main
from d2lmini.cli.assign import find_exercises
from d2lmini.cli.files import chapter_name, find_chapter

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


WITH_CHECKS = [chapter_name(path) for path in CHAPTERS if find_exercises(cells_of(path))]


def run(path: Path) -> dict[str, object]:
    """Run a notebook's code, with the `labs` that stand beside it; id of a cell -> True, or the
    error that it raised."""
    done: dict[str, object] = {}
    place: dict[str, object] = {}
    others = _take_labs()
    sys.path.insert(0, str(path.parent))
    try:
        return _run_cells(path, place, done)
    finally:
        sys.path.remove(str(path.parent))
        _take_labs()
        sys.modules.update(others)


def _take_labs() -> dict[str, ModuleType]:
    """The modules of `labs` that are loaded; the next import loads them anew."""
    names = [name for name in sys.modules if name.split(".")[0] == "labs"]
    return {name: sys.modules.pop(name) for name in names}


def _run_cells(path: Path, place: dict, done: dict) -> dict[str, object]:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            try:
                exec(compile(cell.source, cell.id, "exec"), place)
                done[cell.id] = True
            except Exception as error:
                done[cell.id] = error
    return done


@pytest.mark.law
@pytest.mark.parametrize("chapter", WITH_CHECKS)
def test_the_teachers_answers_pass_and_the_students_blanks_do_not(chapter, tmp_path, capsys):
    assert main(["assign", chapter, "--points", "7", "--out", str(tmp_path)]) == 0
    students, teachers, *labs = map(Path, capsys.readouterr().out.split())
    assert labs and all(path.parent == tmp_path / "labs" for path in labs)
    right = run(teachers)
    assert all(outcome is True for outcome in right.values()), right
    blank = run(students)
    exercises = find_exercises(cells_of(find_chapter(chapter)))
    numbers = [exercise.number for exercise in exercises]
    for number in numbers:
        assert blank[f"answer-{number}"] is True
        assert isinstance(blank[f"check-{number}"], Exception)
    for path in (students, teachers):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        checks = [cell for cell in notebook.cells if cell.id.startswith("check-")]
        assert len(checks) == len(numbers)
        for cell in checks:
            assert cell.metadata.editable is False and cell.metadata.deletable is False
            assert cell.metadata.points == 7 and cell.source.startswith("# 7 points")
    assert len({path.read_text() for path in (students, teachers)}) == 2


#: A chapter's cells of Markdown, its code, and the modules of `labs` beside it.
TEXT = [
    "# Title",
    "## Exercises\n\n7. Write `twice(x)`. `check_twice(twice)`\n   checks it.\n8. Think.\n\n"
    "<details><summary>An answer to 7</summary>\n\n```python\ndef twice(x):\n"
    '    """Docstring."""\n    return 2 * x\n```\n\n</details>',
]
CODE = ["from labs.small import check_twice", "OTHER = 1 / 0"]
LABS = {
    "__init__": "", "other": "",
    "small": "from labs import more, part\ndef check_twice(answer):\n    assert answer(3) == 6",
    "more": "", "part": "import labs.last as a\n", "last": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "place"), [("plain", ""), ("nbgrader", "source/small/"), ("otter", "")]
)
def test_an_assignment_has_the_first_cell_the_exercise_and_the_labs(form, place, tmp_path, capsys):
    cells = [{"cell_type": "markdown", "source": [text]} for text in TEXT]
    cells += [{"cell_type": "code", "source": [source]} for source in CODE]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    (tmp_path / "labs").mkdir()
    for name, text in LABS.items():
        (tmp_path / "labs" / f"{name}.py").write_text(text)
    out = tmp_path / "out"
    main(["assign", str(path), "--format", form, "--out", str(out)])
    assert {path.stem for path in (out / place / "labs").iterdir()} == LABS.keys() - {"other"}
    written = f"{place}small-students.ipynb" if form == "plain" else f"{place}small.ipynb"
    made = {cell["id"]: cell["source"] for cell in cells_of(out / written)}
    nbformat.validate(nbformat.read(out / written, as_version=4))
    assert made["setup"] == CODE[0] and "check_twice(twice)" in made["exercise-7"]
    assert made["answer-7"].startswith("def twice(x):\n    ")
    if form == "plain":
        assert list(made) == ["head", "setup", "exercise-7", "answer-7", "check-7"]
        assert "Write your answer" in made["answer-7"] and "Docstring" not in made["answer-7"]
    if form == "otter":
        assert "  - labs/part.py" in made["config"]
