"""What Symbols say, row by row and story by story, against the answers of the real MXNet 1.9.1 in
`data/symbol_answers.json.gz`: names, lists, labels, inferred shapes and types, composition, scopes.
Where there is a real MXNet (`make test-mxnet`), the stored answers are compared with it."""

from __future__ import annotations

from typing import Any

import pytest
import scope_stories
import symbol_rows
from oracle import Oracle
from symbol_answers import answers_of, as_stored, same, stored

import d2lmini
from d2lmini import install_as_mxnet
from d2lmini.compat.mxnet_alias import uninstall

#: Rows where MXNet gives up and we do not, and why it does.
KINDER = {
    "x.reshape(2,3)": "takes a tuple only",
    "sym.reshape(x,shape=(0,-1)).infer_shape_partial(x=(0,3,4))": "does not see that 12 is sure",
}
COMPARED = [row for row in symbol_rows.ROWS if row not in KINDER]
ANSWERS = stored()


@pytest.fixture(scope="module")
def ours() -> Any:
    """This library under the name of `mxnet`."""
    install_as_mxnet()
    import mxnet

    yield mxnet
    uninstall()


def test_stored_answers_are_those_of_mxnet(mxnet: Oracle):
    now = answers_of(mxnet)
    assert now.keys() == ANSWERS.keys()
    assert [key for key in now if not same(now[key], ANSWERS[key])] == []


def answer_like(ours: Any, row: str) -> Any:
    """Our answer; an error counts as of the kind of MXNet's if it is of that kind, too."""
    theirs = ANSWERS[row]
    wanted = theirs.get("error", "") if isinstance(theirs, dict) else ""
    return as_stored(symbol_rows.answer(ours, row, wanted.replace("Exception", "")))


@pytest.mark.parametrize("row", COMPARED)
def test_symbol_equals_mxnet(row: str, ours: Any):
    assert answer_like(ours, row) == ANSWERS[row]


@pytest.mark.parametrize("row", KINDER)
def test_what_mxnet_does_not_know(row: str, ours: Any):
    answer = symbol_rows.answer(ours, row)
    assert "error" not in answer
    assert as_stored(answer) != ANSWERS[row]


@pytest.mark.parametrize("row", [row for row, reason in symbol_rows.REASONS.items() if reason])
def test_calls_that_differ_on_purpose(row: str, ours: Any):
    assert answer_like(ours, row) != ANSWERS[row], symbol_rows.REASONS[row]


@pytest.mark.parametrize("name", scope_stories.STORIES)
def test_scopes_are_those_of_mxnet(name: str, ours: Any):
    key = f"scope_stories:{name}"
    told = as_stored(scope_stories.tell(ours, key))
    assert same(told, ANSWERS[key]), told


#: What MXNet's Symbol shows and ours does not: handles of its C library, its NumPy interface,
#: backends for graphs.
NOT_OURS = """
    handle as_np_ndarray get_backend_symbol optimize_for argmax_channel nanprod slice_like
    debug_str gradient
    """.split()


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
    IdentityAttachKLSparseReg SVMOutput""".split()
