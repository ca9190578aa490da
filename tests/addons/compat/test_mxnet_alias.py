"""`install_as_mxnet` and `python -m d2lmini run`: old programs find what they import, unchanged."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from fnmatch import filter as names_like
from pathlib import Path
from types import ModuleType

import pytest

import d2lmini
from d2lmini.base.left_out import LEFT_OUT
from d2lmini.compat.mxnet_alias import install_as_mxnet, installed, uninstall


@pytest.fixture
def mxnet():
    install_as_mxnet()
    yield importlib.import_module("mxnet")
    uninstall()


def names_of(program: str) -> dict:
    """What a program leaves behind."""
    names: dict = {"__name__": "__main__"}
    exec(program, names)
    return names


# --- what resolves ---


def test_the_imports_of_old_programs(mxnet):
    names = names_of("""
import mxnet as mx
import mxnet.ndarray as nd2
import mxnet.gluon.nn
import mxnet.gluon as g
import mxnet.autograd as ag
from mxnet import nd, autograd, gluon, init, sym, image, context, metric, lr_scheduler, optimizer
from mxnet import base, random, engine, io, kv, profiler, util, runtime, test_utils, ndarray as F
from mxnet.gluon import data as gdata, loss as gloss, nn, rnn, utils as gutils
from mxnet.gluon.data import DataLoader, ArrayDataset
from mxnet.gluon.data.vision import transforms, datasets
from mxnet.gluon.nn import Dense, HybridSequential
from mxnet.gluon.block import Block, HybridBlock
from mxnet.gluon.parameter import Parameter, ParameterDict
from mxnet.gluon.rnn.rnn_cell import LSTMCell
from mxnet.gluon import Trainer
from mxnet.base import MXNetError
from mxnet.context import Context, cpu
from mxnet.contrib import amp
import mxnet.contrib.amp as its_amp
from mxnet.contrib import text
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import NDArray as NDArray2
from mxnet.optimizer.optimizer import SGD
from mxnet.initializer import Xavier
from mxnet.test_utils import assert_almost_equal
""")
    mx, ours = names["mx"], d2lmini
    assert mx.__version__.startswith("1.9")
    assert mx.nd is names["nd"] is names["nd2"] is names["F"] is mx.ndarray is ours.nd
    assert mx.gluon is names["g"] is names["gluon"] is ours.gluon
    assert names["nn"] is mx.gluon.nn is ours.gluon.nn
    assert names["Dense"] is ours.gluon.nn.Dense and names["Block"] is ours.gluon.Block
    assert names["autograd"] is names["ag"] is ours.autograd
    assert mx.init is mx.initializer is names["init"] is ours.initializer
    assert mx.MXNetError is names["MXNetError"] is mx.base.MXNetError is ours.MXNetError
    assert mx.Context is names["Context"] is ours.Context
    assert names["NDArray"] is names["NDArray2"] is ours.nd.NDArray
    assert names["SGD"] is ours.optimizer.SGD
    assert names["LSTMCell"] is ours.gluon.rnn.LSTMCell
    assert names["amp"] is names["its_amp"] is mx.contrib.amp is ours.contrib.amp
    assert names["gdata"].vision.transforms is names["transforms"]
    assert names["gdata"].vision.MNIST is names["datasets"].MNIST
    assert mx.cpu() == ours.cpu() and mx.current_context() == ours.cpu()
    assert mx.random.seed is ours.random.seed and mx.rnd is ours.random
    with mx.engine.bulk(3):
        assert mx.nd.ones(2).sum().asscalar() == 2


def test_the_book_s_package(mxnet):
    import d2l
    import d2lzh
    import d2lzh.utils

    assert d2lzh is d2l is d2lzh.utils is d2lmini.d2l
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("d2lzh.nothing")


def test_another_d2l_comes_first(tmp_path, monkeypatch):
    (tmp_path / "d2l.py").write_text("mine = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    install_as_mxnet()
    try:
        assert importlib.import_module("d2l").mine == 1
        uninstall()
        assert "d2l" in sys.modules  # not ours to forget
    finally:
        uninstall()
        sys.modules.pop("d2l", None)


def test_what_old_programs_ask_for_before_they_begin(mxnet):
    assert mxnet.__version__ == mxnet.libinfo.__version__ == "1.9.1"
    assert not mxnet.runtime.Features().is_enabled("CUDA") or mxnet.util.get_gpu_count()
    with pytest.raises(NotImplementedError, match=r"libinfo\.find_lib_path is left out"):
        mxnet.libinfo.find_lib_path()


# --- what is not there ---


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("mx.image.imread('cat.jpg')", "mxnet.image.imread is left out of d2lmini, as all of"),
        ("text.vocab.Vocabulary({})", "mxnet.contrib.text.vocab.Vocabulary is left out of d2lmini"),
        ("mx.mod.Module(None)", "mxnet.mod.Module is left out of d2lmini, as is the interface"),
        ("sparse.csr_matrix(1)", "sparse.csr_matrix is left out of d2lmini, as all of MXNet's sp"),
        ("mx.nd.histogram(1)", "mxnet.nd.histogram is left out of d2lmini, np.histogram"),
        ("mx.test_utils.get_mnist()", "mxnet.test_utils.get_mnist is left out of d2lmini, numpy."),
        ("vision.resnet18_v1()", "mxnet.gluon.model_zoo.vision.resnet18_v1 is left out"),
        ("mx.recordio.MXRecordIO + 1", "mxnet.recordio.MXRecordIO is left out"),
        ("mx.image.ImageIter[0]", "mxnet.image.ImageIter is left out"),
        ("if mx.image.CreateAugmenter: pass", "mxnet.image.CreateAugmenter is left out"),
        ("class Mine(mx.image.ImageIter): pass", "mxnet.image.ImageIter is left out"),
    ],
)
def test_what_is_left_out_imports_and_says_so_when_used(mxnet, use, words):
    program = """
import mxnet as mx
from mxnet.contrib import text
from mxnet.image import imread
from mxnet.ndarray import sparse
from mxnet.gluon.model_zoo import vision
"""
    with pytest.raises(NotImplementedError) as caught:
        names_of(program + use)
    assert words in str(caught.value)


def test_what_is_left_out_does_not_exist():
    """Each row of the table still names something that is missing."""
    places = (d2lmini.nd, d2lmini.nd.contrib, d2lmini.sym, d2lmini.sym.contrib, d2lmini.gluon)
    names = [name for place in places for name in dir(place) if getattr(place, name, None)]
    patterns = " ".join(LEFT_OUT.values()).split()
    here = {pattern: names_like(names, pattern) for pattern in patterns}
    assert {pattern: found for pattern, found in here.items() if found} == {
        "log": ["log"] * 2, "rnn": ["rnn"],  # MXNet has modules of these names, too
    }  # fmt: skip


def test_what_mxnet_never_had(mxnet):
    with pytest.raises(AttributeError, match="mxnet has no 'nothing'"):
        mxnet.nothing
    with pytest.raises(AttributeError, match="mxnet has no 'ops'"):
        mxnet.ops  # d2lmini's own
    with pytest.raises(ModuleNotFoundError, match=r"mxnet\.nothing"):
        importlib.import_module("mxnet.nothing")
    assert not hasattr(mxnet, "__wrapped__") and not hasattr(mxnet.image, "__wrapped__")


# --- in and out ---


def test_twice_is_once_and_out_is_out():
    before = sys.meta_path[:]
    install_as_mxnet()
    install_as_mxnet()
    assert installed() and len(sys.meta_path) == len(before) + 2
    kept = {module: dict(vars(module)) for module in (d2lmini.nd, d2lmini.io, d2lmini.base)}
    names_of("import mxnet, mxnet.ndarray.image, mxnet.gluon.model_zoo, mxnet.io.io, d2lzh")
    names_of("import mxnet.base, mxnet.nd.linalg, mxnet.ndarray.numpy, mxnet.nd.register")
    assert "image" in vars(d2lmini.nd)
    uninstall()
    uninstall()
    assert not installed() and sys.meta_path == before
    assert [m for m in sys.modules if m.partition(".")[0] in ("mxnet", "d2lzh")] == []
    assert all(vars(module) == before for module, before in kept.items())
    assert "model_zoo" not in vars(d2lmini.gluon)
    with pytest.raises(AttributeError, match="left out"):
        d2lmini.nd.image


def test_a_real_mxnet_in_the_process_is_refused(monkeypatch):
    real = ModuleType("mxnet")
    real.__version__ = "1.8.0"
    real.__file__ = "/somewhere/mxnet/__init__.py"
    monkeypatch.setitem(sys.modules, "mxnet", real)
    with pytest.raises(ImportError, match=r"mxnet 1.8.0 is already imported .*/somewhere/mxnet"):
        install_as_mxnet()
    assert not installed()


# --- python -m d2lmini run ---


def command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    words = [sys.executable, "-m", "d2lmini", *map(str, arguments)]
    root = str(Path(d2lmini.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r}); sys.argv[1:] = {words[3:]!r}\n"
    code += "from d2lmini.__main__ import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=100
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def notebook(path: Path, *cells: tuple[str, str]) -> Path:
    book = [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]
    return write(path, json.dumps({"cells": book, "nbformat": 4, "nbformat_minor": 5}))


def test_a_script_runs_as_if_python_had_started_it(tmp_path):
    write(tmp_path / "mine.py", "value = 42\n")
    program = write(
        tmp_path / "program.py",
        "import sys, pickle, mine, mxnet as mx\n"
        "from __main__ import sys as again\n"
        "class Thing: pass\n"
        "assert again is sys and type(pickle.loads(pickle.dumps(Thing()))) is Thing\n"
        "print(__name__, sys.argv[1:], sys.argv[0] == __file__, mine.value)\n"
        "print(mx.nd.arange(3).sum().asscalar())\n"
        "sys.exit(7)\n",
    )
    done = command("run", program, "--lr", "0.1", "-h")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "__main__ ['--lr', '0.1', '-h'] True 42\n3.0\n"


def test_a_traceback_begins_in_the_program(tmp_path):
    program = write(
        tmp_path / "bad.py",
        "from mxnet import nd\ndef f(x):\n    return nd.dot(x, x)\nf(nd.ones((2, 3)))\n",
    )
    done = command("run", program)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[:3] == [
        "Traceback (most recent call last):",
        f'  File "{program}", line 4, in <module>',
        "    f(nd.ones((2, 3)))",
    ]
    assert "runner.py" not in done.stderr and "MXNetError: dot: inner sizes" in lines[-1]


def test_a_notebook(tmp_path):
    book = notebook(
        tmp_path / "book.ipynb",
        ("markdown", "# A title"),
        ("code", "%matplotlib inline\nfrom mxnet import nd\nx = nd.ones((1, 2))\nx"),
        ("code", "!pip install mxnet\ny = (7\n  % 4)\ns = '''\n%kept\n'''\nprint(s.strip())\n7;"),
        ("code", ""),
        ("code", "%%html\n<b>bold</b>"),
        ("code", "%%time\nfor i in range(2):\n    %time z = y + i\ndisplay(z)\nz"),
        ("raw", "no code"),
        ("code", "_"),
        ("code", "x.shape, __name__"),
    )
    done = command("run", book)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "\n[[1. 1.]]\n<NDArray 1x2 @cpu(0)>\n%kept\n4\n4\n4\n((1, 2), '__main__')\n"
    )
    assert done.stderr == (
        "cell 3: this line is left out, only IPython understands it: !pip install mxnet\n"
        "cell 5: the whole cell is left out, only IPython understands it: %%html\n"
    )


def test_an_error_in_a_notebook_names_the_cell(tmp_path):
    book = notebook(
        tmp_path / "book.ipynb",
        ("code", "def f():\n    return 1 / 0"),
        ("markdown", "text"),
        ("code", "print('before')\nf()"),
        ("code", "print('never')"),
    )
    done = command("run", book)
    assert (done.returncode, done.stdout) == (1, "before\n")
    assert done.stderr.splitlines()[1:5] == [
        f'  File "{book}, cell 3", line 2, in <module>',
        "    f()",
        f'  File "{book}, cell 1", line 2, in f',
        "    return 1 / 0",
    ]
    done = command("run", notebook(tmp_path / "book.ipynb", ("code", "x = = 1")))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-4:-2] == [
        f'  File "{book}, cell 1", line 1',
        "    x = = 1",
    ]


def test_run_leaves_the_caller_as_it_was(tmp_path, capsys):
    from d2lmini.compat.mxnet_alias.runner import run

    before = sys.modules["__main__"], sys.argv, sys.path[:]
    try:
        assert run(write(tmp_path / "a.py", "import mxnet, sys\nsys.path.append('x')")) == 0
        assert run(write(tmp_path / "b.py", "raise KeyboardInterrupt")) == 130
        assert run(write(tmp_path / "c.py", "undefined")) == 1
        with pytest.raises(SystemExit):
            run(write(tmp_path / "d.py", "raise SystemExit"))
    finally:
        uninstall()
    assert (sys.modules["__main__"], sys.argv, sys.path[:]) == before
    assert "NameError" in capsys.readouterr().err
