"""`d2lmini info --for`: the names that a program uses, told from its text alone."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from test_run_programs import d2lmini, notebook, write

from d2lmini import mxnet_alias
from d2lmini.compat.mxnet_alias import ask
from d2lmini.compat.mxnet_alias.differences import DIFFERENCES
from d2lmini.compat.mxnet_alias.examine import examine
from d2lmini.compat.mxnet_alias.names_used import names_used


@pytest.fixture(autouse=True)
def alias():
    """Reading a program installs the alias."""
    yield
    mxnet_alias.uninstall()


def used(source: str) -> dict[str, str]:
    """The names that a program uses, imports left out, and their lines."""
    mxnet_alias.install_as_mxnet()
    uses = names_used([("", ast.parse(source))])
    return {
        " ".join(use.paths): use.place.removeprefix("line ")
        for use in uses
        if not use.is_import and not use.paths[0].startswith(".")
    }


# --- names ---


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import mxnet as mx\nmx.nd.foo(1)", {"mxnet.nd.foo": "2"}),
        ("import mxnet.ndarray as F\nF.foo", {"mxnet.ndarray.foo": "2"}),
        ("import mxnet.gluon.nn\nmxnet.gluon.nn.Foo()", {"mxnet.gluon.nn.Foo": "2"}),
        ("from mxnet import nd, gluon as g\ng.nn.Foo(nd.bar)",
         {"mxnet.gluon.nn.Foo": "2", "mxnet.nd.bar": "2"}),
        ("from mxnet.gluon import nn\nclass A(nn.Foo): pass", {"mxnet.gluon.nn.Foo": "2"}),
        ("from mxnet import np, npx\nnpx.set_np()\nnp.foo.bar",
         {"mxnet.npx.set_np": "2", "mxnet.np.foo.bar": "3"}),
        ("import mxnet as mx\nnd = mx.nd\nf = nd.foo\nf(2)", {"mxnet.nd.foo": "4"}),
        ("import mxnet as mx\ngetattr(mx.nd, 'foo')(1)", {"mxnet.nd.foo": "2"}),
        ("import mxnet as mx\ngetattr(mx.nd, 'foo', None)", {"mxnet.nd": "2"}),
        ("import d2lzh as d2l\nd2l.foo()", {"d2lzh.foo": "2"}),
        ("from d2l import mxnet as d2l\nd2l.foo()", {"d2l.mxnet.foo": "2"}),
        # A name that the program uses before the line that imports it.
        ("def f():\n    return nd.foo\nfrom mxnet import nd", {"mxnet.nd.foo": "2"}),
        ("try:\n    from mxnet import nd\nexcept ImportError:\n    nd = None\nnd.foo",
         {"mxnet.nd.foo": "5"}),
        ("from mxnet.gluon.nn import *\nDense(3); Foo(); len", {"mxnet.gluon.nn.Dense": "2"}),
        ("class A:\n    def hybrid_forward(self, G, x, w):\n        return G.foo(x) + G.bar",
         {"mxnet.nd.foo mxnet.sym.foo": "3", "mxnet.nd.bar mxnet.sym.bar": "3"}),
        ("from mxnet import nd\nasync def f():\n    return [nd.foo for x in nd.bar]",
         {"mxnet.nd.bar": "3", "mxnet.nd.foo": "3"}),
        ("from mxnet import nd\n@nd.foo\ndef f(a=nd.bar): pass",
         {"mxnet.nd.foo": "2", "mxnet.nd.bar": "3"}),
        # Not MXNet's: parameters, variables, loops, comprehensions, another package's.
        ("from mxnet import image\ndef f(image):\n    return image.foo", {}),
        ("from mxnet import image\nf = lambda image: image.foo", {}),
        ("from mxnet import image\nfor image in []:\n    image.foo", {}),
        ("from mxnet import image\n[image.foo for image in []]\n", {}),
        ("from mxnet import image\ndef f():\n    image = 3\n    return image.foo", {}),
        ("from mxnet import np\nimport numpy as np\nnp.foo", {}),
        ("from .mxnet import nd\nnd.foo", {}),
        ("from mxnet import image\ndef f():\n    return image.foo\nimage = f()",
         {"mxnet.image.foo": "3"}),
        ("class A:\n    from mxnet import nd\n    x = nd.foo()\n    def f(self):\n"
         "        return nd.bar", {"mxnet.nd.foo": "3"}),
        ("from mxnet import nd\ndef f():\n    global nd\n    nd = nd.foo(3)",
         {"mxnet.nd.foo": "4"}),
    ],
)  # fmt: skip
def test_the_names_that_a_program_uses(source, names):
    assert used(source) == names


def test_the_library_is_asked(monkeypatch):
    """A name that is there from now on is not missing."""
    mxnet_alias.install_as_mxnet()
    assert ask.ask("mxnet.nd.frobnicate") == "MXNet 1.9.1 has no such name either"
    assert ask.ask("mxnet.nd.SVMOutput") == "left out: few programs use it"
    assert ask.ask("mxnet.image.foo") == "left out: MXNet's image operations"
    assert ask.ask("mxnet.gluon.contrib.data.text.foo") == "left out: MXNet's tools for text"
    assert ask.ask("mxnet.kv.kvstore_server").startswith("left out: MXNet's parameter servers")
    assert ask.ask("mxnet.gluon.nonsense.foo") == "MXNet 1.9.1 has no such name either"
    assert ask.ask("d2lzh.nonsense") == "d2lmini has no such name"
    import mxnet

    monkeypatch.setattr(mxnet.nd, "frobnicate", len, raising=False)
    assert ask.ask("mxnet.nd.frobnicate") is None
    assert ask.ask("mxnet.nd.random.uniform") is None
    assert ask.ask("mxnet.__version__.split") is None


def test_a_d2l_of_another_author_is_not_judged(tmp_path):
    write(tmp_path / "d2l.py", "raise SystemError('this file is not imported')\n")
    program = write(tmp_path / "a.py", "import d2l\nd2l.frobnicate()\n")
    assert examine(str(program)).missing == []
    assert d2lmini("info", "--for", program, cwd=tmp_path)[0] == 0


def test_every_name_of_a_difference_is_here():
    """Else the table would tell of a name that the program does not have."""
    mxnet_alias.install_as_mxnet()
    names = " ".join(row.names for row in DIFFERENCES).split()
    assert names
    for name in names:
        assert ask.ask(f"mxnet.{name.partition('(')[0]}") is None, name


# --- the command ---


PROGRAM = """\
from mxnet import image, nd, gluon
from mxnet.gluon import nn
import mxnet as mx

net = nn.BatchNorm()
loader = gluon.data.DataLoader([], 4)
loader = gluon.data.DataLoader([], 4, num_workers=2)
x = image.imread('a.jpg')
y = image.imread('b.jpg')
z = nd.sparse.csr_matrix((2, 3)).slice_assign(nd.ones(2), 0, 1)
mx.nd.frobnicate(nd.ones(2))
"""


def test_a_script(tmp_path):
    program = write(tmp_path / "old program.py", PROGRAM)
    status, out, err = d2lmini("info", "--for", program)
    assert (status, err) == (1, "")
    assert (
        out
        == """\
old program.py: 4 of 7 names of MXNet that it uses are missing

missing
  NDArray.slice_assign  (line 10)
      left out: x[begin:end] = value does the same
  mxnet.image.imread  (line 8; line 9)
      left out: MXNet's image operations
  mxnet.nd.frobnicate  (line 11)
      MXNet 1.9.1 has no such name either
  mxnet.nd.sparse.csr_matrix  (line 10)
      left out: MXNet's sparse arrays

works differently
  mxnet.gluon.data.DataLoader  (line 7)
      `DataLoader(num_workers=4)`: MXNet: processes; d2lmini: threads; processes with
      `thread_pool=False`
  mxnet.gluon.nn.BatchNorm  (line 5)
      `BatchNorm`'s running statistics: MXNet: change in `backward` (on a CPU), once for each;
      d2lmini: change in forward, in training, with or without `backward`; after a training step
      they are MXNet's
"""
    )
    status, out, _ = d2lmini("info", "--for", program, "--json")
    [found] = json.loads(out)
    assert status == 1 and found["file"] == str(program) and found["names"] == 7
    assert found["missing"][1] == {
        "name": "mxnet.image.imread", "reason": "left out: MXNet's image operations",
        "places": ["line 8", "line 9"],
    }  # fmt: skip


def test_a_notebook_whose_cells_are_not_all_python(tmp_path):
    book = notebook(
        tmp_path / "a.ipynb",
        "%matplotlib inline\n!pip install mxnet\nfrom mxnet import nd",
        "%%bash\nls -l",
        "%%time\nnd.histogram(nd.ones(2))",
        "print 'sum', nd.histogram\nx = = 3\nnd.histogram?",
        "def f(:\n    pass\nnd.histogram",
    )
    status, out, _ = d2lmini("info", "--for", book)
    assert status == 1
    assert "  mxnet.nd.histogram  (cell 4, line 2; cell 5, line 1; cell 6, line 3)\n" in out
    assert out.endswith(
        "not Python 3: cell 5, line 1; cell 5, line 2; cell 6, line 1; cell 6, line 2\n"
    )


def test_a_program_that_lacks_nothing(tmp_path):
    program = write(tmp_path / "a.py", "from mxnet import nd, image\nnd.ones(2) + nd.zeros(2)\n")
    status, out, _ = d2lmini("info", "--for", program)
    assert (status, out) == (0, "a.py: all 2 names of MXNet that it uses are here\n")


def test_an_import_alone_needs_only_names_that_mxnet_has(tmp_path):
    program = write(
        tmp_path / "a.py",
        "from mxnet.nd import histogram, ones\nimport mxnet.no_such\nfrom mxnet import recordio\n",
    )
    assert [name.name for name in examine(str(program)).missing] == ["mxnet.no_such"]


def test_a_folder(tmp_path):
    write(tmp_path / "ä" / "b.py", "from mxnet import nd\nnd.histogram(1)\n")
    write(tmp_path / "a.py", "print(1)\n")
    write(tmp_path / "c.py", "from mxnet import nd\nnd.ones(1)\n")
    status, out, _ = d2lmini("info", "--for", tmp_path)
    assert status == 1
    assert (
        out
        == """\
a.py: uses no name of MXNet
c.py: the one name of MXNet that it uses is here

ä/b.py: 1 of 1 name of MXNet that it uses is missing

missing
  mxnet.nd.histogram  (line 2)
      left out: np.histogram(x.asnumpy()) does the same

3 programs: 1 of them lacks a name
"""
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"\xef\xbb\xbfimport mxnet\n", "# -*- coding: latin-1 -*-\n# caf\xe9\n".encode("latin-1"),
     b"x = '" + b"(" * 500, b"(" * 5000, b"if x\n" * 3 + b"  y\n z\n", b"x = 1\0\n"],
)  # fmt: skip
def test_any_text_is_read(tmp_path, content):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    assert examine(str(path)).missing == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "'a.txt' is neither a .py nor an .ipynb file, nor a folder of these"),
        ("a.ipynb", b"{", "a.ipynb is not a readable notebook"),
        ("a.py", b"\xff\xff", "a.py is not a readable program"),
        ("other.py", b"", "there is no file 'a.py'"),
    ],
)
def test_info_for_refuses(tmp_path: Path, name, content, message):
    (tmp_path / name).write_bytes(content)
    asked = "a.py" if name == "other.py" else name
    status, out, err = d2lmini("info", "--for", asked, cwd=tmp_path)
    assert (status, out) == (2, "") and message in err
