"""Every name that MXNet programs use of NDArray, called once: `data/api_names.txt`, a table.

A line is `expression => value`, in the language of MXNet's own users, so the same lines run in the
real MXNet 1.9.1, where one is at hand. The names stand for:

    x = [[1, 2], [3, 4]]    v = [3, 1, 2]    r = [[1, 3]]    h = [0.5, 0.25]    s = [-1.5, 0.5, 2.5]
    img = [[[[1, 2], [3, 4]]]]    tmp: the name of a file
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import api_rows
import pytest
from oracle import Oracle

import d2lmini as mx
from d2lmini import nd

TABLE = (Path(__file__).parents[1] / "data" / "api_names.txt").read_text(encoding="utf-8")
ROWS = [tuple(line.split(" => ")) for line in TABLE.splitlines() if " => " in line]


@pytest.mark.parametrize(("expression", "value"), ROWS, ids=[row[0] for row in ROWS])
def test_the_name_works(expression: str, value: str, tmp_path: Path):
    result = api_rows.evaluate(mx, expression, str(tmp_path / "file"))
    assert_alike(result, ast.literal_eval(value))


def assert_alike(result: Any, value: Any) -> None:
    """Numbers to four digits, all else exactly."""
    if isinstance(value, dict):
        assert result.keys() == value.keys()
        result, value = list(result.values()), list(value.values())
    if isinstance(value, list):
        assert len(result) == len(value)
        for each, want in zip(result, value, strict=True):
            assert_alike(each, want)
    else:
        assert result == (pytest.approx(value, rel=1e-3) if isinstance(result, float) else value)


# -- names that are not here -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("image", "left out of d2lmini, as all of MXNet's image operations"),
        ("ROIPooling", "operations for detection"),
        ("contrib.MultiBoxPrior", "operations for detection"),
        ("contrib.box_nms", "operations for detection"),
        ("sparse.getnnz", "sparse arrays"),
        ("contrib.quantized_conv", "quantization"),
        ("histogram", r"np.histogram\(x.asnumpy\(\)\)"),
        ("contrib.group_adagrad_update", "sparse arrays"),
        ("contrib.multi_lamb_update", "all parameters in one task"),
        ("linalg.frobnicate", "nd.linalg has no 'frobnicate'"),
        ("random.frobnicate", "frobnicate"),
    ],
)
def test_a_name_that_is_not_here_says_why(name: str, says: str):
    target: Any = nd
    *spaces, last = name.split(".")
    for space in spaces:
        target = getattr(target, space)
    with pytest.raises(AttributeError, match=says):
        getattr(target, last)


# -- beside the real MXNet -------------------------------------------------------------------------

# Its own inner works, and what next to no program uses.
UNEXPLAINED = {
    "nd": """get_indexing_dispatch_code get_oshape_of_gather_nd_op SVMOutput
        indexing_key_expand_implicit_axes register utils gen_* IdentityAttachKLSparseReg""",
    "nd.NDArray": "handle writable",
    "nd.random": "current_context numeric_types",
    "nd.linalg": "",
    "nd.contrib": """BatchNormWithReLU backward_* count_sketch current_context fft ifft
        gradientmultiplier hawkesll interleaved_matmul_* math mx ndarray np rand_zipfian round_ste
        sign_ste uniform""",
}


OWN = [row for row in ROWS if f"{row[0]} => " in TABLE.split("# beyond MXNet")[0]]


@pytest.mark.parametrize(("expression", "value"), OWN, ids=[row[0] for row in OWN])
def test_the_table_is_true_of_mxnet(expression: str, value: str, mxnet: Oracle, tmp_path: Path):
    answer = mxnet.ask(api_rows.evaluate, expression, str(tmp_path / "file"))
    assert_alike(answer, ast.literal_eval(value))


def names_in(mx, space):
    return dir(eval(space, {"nd": mx.nd}))


@pytest.mark.parametrize("space", UNEXPLAINED)
def test_every_other_name_of_mxnet_is_here_or_explained(space: str, mxnet: Oracle):
    names = mxnet.ask(names_in, space)
    ours = nd.ones(1) if space == "nd.NDArray" else eval(space)
    rare = re.compile("|".join(UNEXPLAINED[space].replace("*", ".*").split()) or "$^")
    missing = []
    for name in names:
        try:
            if not name.startswith("_") and not rare.fullmatch(name):
                getattr(ours, name)
        except AttributeError as problem:
            if not re.search("left out|not built yet", str(problem)):
                missing.append(name)
    assert len(names) > 20 and not missing
