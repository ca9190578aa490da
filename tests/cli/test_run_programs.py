"""`d2lmini run` as its users call it, on notebooks as other people write them; scripts are in
`test_mxnet_alias.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from d2lmini.cli import main

ROOT = Path(__file__).parents[2]


def d2lmini(*words: object, cwd: Path | None = None) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", *map(str, words)],
        capture_output=True, text=True, encoding="utf-8", cwd=cwd, timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def notebook(path: Path, *cells: str, metadata: dict | None = None) -> Path:
    """A notebook of code cells after one of text; without metadata, unless it is given."""
    book = [{"cell_type": "markdown", "source": ["# A title\n"]}]
    book += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    extra = {} if metadata is None else {"metadata": metadata}
    return write(path, json.dumps({"cells": book, "nbformat": 4, "nbformat_minor": 2, **extra}))


def test_a_notebook_ends_at_the_cell_that_fails(tmp_path):
    book = notebook(
        tmp_path / "a.ipynb",
        "%matplotlib inline\nfrom mxnet import nd", "x = nd.ones((2, 3))\nx.foo\n",
        "def f(x):\n    return 1 / x", "f(0)", "print(x.shape)",
        metadata={"kernelspec": {"name": "conda_mxnet_p36", "language": "python"}},
    )  # fmt: skip
    status, out, err = d2lmini("run", book)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "cell 3 failed; 3 more code cells were not run"


# --- what cannot begin ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py"], "there is no file 'nothing.py'"),
        (["."], "there is no file '.'"),
        (["notes.txt"], "'notes.txt' is neither a .py nor an .ipynb file"),
        (["a.ipynb", "--lr", "3"], "a notebook gets no arguments; options come before FILE"),
        (["a.ipynb"], "a.ipynb is not a readable notebook"),
    ],
)
def test_run_refuses(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "a.py", "a.ipynb"):
        write(tmp_path / name, "")
    with pytest.raises(SystemExit) as left:
        main(["run", *words])
    assert left.value.code == 2 and message in capsys.readouterr().err
