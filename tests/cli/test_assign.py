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


def test_most_chapters_have_exercises_that_a_function_checks():
    assert len(WITH_CHECKS) >= 8


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


def test_what_is_no_chapter_or_has_no_checks_is_said(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["assign", "nowhere"])
    assert (
        "there is no chapter 'nowhere'; there are start-here, hybridize, "
        in capsys.readouterr().err
    )
    empty = tmp_path / "empty.ipynb"
    empty.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# A"}]}))
    with pytest.raises(SystemExit):
        main(["assign", str(empty)])
    assert "has no exercise that a function checks" in capsys.readouterr().err


CHAPTER = [
    "# Title",
    "## Exercises\n\n7. Write `twice(x)`. `check_twice(answer)`\n   checks it.\n8. Think.\n\n"
    "<details><summary>An answer to 7</summary>\n\n```python\ndef twice(x):\n"
    '    """Docstring."""\n\n    return half(x) * FOUR\n\n\ndef half(x):\n    return x / 2\n```\n\n'
    "</details>",
]
CODE = [
    "import math\n",
    "FOUR = SQUARE(2)\nOTHER = 1 / 0",
    "%matplotlib inline\ndef SQUARE(x):\n    return x * x",
    "def check_twice(answer):\n    assert answer(3) == 6",
]


def test_the_first_cell_has_what_is_used_and_no_more(tmp_path, capsys):
    cells = [{"cell_type": "markdown", "source": [text]} for text in CHAPTER]
    cells += [{"cell_type": "code", "source": [source]} for source in CODE]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    main(["assign", str(path), "--out", str(tmp_path)])
    made = {cell["id"]: cell["source"] for cell in cells_of(tmp_path / "small-students.ipynb")}
    assert "FOUR = SQUARE(2)" in made["setup"] and "OTHER" not in made["setup"]
    assert "check_twice(twice)" in made["exercise-7"]
    assert made["answer-7"].startswith('def twice(x):\n    """Write')
    assert "half" not in made["answer-7"]
    assert list(made) == ["head", "setup", "exercise-7", "answer-7", "check-7"]


@pytest.mark.parametrize(
    ("form", "place"), [("plain", ""), ("nbgrader", "source/small/"), ("otter", "")]
)
def test_labs_that_are_used_stand_beside_the_notebook(form, place, tmp_path, capsys):
    cells = [{"cell_type": "markdown", "source": [text]} for text in CHAPTER]
    first = "from labs.small import check_twice"
    cells += [{"cell_type": "code", "source": [source]} for source in [first, *CODE[1:3]]]
    (tmp_path / "labs").mkdir()
    used = {"__init__": "", "small": f"from labs.part import a\n{CODE[3]}", "part": "a = 1"}
    for name, text in {**used, "other": ""}.items():
        (tmp_path / "labs" / f"{name}.py").write_text(text)
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    out = tmp_path / "out"
    main(["assign", str(path), "--format", form, "--out", str(out)])
    labs = {path.name for path in (out / place / "labs").iterdir()}
    assert labs == {"__init__.py", "small.py", "part.py"}
    if form == "otter":
        raw = [c["source"] for c in cells_of(out / "small.ipynb") if c["cell_type"] == "raw"]
        assert "files:" in raw[0] and "  - labs/part.py" in raw[0]
