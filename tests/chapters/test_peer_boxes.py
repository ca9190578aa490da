"""The boxes "In PyTorch / in JAX" stand in the chapters, and say what those libraries do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from chapter_cells import words_of
from peer_boxes import BOXES, IMPORTS

from d2lmini.cli.files import chapter_name

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))
HEAD = "> **In PyTorch / in JAX.** "


@pytest.mark.parametrize("box", BOXES, ids=lambda box: box.text[:40])
def test_a_box_stands_in_its_chapter(box):
    assert f"{HEAD}{box.text}\n" in words_of(box.chapter) + "\n"


def test_every_chapter_has_boxes_and_no_other_ones():
    names = list(map(chapter_name, CHAPTERS))
    stand = {name: words_of(name).count(HEAD) for name in names}
    known = [box.chapter for box in BOXES]
    assert {chapter for chapter, count in stand.items() if count != known.count(chapter)} == set()


@pytest.mark.parametrize(
    ("library", "program"),
    [(library, program) for box in BOXES for library, program in box.programs.items()],
)
def test_the_library_does_so(library, program, tmp_path):
    python = os.environ.get(f"D2LMINI_{library.upper()}_PYTHON")
    if not python:
        pytest.skip(f"D2LMINI_{library.upper()}_PYTHON names no interpreter")
    (tmp_path / "program.py").write_text(IMPORTS[library] + program)
    done = subprocess.run([python, tmp_path / "program.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
