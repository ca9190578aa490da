"""`d2lmini run` as its users call it, on notebooks as other people write them; scripts are in
`test_mxnet_alias.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from d2lmini.cli import main

ROOT = Path(__file__).parents[2]
HAS_IPYTHON = find_spec("IPython") is not None


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


def test_all_cells_of_a_notebook(tmp_path):
    book = notebook(
        tmp_path / "a.ipynb",
        "%matplotlib inline\nfrom mxnet import nd", "x = nd.ones((2, 3))\nx.foo\n",
        "def f(x):\n    return 1 / x", "f(0)", "print(x.shape)",
        metadata={"kernelspec": {"name": "conda_mxnet_p36", "language": "python"}},
    )  # fmt: skip
    status, out, err = d2lmini("run", book)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == (
        "cell 3, line 2 failed; 3 of 5 code cells were not run (run --keep-going runs all)"
    )
    status, out, err = d2lmini("run", "--keep-going", book)
    assert (status, out) == (1, "(2, 3)\n")
    summary = err.splitlines()[-3:]
    assert summary[0] == "2 of 5 code cells failed:"
    assert summary[1].startswith("  cell 3, line 2: AttributeError: ")
    assert summary[2] == "  cell 5, line 1: ZeroDivisionError: division by zero"


def test_a_notebook_that_ends_itself_after_a_failure_has_failed(tmp_path):
    book = notebook(tmp_path / "a.ipynb", "1 / 0", "exit()", "print('not reached')")
    status, out, err = d2lmini("run", "--keep-going", book)
    assert (status, out) == (1, "") and "1 of 3 code cells failed:" in err


@pytest.mark.skipif(not HAS_IPYTHON, reason="IPython is not installed")
def test_what_ipython_runs(tmp_path):
    book = notebook(
        tmp_path / "magics.ipynb",
        "files = !echo one\nprint(files[0])\nfor i in range(2):\n    !echo {i}",
        "%%writefile made.txt\nby a cell",
        "%env FOO=bar\nimport os; os.environ['FOO']",
        "get_ipython().run_line_magic('timeit', '-n1 -r1 1')",
        "!pip install mxnet-cu90",
        "%%capture\n%load_ext autoreload\n%autoreload 2",
        "%no_such_magic",
    )
    status, out, err = d2lmini("run", book, cwd=tmp_path)
    assert status == 1
    assert out.split()[:3] == ["one", "0", "1"] and "'bar'" in out and "1 loop each" in out
    assert (tmp_path / "made.txt").read_text() == "by a cell\n"
    assert "cell 6: this line is left out, install packages before the program runs: !pip" in err
    assert "UsageError: Line magic function `%no_such_magic` not found." in err


def test_without_ipython_its_lines_are_left_out(tmp_path):
    """A package of that name which is not there: `None` in `sys.modules` is what finds see."""
    book = notebook(tmp_path / "magics.ipynb", "!ls\nx = !ls\nprint(1)", "%%bash\nls", "2")
    code = (
        "import importlib.util, sys; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'IPython' else "
        "find(name, *rest)\n"
        f"from d2lmini.cli import main; sys.exit(main(['run', {str(book)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "1\n2\n")
    why = "is left out, only IPython understands it (pip install ipython)"
    assert done.stderr.splitlines() == [
        f"cell 2: this line {why}: !ls", f"cell 2: this line {why}: x = !ls",
        f"cell 3: the whole cell {why}: %%bash",
    ]  # fmt: skip


def test_a_copy_with_the_outputs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    book = notebook(
        tmp_path / "a.ipynb",
        "import sys\nfrom mxnet import nd\nprint('a'); print('b')\nnd.ones((1, 2))",
        "print('bad', file=sys.stderr)\ndisplay(3)\n1 / 0",
        "7;",
    )
    copy = tmp_path / "executed.ipynb"
    status, out, _ = d2lmini("run", "--keep-going", "--output", copy, book)
    assert (status, out) == (1, "a\nb\n\n[[1. 1.]]\n<NDArray 1x2 @cpu(0)>\n3\n")
    executed = nbformat.read(copy, 4)
    nbformat.validate(executed)
    text, first, second, third = executed.cells
    assert text.source == "# A title\n"
    assert first.outputs[0] == {"output_type": "stream", "name": "stdout", "text": "a\nb\n"}
    assert first.outputs[1].data["text/plain"] == "\n[[1. 1.]]\n<NDArray 1x2 @cpu(0)>"
    assert [output.output_type for output in second.outputs] == ["stream", "display_data", "error"]
    assert second.outputs[2].ename == "ZeroDivisionError"
    assert not any("recorder.py" in line for line in second.outputs[2].traceback)
    assert third.outputs == [] and third.execution_count == 3


def test_figures_are_in_the_copy(tmp_path):
    pytest.importorskip("matplotlib")
    book = notebook(
        tmp_path / "a.ipynb",
        "%matplotlib inline\nfrom matplotlib import pyplot as plt\nplt.plot([1, 2]);",
    )
    copy = tmp_path / "executed.ipynb"
    assert d2lmini("run", "--output", copy, book)[0] == 0
    [output] = json.loads(copy.read_text(encoding="utf-8"))["cells"][1]["outputs"]
    assert output["data"]["image/png"].startswith("iVBOR")


# --- what cannot begin ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py"], "there is no file 'nothing.py'"),
        (["."], "there is no file '.'"),
        (["notes.txt"], "'notes.txt' is neither a .py nor an .ipynb file"),
        (["a.ipynb", "--keep-going"], "a notebook gets no arguments; options come before FILE"),
        (["--output", "b.ipynb", "a.py"], "--output is for a notebook"),
        (["--output", "no/b.ipynb", "a.ipynb"], "in a folder that exists, got 'no/b.ipynb'"),
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
