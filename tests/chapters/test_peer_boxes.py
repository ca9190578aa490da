"""The boxes "In PyTorch / in JAX" of the chapters say what those libraries do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from chapter_cells import words_of
from peer_boxes import IMPORTS, PROGRAMS

from d2lmini.cli.files import chapter_name

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))
HEAD = "> **In PyTorch / in JAX.** "


def test_a_chapter_has_a_box_or_none_and_each_box_has_programs():
    stand = {name: words_of(name).count(HEAD) for name in map(chapter_name, CHAPTERS)}
    assert {name: count for name, count in stand.items() if count} == dict.fromkeys(PROGRAMS, 1)


@pytest.mark.parametrize(
    ("library", "program"),
    [row for programs in PROGRAMS.values() for row in programs.items()],
)
def test_the_library_does_so(library, program, tmp_path):
    python = os.environ.get(f"D2LMINI_{library.upper()}_PYTHON")
    if not python:
        pytest.skip(f"D2LMINI_{library.upper()}_PYTHON names no interpreter")
    (tmp_path / "program.py").write_text(IMPORTS[library] + program)
    done = subprocess.run([python, tmp_path / "program.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
