"""What Symbols say, row by row, against the real MXNet 1.9.1, where one is at hand
(`make test-mxnet`): names of nodes, lists, labels, inferred shapes and types, composition."""

from __future__ import annotations

from typing import Any

import pytest
import symbol_rows
from oracle import Oracle
from symbol_rows import ROWS

import d2lmini
from d2lmini import install_as_mxnet
from d2lmini.compat.mxnet_alias import uninstall

#: Rows where MXNet gives up and we do not, and why it does.
KINDER = {
    "x.reshape(2,3)": "takes a tuple only",
    "sym.sgd_mom_update(x,y,z,lr=0.1)": "wants states named, as if they could be left out",
    "sym.adam_update(x,y,lr=0.1)": "the same",
    "sym.reshape(x,shape=(0,-1)).infer_shape_partial(x=(0,3,4))": "does not see that 12 is sure",
}
COMPARED = [row for row in ROWS if row not in KINDER]


@pytest.fixture(scope="module")
def ours() -> Any:
    """This library under the name of `mxnet`."""
    install_as_mxnet()
    import mxnet

    yield mxnet
    uninstall()


@pytest.mark.parametrize("row", COMPARED)
def test_symbol_equals_mxnet(row: str, ours: Any, mxnet: Oracle):
    assert symbol_rows.answer(ours, row) == mxnet.ask(symbol_rows.answer, row)


@pytest.mark.parametrize("row", KINDER)
def test_what_mxnet_does_not_know(row: str, ours: Any, mxnet: Oracle):
    answer = symbol_rows.answer(ours, row)
    assert "error" not in answer
    assert answer != mxnet.ask(symbol_rows.answer, row)


#: What MXNet's Symbol shows and ours does not: handles of its C library, its NumPy interface,
#: backends for graphs.
NOT_OURS = "handle as_np_ndarray get_backend_symbol optimize_for".split()


def names(mx):
    """Of methods of a Symbol, and of functions of `sym`."""
    return [[n for n in dir(space) if n[0] != "_"] for space in (mx.sym.Symbol, mx.sym)]


def test_methods_are_there(mxnet: Oracle):
    methods, functions = mxnet.ask(names)
    assert len(methods) > 100 and len(functions) > 250
    missing = [n for n in methods if n not in NOT_OURS and not hasattr(d2lmini.sym.Symbol, n)]
    assert missing == []
    for name in functions:
        if not hasattr(d2lmini.sym, name):
            with pytest.raises(AttributeError) as caught:
                getattr(d2lmini.sym, name)
            assert "left out of d2lmini" in str(caught.value) or name in UNKNOWN


#: Names of MXNet's own files, and ops that no program of ours uses.
UNKNOWN = """
    gen__internal gen_contrib gen_image gen_linalg gen_op gen_sparse register numpy
    IdentityAttachKLSparseReg SVMOutput amp_multicast""".split()
