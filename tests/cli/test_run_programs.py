"""`d2lmini run` as its users call it: on notebooks as other people write them, and on folders whose
programs pass, fail, hang and crash."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HAS_IPYTHON = find_spec("IPython") is not None


def d2lmini(*words: object, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", *map(str, words)],
        capture_output=True, text=True, encoding="utf-8", cwd=cwd, timeout=120,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "100", **environment},
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder of programs, as a course or a repository leaves them behind."""
    top = tmp_path_factory.mktemp("programs") / "Übungen, 2. Teil"
    write(top / "train.py", "from mxnet import nd\nprint(nd.ones((2, 2)).sum().asscalar())\n")
    write(top / "hang.py", "import time\nfrom mxnet import nd\nwhile True:\n    time.sleep(0.1)\n")
    write(top / "stubborn.py", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
          "print('begins', flush=True)\nsignal.pause()\n")  # fmt: skip
    write(top / "images.py", "from mxnet import image\n\ndef load(name):\n"
          "    return image.imread(name)\n\nload('a.jpg')\n")  # fmt: skip
    write(top / "python2.py", "import mxnet as mx\nprint 'sum', mx.nd.ones(2)\n")
    write(top / "asks.py", "name = raw_input('name: ')\n")
    write(top / "exits.py", "import sys\nsys.exit('no data in ../data')\n")
    write(top / "crash.py", "import os\nos.kill(os.getpid(), 11)\n")
    write(top / "lacks.py", "import no_such_package_at_all\n")
    write(top / "imports.py", "from mxnet.nd import histogramm\n")
    write(top / "zero.py", "import sys\nsys.exit()\n")
    write(top / "data.txt", "its own folder")
    write(top / "reads.py", "print(open('data.txt').read())\n")
    kernel = {"kernelspec": {"name": "conda_mxnet_p36", "language": "python"}}
    notebook(top / "sub folder" / "regression.ipynb",
             "%matplotlib inline\nfrom mxnet import nd", "x = nd.ones((2, 3))\nx.foo\n",
             "def f(x):\n    return 1 / x", "f(0)", "print(x.shape)", metadata=kernel)  # fmt: skip
    write(top / "broken.ipynb", "{")
    for left_out in (".ipynb_checkpoints/a.ipynb", ".hidden/b.py", "__pycache__/c.py"):
        write(top / left_out, "not reached")
    write(top / "venv" / "pyvenv.cfg", "home = /usr/bin\n")
    write(top / "venv" / "lib" / "d.py", "not reached")
    return top


# --- folders ---


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_folder_says_of_each_program_what_became_of_it(folder):
    status, out, err = d2lmini("run", folder, "--timeout", "5", "--keep-going")
    assert (status, err) == (1, "")
    out = re.sub(r"\d+\.\d s", "T s", out)
    out = re.sub(r"\n {11,}", " ", out.replace("  (T s)", ""))  # each program a line
    line = r"^(?:passed|FAILED|TIMED OUT) +(\S*(?: \S+)?\.(?:py|ipynb))(.*)$"
    lines = dict(re.findall(line, out, re.M))
    expected = {
        "asks.py": " line 1: NameError: name 'raw_input' is not defined "
                   "hint: the program is written for Python 2: rewrite it for Python 3",
        "crash.py": " killed by SIGSEGV",
        "exits.py": " line 2: ended by sys.exit: no data in ../data",
        "hang.py": " line 4: still running after 5 s (--timeout)",
        "images.py": " line 4: NotImplementedError: mxnet.image.imread is left out of d2lmini, as "
                     "all of MXNet's image operations",
        "lacks.py": " line 1: ModuleNotFoundError: No module named 'no_such_package_at_all' hint: "
                    "the program needs the package no_such_package_at_all, which is not installed "
                    "here",
        "reads.py": "", "stubborn.py": " still running after 5 s (--timeout)", "train.py": "",
        "zero.py": "",
    }  # fmt: skip
    assert {name: lines[name] for name in expected} == expected
    assert lines["imports.py"].endswith("hint: MXNet 1.9.1 has no such name either")
    assert "written for Python 2" in lines["python2.py"]
    assert "broken.ipynb is not a readable notebook" in lines["broken.ipynb"]
    assert re.match(
        r" cell 3, line 2: AttributeError: .*foo.* cell 5, line 1: ZeroDivisionError",
        lines["sub folder/regression.ipynb"],
    )
    assert lines.keys() - expected.keys() == {
        "imports.py", "python2.py", "broken.ipynb", "sub folder/regression.ipynb",
    }  # fmt: skip
    assert out.splitlines()[-2] == "14 programs in T s: 3 passed, 9 failed, 2 timed out"
    assert "d2lmini info --for" in out.splitlines()[-1]


def test_lines_are_not_longer_than_the_terminal(folder):
    _, out, _ = d2lmini("run", folder / "sub folder", COLUMNS="80")
    assert "cell 3, line 2" in out and max(map(len, out.splitlines())) <= 80


def test_json_has_the_tracebacks(folder):
    status, out, _ = d2lmini("run", "--json", folder / "sub folder")
    found = json.loads(out)
    assert status == 1
    assert found["totals"] == {"passed": 0, "FAILED": 1, "TIMED OUT": 0, "not run": 0}
    [program] = found["programs"]
    [failure] = program["failures"]  # the cells after it were not run
    assert program["result"] == "FAILED" and program["elapsed_s"] > 0
    assert (failure["cell"], failure["place"]) == ("cell 3", "cell 3, line 2")
    assert "    x.foo\n" in failure["traceback"] and "runner.py" not in failure["traceback"]


def test_all_programs_pass(tmp_path):
    write(tmp_path / "a.py", "import mxnet\n")
    notebook(tmp_path / "b.ipynb", "import mxnet")
    status, out, err = d2lmini("run", ".", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert re.fullmatch(
        r"passed     a.py  \(\d+\.\d s\)\npassed     b.ipynb  \(\d+\.\d s\)\n"
        r"2 programs in \d+\.\d s: 2 passed\n",
        out,
    )


def wait_for(path: Path) -> None:
    end_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_program_and_prints_the_summary_so_far(tmp_path, sent):
    write(tmp_path / "a.py", "import mxnet\n")
    write(tmp_path / "b.py", "import os, time\nopen('begun', 'w').write(str(os.getpid()))\n"
          "open('ready', 'w').close()\ntime.sleep(100)\n")  # fmt: skip
    write(tmp_path / "c.py", "import mxnet\n")
    command = subprocess.Popen(
        [sys.executable, "-m", "d2lmini", "run", str(tmp_path)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(tmp_path / "ready")
    command.send_signal(sent)
    out, err = command.communicate(timeout=30)
    assert (command.returncode, err) == (130, "run: stopped by Ctrl-C\n")
    assert re.fullmatch(
        r"passed     a\.py  \(.*? s\)\n3 programs in \d+\.\d s: 1 passed, 2 not run\n", out, re.S
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)


def test_what_a_program_has_started_ends_with_it(tmp_path):
    """A process that holds the terminal open would else hold the command."""
    write(tmp_path / "a.py", "import subprocess, sys\n"
          "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n")  # fmt: skip
    begin_s = time.monotonic()
    assert d2lmini("run", tmp_path)[0] == 0
    assert time.monotonic() - begin_s < 60


# --- one program ---


def test_one_program_with_a_time_limit_shows_what_it_prints(tmp_path):
    program = write(tmp_path / "slow.py", "import sys, time\nprint(sys.argv[1:], flush=True)\n"
                    "time.sleep(100)\n")  # fmt: skip
    status, out, err = d2lmini("run", "--timeout", "3", program, "--epochs", "2", cwd=tmp_path)
    assert status == 1 and out.startswith("['--epochs', '2']\nTIMED OUT")
    assert "still running after 3 s (--timeout)" in out
    assert os.name == "nt" or ("line 3" in out and "KeyboardInterrupt" in err)


def test_all_cells_of_a_notebook(folder):
    book = folder / "sub folder" / "regression.ipynb"
    status, out, err = d2lmini("run", book)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == (
        "cell 3, line 2 failed; 3 of 5 code cells were not run (run --keep-going runs all)"
    )
    for words in (("--allow-errors", book), (book, "--keep-going")):
        status, out, err = d2lmini("run", *words)
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
    status, out, _ = d2lmini("run", book, "--keep-going", "--output", copy)
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
    assert d2lmini("run", book, "--output", copy)[0] == 0
    [output] = json.loads(copy.read_text(encoding="utf-8"))["cells"][1]["outputs"]
    assert output["data"]["image/png"].startswith("iVBOR")


# --- what cannot begin ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py"], "there is no file 'nothing.py'"),
        (["empty"], "there is no .py or .ipynb file in 'empty'"),
        (["notes.txt"], "'notes.txt' is neither a .py nor an .ipynb file, nor a folder of these"),
        (["--timeout", "0", "a.py"], "--timeout is a number of seconds above 0, got 0"),
        ([".", "--timeout", "nan"], "--timeout is a number of seconds above 0, got nan"),
        ([".", "--timeout", "soon"], "argument --timeout: invalid float value: 'soon'"),
        ([".", "--epochs", "3"], "the programs of a folder get no arguments, got --epochs 3"),
        (["--output", "b.ipynb", "a.py"], "--output is for one notebook"),
        (["--output", "no/b.ipynb", "a.ipynb"], "there is no folder for 'no/b.ipynb'"),
        (["a.ipynb"], "a.ipynb is not a readable notebook"),
    ],
)
def test_run_refuses(tmp_path, words, message):
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "a.py", "a.ipynb"):
        write(tmp_path / name, "")
    status, out, err = d2lmini("run", *words, cwd=tmp_path)
    assert (status, out) == (2, "") and message in err
