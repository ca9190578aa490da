"""What is packed is what is tested: sdist and wheel are built as a packager builds them, the wheel
runs far from the tree, and the matrix, its workflow and the lists of versions name the same things.
"""

import compileall
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from repository import PYPROJECT, ROOT, tracked_files

from d2lmini.cli import files

BOOK = """chapters/*.ipynb chapters/*.json chapters/labs/*.py chapters/traces/* img/*.svg
    docs/*.md""".split()
PROGRAM = ROOT / "tests" / "tools" / "users_program.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that was built from it; nothing is downloaded."""
    if find_spec("build") is None or find_spec("hatchling") is None:
        pytest.skip("to build packages needs: pip install build hatchling")
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """A folder in which the wheel is unpacked, as pip does it: it also compiles the chapters'
    programs."""
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    assert compileall.compile_dir(folder / "d2lmini" / "book", quiet=1)
    return folder


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Run Python in `folder` with the unpacked wheel, and nothing of the tree."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
    )


# --- what is inside ---


def test_the_wheel_holds_the_library_the_chapters_and_nothing_else(built):
    """All that is tracked in d2lmini/, data files too; chapters and figures at their place."""
    (wheel,) = built.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = [p.relative_to(ROOT) for p in tracked_files()]
    library = {p.as_posix() for p in tracked if p.parts[0] == "d2lmini"}
    book = {f"d2lmini/book/{p.as_posix()}" for p in tracked if any(map(p.match, BOOK))}
    assert library | book <= packed
    assert all(name.startswith("d2lmini/") for name in packed)
    others = {name for name in packed if name.startswith("d2lmini/book/")} - book
    assert all(name.endswith((".ipynb", ".svg", ".md")) for name in others)  # not tracked yet
    assert len(book) > 10
    assert {"d2lmini/py.typed", "d2lmini/widgets/js/watch.js"} <= packed


def test_the_sdist_holds_all_that_is_tracked(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {p.relative_to(ROOT).as_posix() for p in tracked_files()}
    assert tracked - packed <= {".gitignore", ".gitattributes"}


# --- the wheel at work ---


def test_lab_copies_the_chapters_of_the_wheel(installed, tmp_path):
    done = run(installed, tmp_path, "-m", "d2lmini", "lab", "--copy")
    assert "chapters copied to" in done.stdout and done.returncode == 0, done.stderr
    copied = tmp_path / "d2lmini-chapters"
    for path in (ROOT / "chapters").glob("*.ipynb"):
        copy, original = (
            json.loads(file.read_text(encoding="utf-8"))["cells"]
            for file in (copied / "chapters" / path.name, path)
        )
        texts = [
            files.fold_explanation(text) if cell["cell_type"] == "markdown" else text
            for cell in original
            for text in ["".join(cell["source"])]
        ]
        assert ["".join(cell["source"]) for cell in copy] == texts
        assert not any(cell.get("outputs") for cell in copy)
    assert (copied / "chapters" / "labs" / "shared.py").is_file()
    assert (copied / "d2lmini" / "engine" / "core.py").is_file()
    assert not (copied / "pyproject.toml").exists()


def test_a_program_of_a_users_own_runs_with_the_wheel_alone(installed, tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    done = run(installed, tmp_path, "mine.py")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "weights [[1.0, 2.0, 3.0]]" in done.stdout and "trained in time: " in done.stdout


# --- the matrix ---


@pytest.fixture(scope="module")
def sessions() -> list[dict]:
    """What nox finds in noxfile.py."""
    if find_spec("nox") is None:
        pytest.skip("to list the matrix needs: pip install nox")
    done = subprocess.run(
        [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "--list", "--json"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_matrix_has_every_python_that_is_promised(sessions):
    classifiers = PYPROJECT["project"]["classifiers"]
    promised = {c.split()[-1] for c in classifiers if re.search(r":: 3\.\d+$", c)}
    tested = {session["python"] for session in sessions if session["name"] == "tests"}
    assert promised <= tested and len(promised) >= 4
    kinds = {session["name"] for session in sessions}
    assert kinds == {"tests", "lab", "extra", "cuda_stub", "wheel"}
