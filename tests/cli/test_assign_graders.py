"""An assignment of three chapters, graded by the command lines of nbgrader and of otter: a right
answer gets all points, each wrong one loses them.

    D2LMINI_NBGRADER_PYTHON=.../bin/python D2LMINI_OTTER_PYTHON=.../bin/python   (make test-graders)
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from d2lmini.cli import main
from d2lmini.cli.assign import find_exercises
from d2lmini.cli.files import find_chapter

ROOT = Path(__file__).parents[2]

#: chapter -> (an exercise's answer, wrong ones).
WRONG = {
    "your-machine": ("flops", ["def flops(widths, batch):\n    return 0"]),
    "auto-parallelism": (
        "halves_apart",
        [
            "def halves_apart(x, n):\n    return x",
            "def halves_apart(x, n):\n    for _ in range(n):\n        x = nd.tanh(x)\n    return x",
        ],
    ),
    "lazy-evaluation-and-memory": (
        "frugal",
        ["def frugal(x):\n    return nd.tanh(x * 2 + 1) * x", "def frugal(x):\n    return x"],
    ),
}
POINTS = 10


def python_of(grader: str) -> str:
    python = os.environ.get(f"D2LMINI_{grader}_PYTHON")
    if not python:
        pytest.skip(f"D2LMINI_{grader}_PYTHON names no interpreter")
    return python


def command(python: str, *words: object, folder: Path) -> None:
    """Run a grader's command line in a folder, with this library."""
    scripts = Path(python).absolute().parent
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_ALLOW_INSECURE_WRITES": "1"}
    environment["PATH"] = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [scripts / str(words[0]), *map(str, words[1:])], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def with_answer(notebook: dict, name: str, code: str) -> dict:
    """The notebook with another answer in the cell that defines `name`."""
    cells = [dict(cell) for cell in notebook["cells"]]
    [place] = [
        cell for cell in cells
        if "answer-" in cell.get("id", "") and f"def {name}(" in "".join(cell["source"])
    ]  # fmt: skip
    place["source"] = code
    return {**notebook, "cells": cells}


def submissions(chapter: str, right: dict) -> dict[str, dict]:
    name, wrong = WRONG[chapter]
    others = {f"wrong{at}": with_answer(right, name, code) for at, code in enumerate(wrong)}
    return {"right": right, **others}


def count(chapter: str) -> int:
    text = find_chapter(chapter).read_text(encoding="utf-8")
    return len(find_exercises(json.loads(text)["cells"]))


@pytest.mark.timeout(1200)
def test_nbgrader(tmp_path):
    python = python_of("NBGRADER")
    for chapter in WRONG:
        main(["assign", chapter, "--format", "nbgrader", "--out", str(tmp_path)])
        command(python, "nbgrader", "generate_assignment", chapter, folder=tmp_path)
        released = json.loads((tmp_path / f"release/{chapter}/{chapter}.ipynb").read_text())
        assert "BEGIN" not in json.dumps(released) and "YOUR CODE HERE" in json.dumps(released)
        right = json.loads((tmp_path / f"source/{chapter}/{chapter}.ipynb").read_text())
        handed_in = {**submissions(chapter, right), "blank": released}
        for student, notebook in handed_in.items():
            folder = tmp_path / "submitted" / student / chapter
            folder.mkdir(parents=True)
            (folder / f"{chapter}.ipynb").write_text(json.dumps(notebook))
        command(python, "nbgrader", "autograde", chapter, folder=tmp_path)
    command(python, "nbgrader", "export", folder=tmp_path)
    with open(tmp_path / "grades.csv", newline="") as file:
        points = {
            (row["assignment"], row["student_id"]): float(row["score"] or 0)
            for row in csv.DictReader(file)
        }
    for chapter, (_, wrong) in WRONG.items():
        whole = count(chapter) * POINTS
        assert points[chapter, "right"] == whole
        assert points[chapter, "blank"] == 0
        for at in range(len(wrong)):
            assert points[chapter, f"wrong{at}"] == whole - POINTS, (chapter, at)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("chapter", WRONG)
def test_otter(chapter, tmp_path):
    python = python_of("OTTER")
    main(["assign", chapter, "--format", "otter", "--out", str(tmp_path)])
    command(python, "otter", "assign", f"{chapter}.ipynb", "dist", folder=tmp_path)
    [grader] = (tmp_path / "dist/autograder").glob("*.zip")
    right = json.loads((tmp_path / f"dist/autograder/{chapter}.ipynb").read_text())
    blank = json.loads((tmp_path / f"dist/student/{chapter}.ipynb").read_text())
    assert "SOLUTION" not in json.dumps(blank)
    points = {}
    for student, notebook in {**submissions(chapter, right), "blank": blank}.items():
        folder = tmp_path / student
        folder.mkdir()
        (folder / f"{chapter}.ipynb").write_text(json.dumps(notebook))
        command(
            python, "otter", "run", "-a", grader, "-o", folder, folder / f"{chapter}.ipynb",
            folder=tmp_path,
        )  # fmt: skip
        tests = json.loads((folder / "results.json").read_text())["tests"]
        points[student] = sum(test.get("score") or 0 for test in tests)
    whole = count(chapter) * POINTS
    assert points.pop("right") == whole and points.pop("blank") == 0
    assert set(points.values()) == {whole - POINTS}, points
