"""Indices that are far outside, infinite or nan: every op that takes some ends, with these results.

Floats become int64 as in C++ on x86: nan, infinities and numbers beyond are the least integer.
"""

from __future__ import annotations

import pytest

import d2lmini as mx
from d2lmini import MXNetError, nd

INDICES = {
    "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "1e30": 1e30, "2**62": 2.0**62,
    "-2**62": -(2.0**62), "1e9": 1e9, "-7": -7.0, "-1": -1.0, "2.9": 2.9,
}  # fmt: skip
FIRST, LAST = [10.0], [30.0]
#: What is taken of [10, 20, 30] for each of the indices.
CLIPPED = [FIRST] * 4 + [LAST, FIRST, LAST, FIRST, FIRST, LAST]
WRAPPED = [[[10.0, 20.0, 30.0][n % 3]] for n in
           [-(2**63)] * 4 + [2**62, -(2**62), 10**9, -7, -1, 2]]  # fmt: skip
CHECKED = [IndexError] * 8 + [LAST, LAST]
#: A call of `i`, an array of one index, on `x`: [10, 20, 30], and `row`, the same as (1, 3).
TABLE = {
    "nd.take(x, i)": CLIPPED,
    "nd.take(x, i, mode='wrap')": WRAPPED,
    "nd.take(x, i, mode='raise')": [MXNetError] * 9 + [LAST],
    "nd.pick(row, i)": CLIPPED,
    "nd.pick(row, i, mode='wrap')": WRAPPED,
    "nd.choose_element_0index(row, i)": CLIPPED,
    "nd.Embedding(i, x.reshape((3, 1)), input_dim=3, output_dim=1).reshape(-1)": CLIPPED,
    "nd.one_hot(i, depth=3).sum(axis=1)": [[0.0]] * 9 + [[1.0]],
    "x[i]": CHECKED,
    "nd.SequenceLast(x.reshape((3, 1)), i, use_sequence_length=True)":
        [FIRST] * 4 + [LAST, FIRST, LAST, FIRST, FIRST, [20.0]],
    "nd.SequenceMask(x.reshape((3, 1)), i, use_sequence_length=True).sum()":
        [[0.0]] * 4 + [[60.0], [0.0], [60.0], [0.0], [0.0], LAST],
    "nd.SequenceReverse(x.reshape((3, 1, 1)), i, use_sequence_length=True)[0]":
        [[FIRST]] * 4 + [[LAST], [FIRST], [LAST], [FIRST], [FIRST], [[20.0]]],
}  # fmt: skip


def call(text: str, number: float, how: str) -> object:
    """The result as a list, or the class of the error."""
    x, i = nd.array([10, 20, 30]), nd.array([number])

    class Net(mx.gluon.HybridBlock):
        def forward(self, x, i):
            return eval(text, {"nd": nd, "x": x, "i": i, "row": x.reshape((1, 3))})

    net = Net()
    if how == "hybridized":
        net.hybridize()
    try:
        return net(x, i).asnumpy().tolist()
    except (MXNetError, IndexError) as problem:
        return type(problem)


@pytest.mark.parametrize("how", ["eager", "hybridized"])
@pytest.mark.parametrize("text", TABLE)
def test_every_index_path_ends(text: str, how: str):
    found = {name: call(text, number, how) for name, number in INDICES.items()}
    for (name, result), wanted in zip(found.items(), TABLE[text], strict=True):
        same = issubclass(result, wanted) if isinstance(wanted, type) else result == wanted
        assert same, f"{text} with {name}: {result}, not {wanted}"
