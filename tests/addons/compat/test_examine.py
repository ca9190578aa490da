"""The names of MXNet that a program uses, told from its text alone; `d2lmini info --for` prints
them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from d2lmini import mxnet_alias
from d2lmini.compat.mxnet_alias.examine import ask, examine, names_used


@pytest.fixture(autouse=True)
def alias():
    """Reading a program installs the alias."""
    yield
    mxnet_alias.uninstall()


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def used(source: str) -> dict[str, str]:
    """The names that a program uses, and their lines."""
    mxnet_alias.install_as_mxnet()
    uses = names_used([("", ast.parse(source))])
    return {name: place.removeprefix("line ") for name, place in uses}


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
        ("from mxnet.gluon.nn import *\nDense(3); Foo(); len", {"mxnet.gluon.nn.Dense": "2"}),
        ("class A:\n    def hybrid_forward(self, G, x, w):\n        return G.foo(x) + G.bar",
         {"mxnet.nd.foo": "3", "mxnet.nd.bar": "3"}),
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
    ],
)  # fmt: skip
def test_the_names_that_a_program_uses(source, names):
    assert used(source) == names


def test_the_library_is_asked(monkeypatch):
    """A name that is there from now on is not missing."""
    mxnet_alias.install_as_mxnet()
    assert ask("mxnet.nd.frobnicate") == "MXNet 1.9.1 has no such name either"
    assert ask("mxnet.nd.SVMOutput") == "left out, as few programs use it"
    assert ask("mxnet.image.foo") == "left out, as all of MXNet's image operations"
    assert ask("mxnet.kv.kvstore_server").startswith("left out, as are MXNet's parameter servers")
    assert ask("mxnet.gluon.nonsense.foo") == "MXNet 1.9.1 has no such name either"
    assert ask("d2lzh.nonsense") == "d2lmini has no such name"
    import mxnet

    monkeypatch.setattr(mxnet.nd, "frobnicate", len, raising=False)
    assert ask("mxnet.nd.frobnicate") is None
    assert ask("mxnet.nd.random.uniform") is None
    assert ask("mxnet.__version__.split") is None


# --- programs ---


PROGRAM = """\
from mxnet import image, nd, gluon
from mxnet.gluon import nn
import mxnet as mx

net = nn.BatchNorm()
x = image.imread('a.jpg')
y = image.imread('b.jpg')
z = nd.sparse.csr_matrix((2, 3)).slice_assign(nd.ones(2), 0, 1)
mx.nd.frobnicate(nd.ones(2))
"""


def test_a_script(tmp_path):
    found = examine(write(tmp_path / "old program.py", PROGRAM))
    assert found.names == 5
    assert {name.name: (name.reason, name.places) for name in found.missing} == {
        "mxnet.image.imread": (
            "left out, as all of MXNet's image operations",
            ["line 6", "line 7"],
        ),
        "mxnet.nd.frobnicate": ("MXNet 1.9.1 has no such name either", ["line 9"]),
        "mxnet.nd.sparse.csr_matrix": ("left out, as all of MXNet's sparse arrays", ["line 8"]),
    }


def test_a_notebook_whose_cells_are_not_all_python(tmp_path):
    cells = [
        "%matplotlib inline\n!pip install mxnet\nfrom mxnet import nd",
        "%%bash\nls -l",
        "%%time\nnd.histogram(nd.ones(2))",
        "x = 3\nnd.histogram?\nnd.histogram",
    ]
    book = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}
    [histogram] = examine(write(tmp_path / "a.ipynb", json.dumps(book))).missing
    assert histogram.name == "mxnet.nd.histogram"
    assert histogram.places == ["cell 3, line 2", "cell 4, line 3"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xef\xbb\xbfimport mxnet\n",
        "# -*- coding: latin-1 -*-\n# caf\xe9\n".encode("latin-1"),
    ],
)
def test_a_program_without_names(tmp_path, content):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    assert examine(str(path)).names == 0


@pytest.mark.parametrize(
    "content", [b"x = '" + b"(" * 500, b"(" * 5000, b"print 1\n", b"x = 1\0\n", b"\xff"]
)
def test_a_text_that_is_not_python(tmp_path, content):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.py"):
        examine(str(path))
