"""The guides say what is true: their programs run from an empty folder and print what is shown, the
functions they point to are in the files they name, and what is counted is counted anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import computed_docs
import mxnet_names
import pytest
from build_book import guides_in_order
from oracle import Oracle
from repository import tracked_files
from sanitizer import sanitize

ROOT = Path(__file__).parents[2]
DOCS = guides_in_order(ROOT / "docs")

#: A program has its file's name in its first line; what follows it is what it prints.
PROGRAM = re.compile(r"```python\n(?:# (\w+\.py)\n)?(.*?)```\n(?:\n```text\n(.*?)```)?", re.S)
PROGRAMS = [
    (path, name, code, printed)
    for path in DOCS
    for name, code, printed in PROGRAM.findall(path.read_text(encoding="utf-8"))
]
#: Programs that several processes run together have a test of their own.
ELSEWHERE = {"cluster.md": "tests/docs/test_cluster_recipes.py"}
NAMED = [program for program in PROGRAMS if program[1] and program[0].name not in ELSEWHERE]


def run(code: str, name: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a program that has only the library, and the chapters' `labs`, from an empty folder."""
    (folder / name).write_text(f"# {name}\n{code}", encoding="utf-8")
    return subprocess.run(
        [sys.executable, name],
        cwd=folder,
        # Without GPUs, whatever the machine has: their number is printed.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "chapters")]),
            "CUDA_VISIBLE_DEVICES": "",
            "COLUMNS": "100",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
    )


@pytest.mark.parametrize(
    ("path", "name", "code", "printed"), NAMED, ids=[f"{p.stem}-{n}" for p, n, *_ in NAMED]
)
def test_a_program_prints_what_its_page_shows(path, name, code, printed, tmp_path):
    done = run(code, name, tmp_path)
    assert done.stderr == "" and done.returncode == 0
    assert sanitize(done.stdout) == sanitize(printed)


def test_an_excerpt_is_python():
    """What has no name of a file is no program, but can be read as Python."""
    for path, name, code, _ in PROGRAMS:
        if not name:
            compile(code, path.name, "exec")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_what_a_page_points_to_is_in_that_file(path):
    """`[`claim`](../d2lmini/engine/core.py)`: the file defines the name."""
    text = path.read_text(encoding="utf-8")
    for name, file in re.findall(r"\[`([\w.]+)`\]\((\.\./d2lmini/[\w/]+\.py)\)", text):
        code = (path.parent / file).read_text(encoding="utf-8")
        last = name.rpartition(".")[2]
        is_file = Path(file).name == name
        assert is_file or re.search(rf"^\s*(def|class) {last}\b|^{last}\b.*=", code, re.M), name
    for named in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / named).is_file(), named


def test_the_first_page_leads_to_all_others():
    first = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", first))
    pages = {path.name for path in tracked_files() if path.parent == ROOT / "docs"}
    assert pages == linked | {"README.md"}


# -- what is computed ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", computed_docs.PAGES)
def test_what_is_computed_is_as_it_is_now(name):
    page = (computed_docs.DOCS / name).read_text(encoding="utf-8")
    computed = [compute() for compute in computed_docs.PAGES[name]]
    assert all(page.count(mark) == len(computed) for mark in computed_docs.MARKS)
    assert page == computed_docs.renewed(page, computed), "run tests/tools/computed_docs.py"


def test_the_list_of_names_is_mxnets(mxnet: Oracle):
    assert mxnet.ask(mxnet_names.table) == mxnet_names.NAMES.read_text(encoding="utf-8")
