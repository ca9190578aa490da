"""Symbols as text: what is written, what comes back, what older versions wrote, errors.

`test_export_mxnet.py` compares with the real MXNet, where one is at hand.
"""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import symbol_values

from d2lmini import sym
from d2lmini.base import MXNetError


def lenet():
    x = sym.Convolution(sym.var("data"), kernel=(5, 5), num_filter=6, name="conv")
    x = sym.BatchNorm(x, fix_gamma=False, eps=1e-5, name="bn")
    x = sym.Pooling(sym.Activation(x, act_type="relu"), kernel=(2, 2), stride=(2, 2))
    x = sym.Dropout(sym.FullyConnected(sym.Flatten(x), num_hidden=10, name="fc"), p=0.2)
    return sym.softmax(x, name="softmax")


def rows(symbol):
    """The nodes of the text by name."""
    return {node["name"]: node for node in json.loads(symbol.tojson())["nodes"]}


def evaluate(symbol, seed=0, **shapes):
    """The Symbol on random numbers, the same for one name and shape."""
    values = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng([seed, *map(ord, name)])
        values[name] = rng.uniform(0.5, 1.5, shape).astype("float32")
    return symbol_values.evaluate(symbol, values)


def test_the_table_is_as_mxnet_has_it():
    table = json.loads(lenet().tojson())
    names = [node["name"] for node in table["nodes"]]
    assert names[:5] == ["data", "conv_weight", "conv_bias", "conv", "bn_gamma"]
    assert [names[i] for i in table["arg_nodes"]] == [
        n for n, node in zip(names, table["nodes"]) if node["op"] == "null"
    ]
    # A convolution shows one output, BatchNorm hides two, max pooling and Dropout one.
    ends = table["node_row_ptr"]
    counts = [b - a for a, b in pairwise(ends)]
    by_op = {node["op"]: n for node, n in zip(table["nodes"], counts)}
    assert (by_op["Convolution"], by_op["BatchNorm"], by_op["Dropout"]) == (1, 3, 2)
    assert (by_op["Pooling"], by_op["null"]) == (2, 1)
    assert table["heads"] == [[names.index("softmax"), 0, 0]]
    assert table["attrs"] == {"mxnet_version": ["int", 10901]}
    assert len(ends) == len(names) + 1


def test_attributes_are_texts_and_only_those_that_say_something():
    written = rows(lenet())
    assert written["conv"]["attrs"] == {"kernel": "(5, 5)", "num_filter": "6"}
    assert written["bn"]["attrs"] == {"eps": "1e-05", "fix_gamma": "False"}
    assert "attrs" not in written["data"]
    assert "attrs" not in written["softmax"]
    y = sym.cast(sym.slice(sym.var("x"), begin=(None, 1), end=(None, 2)), dtype="float16")
    attrs = {node["op"]: node.get("attrs") for node in rows(y).values()}
    assert attrs["slice"] == {"begin": "(None, 1)", "end": "(None, 2)"}
    assert attrs["Cast"] == {"dtype": "float16"}


def test_files(tmp_path):
    net = lenet()
    net.save(tmp_path / "net-symbol.json")
    assert sym.load(str(tmp_path / "net-symbol.json")).tojson() == net.tojson()
    with pytest.raises(OSError, match=r"nowhere\.json"):
        sym.load(tmp_path / "nowhere.json")


# -- ops that MXNet does not have ------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 5), (4, 3, 5)])
@pytest.mark.parametrize("sparse", [True, False])
def test_fused_losses_are_written_out(shape, sparse):
    x, t = sym.var("x"), sym.var("t")
    loss = sym._softmax_cross_entropy(x, t, sparse_label=sparse, scale=0.5, name="loss")
    shapes = {"x": shape, "t": shape[:-1] if sparse else shape}
    again = sym.load_json(loss.tojson())
    assert {n["op"] for n in rows(loss).values()} >= {"log_softmax", "mean"}
    assert again.list_outputs() == ["loss_output"]
    for a, b in zip(evaluate(loss, **shapes), evaluate(again, **shapes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    l2 = sym._squared_error(x, t, scale=0.25)
    shapes = {"x": shape, "t": shape}
    again = sym.load_json(l2.tojson())
    for a, b in zip(evaluate(l2, **shapes), evaluate(again, **shapes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize(
    "key",
    [
        (1, (0, 6, 2)),
        ((2, None, -1), None, 3),
        (None, (1, 3, 1), (0, 6, 2)),
        ((0, 3, 1), 5),
        (0, 1),
    ],
)
def test_reading_by_index_is_written_out(key):
    y = sym._getitem(sym.var("x"), key=key)
    again = sym.load_json(y.tojson())
    want, got = (evaluate(s, x=(3, 6))[0] for s in (y, again))
    np.testing.assert_array_equal(want, got, strict=True)


def test_an_op_of_ours_alone_is_refused_by_name():
    y = sym._relu_backward(sym.var("g"), sym.var("y"), name="back") + 1
    with pytest.raises(MXNetError, match=r"node 'back': MXNet has no op '_relu_backward'"):
        y.tojson()
    spread = sym._getitem(
        sym.var("x"), sym.var("i"), key=(("at", (2,)), ("at", (2,))), name="pairs"
    )
    with pytest.raises(MXNetError, match=r"'pairs'.*use take or pick"):
        spread.tojson()


# -- errors ----------------------------------------------------------------------------------------


def table_of(**change):
    node = {"op": "relu", "name": "y", "inputs": [[0, 0, 0]], **change}
    return json.dumps(
        {"nodes": [{"op": "null", "name": "x", "inputs": []}, node], "heads": [[1, 0, 0]]}
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "not JSON"),
        ("[1, 2]", "no 'nodes'"),
        (table_of(op="Unheard"), "node 'y'.*the op 'Unheard' is none"),
        (table_of(op="sum", attrs={"speed": "3"}), "node 'y'.*unknown argument 'speed'"),
        (table_of(op="clip", attrs={"a_min": "low", "a_max": "1"}), "node 'y'.*a_min='low'"),
        (table_of(op="clip", attrs={"a_min": "0"}), "node 'y'.*'a_max' is required"),
        (table_of(inputs=[[0, 0, 0], [0, 0, 0]]), "node 'y'.*relu takes 1 inputs, got 2"),
        (table_of(inputs=[[7, 0, 0]]), "node 'y', number 1, is not as MXNet writes it"),
        (table_of(inputs=3), "node 'y', number 1, is not as MXNet writes it"),
    ],
)
def test_errors_say_which_node(text, words):
    with pytest.raises(MXNetError, match=words):
        sym.load_json(text)
