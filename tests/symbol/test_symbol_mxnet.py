"""What Symbols say, row by row and story by story, against the answers of the real MXNet 1.9.1 in
`data/symbol_answers.json.gz`: names, lists, labels, inferred shapes and types, composition, scopes.
Where there is a real MXNet (`make test-mxnet`), the stored answers are compared with it."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import infer_rows
import pytest
import scope_stories
import symbol_calls
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
COMPARED = [row for row in symbol_rows.ROWS if row not in KINDER] + symbol_calls.AGREE
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


@pytest.mark.parametrize("row", symbol_calls.REASONS)
def test_calls_that_differ_on_purpose(row: str, ours: Any):
    assert answer_like(ours, row) != ANSWERS[row], symbol_calls.REASONS[row]


@pytest.mark.parametrize("name", scope_stories.STORIES)
def test_scopes_are_those_of_mxnet(name: str, ours: Any):
    key = f"scope_stories:{name}"
    told = as_stored(scope_stories.tell(ours, key))
    assert same(told, ANSWERS[key]), told


# -- shapes known in part --------------------------------------------------------------------------

#: Op -> what MXNet says about shapes known in part that is wrong, or that we do not infer.
LESS = {
    **dict.fromkeys(
        """concat stack reshape transpose expand_dims pick broadcast_add broadcast_mul
        broadcast_greater Convolution""".split(),
        "infers inputs from the output or from each other; here that is for elementwise ops and "
        "for ops with parameters, labels or lengths",
    ),
    "pad": "adds the padding to an unknown size as if it was 0",
    "RNN": "counts the parameters of an unknown input size as if it was 0",
    "GroupNorm": "overwrites gamma of one number per channel; here it is allowed",
    "shape_array": "says 0 axes for an unknown shape",
    "slice_like": "infers the result's axes from the second input",
    "broadcast_like": "keeps the first input's size for an unknown one",
    "split": "infers the data from parts without their axis",
}
#: Ops for which MXNet does not see a contradiction between complete shapes.
UNCHECKED = set(
    "LeakyReLU where FullyConnected stack reshape linalg.gemm2 BatchNorm GroupNorm "
    "InstanceNorm".split()
)


def kind_of_difference(row: str, ours: Any, theirs: Any) -> str:
    """'' if equal, else how we differ from MXNet, which must be for the better or in a list."""
    name = re.match(r"told\(sym\.([\w.]+)", row)[1]  # type: ignore[index]
    if ours == theirs:
        return ""
    if "error" in theirs and "error" not in ours:
        unknown = re.search(r"[( ]0[,)]|=\(\)", row) or any(
            not shape or 0 in shape for part in ours[:3] for shape in part
        )
        return "MXNet refuses an unknown size" if unknown else "misses a contradiction"
    if "error" in ours:
        return "MXNet misses a contradiction" if name in UNCHECKED else "sees a contradiction"
    if all(map(includes, chain(*ours[:3]), chain(*theirs[:3]))):
        return "infers more"
    return "listed" if name in LESS else "infers less"


def includes(ours: list[int], theirs: list[int]) -> bool:
    """Whether all that MXNet knows of a shape is known here."""
    return not theirs or (
        len(ours) == len(theirs) and all(m == n or n == 0 for m, n in zip(ours, theirs))
    )


def test_shapes_known_in_part(ours: Any):
    seen: dict[str, list[str]] = {}
    for row in infer_rows.rows():
        answer = as_stored(symbol_rows.answer(ours, row))
        seen.setdefault(kind_of_difference(row, answer, ANSWERS[row]), []).append(row)
    for wrong in ("misses a contradiction", "sees a contradiction", "infers less"):
        assert seen.get(wrong, []) == []
    assert len(seen[""]) > 2150 and len(seen["listed"]) < 160


#: What MXNet's Symbol shows and ours does not: handles of its C library, its NumPy interface,
#: backends for graphs.
NOT_OURS = "handle as_np_ndarray get_backend_symbol optimize_for debug_str gradient".split()


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
