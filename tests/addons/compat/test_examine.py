"""The names of MXNet that a program uses, told from its text alone; `d2lmini info --for` prints
them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from d2lmini import mxnet_alias
from d2lmini.compat.mxnet_alias.examine import DIFFERENCES, ask, examine, names_used


@pytest.fixture(autouse=True)
def alias():
    """Reading a program installs the alias."""
    yield
    mxnet_alias.uninstall()


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


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
        ("from mxnet import nd, gluon as g\ng.nn.Foo(nd.bar)",
         {"mxnet.gluon.nn.Foo": "2", "mxnet.nd.bar": "2"}),
        ("from mxnet import np, npx\nnpx.set_np()\nnp.foo.bar",
         {"mxnet.npx.set_np": "2", "mxnet.np.foo.bar": "3"}),
        ("import d2lzh as d2l\nd2l.foo()", {"d2lzh.foo": "2"}),
        ("from d2l import mxnet as d2l\nd2l.foo()", {"d2l.mxnet.foo": "2"}),
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
        ("from mxnet import image\nfor image in []:\n    image.foo", {}),
        ("from mxnet import image\ndef f():\n    image = 3\n    return image.foo", {}),
        ("from mxnet import np\nimport numpy as np\nnp.foo", {}),
        ("from .mxnet import nd\nnd.foo", {}),
        ("from mxnet import nd\ndef f():\n    global nd\n    nd = nd.foo(3)",
         {"mxnet.nd.foo": "4"}),
    ],
)  # fmt: skip
def test_the_names_that_a_program_uses(source, names):
    assert used(source) == names


def test_the_library_is_asked(monkeypatch):
    """A name that is there from now on is not missing."""
    mxnet_alias.install_as_mxnet()
    assert ask("mxnet.nd.frobnicate") == "MXNet 1.9.1 has no such name either"
    assert ask("mxnet.nd.SVMOutput") == "left out: few programs use it"
    assert ask("mxnet.image.foo") == "left out: MXNet's image operations"
    assert ask("mxnet.kv.kvstore_server").startswith("left out: MXNet's parameter servers")
    assert ask("mxnet.gluon.nonsense.foo") == "MXNet 1.9.1 has no such name either"
    assert ask("d2lzh.nonsense") == "d2lmini has no such name"
    import mxnet

    monkeypatch.setattr(mxnet.nd, "frobnicate", len, raising=False)
    assert ask("mxnet.nd.frobnicate") is None
    assert ask("mxnet.nd.random.uniform") is None
    assert ask("mxnet.__version__.split") is None


def test_every_name_of_a_difference_is_here():
    """Else the table would tell of a name that the program does not have."""
    mxnet_alias.install_as_mxnet()
    names = " ".join(row.names for row in DIFFERENCES).split()
    assert names
    for name in names:
        assert ask(f"mxnet.{name.partition('(')[0]}") is None, name


# --- programs ---


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
    found = examine(write(tmp_path / "old program.py", PROGRAM))
    assert found.names == 7 and found.not_python == []
    assert {name.name: (name.reason, name.places) for name in found.missing} == {
        "NDArray.slice_assign": ("left out: x[begin:end] = value does the same", ["line 10"]),
        "mxnet.image.imread": ("left out: MXNet's image operations", ["line 8", "line 9"]),
        "mxnet.nd.frobnicate": ("MXNet 1.9.1 has no such name either", ["line 11"]),
        "mxnet.nd.sparse.csr_matrix": ("left out: MXNet's sparse arrays", ["line 10"]),
    }
    assert {name.name: name.places for name in found.differs} == {
        "mxnet.gluon.data.DataLoader": ["line 7"], "mxnet.gluon.nn.BatchNorm": ["line 5"],
    }  # fmt: skip
    [batch_norm] = [name.reason for name in found.differs if "BatchNorm" in name.name]
    assert batch_norm.startswith("`BatchNorm`'s running statistics: MXNet: change in `backward`")


def test_a_notebook_whose_cells_are_not_all_python(tmp_path):
    cells = [
        "%matplotlib inline\n!pip install mxnet\nfrom mxnet import nd",
        "%%bash\nls -l",
        "%%time\nnd.histogram(nd.ones(2))",
        "print 'sum', nd.histogram\nx = = 3\nnd.histogram?",
        "def f(:\n    pass\nnd.histogram",
    ]
    book = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}
    found = examine(write(tmp_path / "a.ipynb", json.dumps(book)))
    [histogram] = found.missing
    assert histogram.name == "mxnet.nd.histogram"
    assert histogram.places == ["cell 3, line 2", "cell 4, line 1", "cell 5, line 3"]
    assert found.not_python == [
        "cell 4, line 1", "cell 4, line 2", "cell 5, line 1", "cell 5, line 2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [b"", b"\xef\xbb\xbfimport mxnet\n", "# -*- coding: latin-1 -*-\n# caf\xe9\n".encode("latin-1"),
     b"x = '" + b"(" * 500, b"(" * 5000, b"if x\n" * 3 + b"  y\n z\n", b"x = 1\0\n"],
)  # fmt: skip
def test_any_text_is_read(tmp_path, content):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    assert examine(str(path)).missing == []
