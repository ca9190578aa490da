"""Symbols: composition, inference, traced values, labels, names, pictures.

What MXNet says to hundreds of expressions stands in `data/nd_programs/symbols.txt`; here is what
needs no MXNet, and what goes beyond it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import d2lmini
from d2lmini import gluon, nd, sym
from d2lmini.base import MXNetError
from d2lmini.draw.layers import GAP, place
from d2lmini.graph.ir import Node
from d2lmini.graph.symbolic_trace import SymbolicTrace
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Spec
from d2lmini.symbol import NameManager, NotImplementedForSymbol, Prefix, Traced


@pytest.fixture(autouse=True)
def names():
    with NameManager():
        yield


def mlp():
    hidden = sym.relu(sym.FullyConnected(sym.var("x"), num_hidden=5, name="fc1"))
    return sym.FullyConnected(hidden, num_hidden=2, name="fc2")


def traced(shape, dtype="float32", name="x"):
    return Traced(((Node(None, name, specs=(Spec(shape, dtype),)), 0),))


def value_of(y: Traced, **arrays):
    """What a traced value is for these NumPy arrays."""
    return y.eval(**{k: nd.array(v, dtype=v.dtype) for k, v in arrays.items()})[0].asnumpy()


# --- the namespace ---


def test_every_function_of_nd_is_in_sym():
    for name, op in registry.items():
        if not name.startswith("_"):
            function = getattr(sym, name)
            assert callable(function) and function.__name__ == name and op.usage in function.__doc__
    assert set(dir(sym.linalg)) <= set(dir(nd.linalg)) | {"syevd"}
    assert sym.op.relu(sym.var("x")).name == "relu0"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: sym.relu(nd.ones(2)), TypeError, "relu: expected Symbols, got NDArray"),
        (lambda x: sym.concat(), TypeError, "concat: expected at least one Symbol"),
        (lambda x: sym.relu(x, out=x), MXNetError, "relu: out= is not supported for Symbols"),
        (lambda x: sym.FullyConnected(x), TypeError, "FullyConnected: attribute 'num_hidden' is"),
        (lambda x: sym.FullyConnected(x, num_hidden="a"), MXNetError, "num_hidden='a' does not"),
        (lambda x: sym.sum(x, nothing=3), TypeError, "sum: unknown argument 'nothing'"),
        (lambda x: sym.dot(x, x, rhs=x), TypeError, "input 'rhs' was given twice"),
        (lambda x: sym.relu(sym.split(x, num_outputs=2)), MXNetError, "has 2 outputs and one is"),
        (lambda x: sym.var("v", stype="csr"), MXNetError, "'csr' is left out"),
        (lambda x: sym.var("v", dtype="complex64"), MXNetError, "complex64 is not one of"),
        (lambda x: x + "one", TypeError, "expected arrays or numbers"),
        (lambda x: x.reshape(), TypeError, "reshape: takes a shape"),
        (lambda x: x.gradient(["x"]), AttributeError, "Executor.backward computes gradients"),
        (lambda x: x.shape, AttributeError, "not known before it runs"),
        (lambda x: x.nothing, AttributeError, "'Symbol' object has no attribute 'nothing'"),
        (lambda x: float(x), NotImplementedForSymbol, "float is not implemented"),
        (lambda x: x.asnumpy(), NotImplementedForSymbol, "asnumpy is not implemented"),
        (lambda x: x.backward(), NotImplementedForSymbol, "backward is not implemented"),
        (lambda x: x.__setitem__(0, 1), NotImplementedForSymbol, "value is not implemented"),
    ],
)
def test_errors_name_the_op_and_the_argument(call, error, words):
    with pytest.raises(error) as caught:
        call(sym.var("x"))
    assert words in str(caught.value)


# --- composition, copies, text ---


# --- labels and names ---


def test_blocks_and_nodes_count_together():
    assert NameManager.current.get(None, "dense") == "dense0"
    assert gluon.nn.Dense(2).name == "dense1"
    assert NameManager.current._counter == {"dense": 2}
    with NameManager():
        assert gluon.nn.Dense(2).name == "dense0"
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        assert sym.exp(sym.var("x")).name == "net_exp0" and gluon.nn.Dense(2).name == "net_dense0"
    with Prefix("p_"):
        assert (sym.var("x") + 1).name == "p__plusscalar0"
        assert sym.exp(sym.var("x"), name="e").name == "p_e"
        assert sym.FullyConnected(sym.var("x"), num_hidden=1, name="fc").list_arguments()[1] == (
            "p_fc_weight"
        )


# --- inference ---

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


def test_a_conflict_names_node_and_line():
    with pytest.raises(MXNetError) as caught:
        mlp().infer_shape(x=(2, 3), fc2_weight=(2, 4))
    text = str(caught.value)
    assert "FullyConnected in node 'fc2', made at" in text and "test_symbol.py" in text
    assert "weight: expected (2, 5), got (2, 4)" in text
    with pytest.raises(MXNetError, match=r"dot in node 'd', made at .*: dot: "):
        sym.dot(sym.var("a"), sym.var("b"), name="d").infer_shape(a=(2, 3), b=(4, 5))
    with pytest.raises(MXNetError, match="dtypes differ: "):
        (sym.var("a") + sym.var("b")).infer_type(a="float32", b="int32")


def test_operands_of_one_shape_tell_each_other():
    a, b = sym.var("a"), sym.var("b")
    for c in (a + b, a == b, sym.maximum(a, b)):
        assert c.infer_shape(a=(2, 3)) == ([(2, 3), (2, 3)], [(2, 3)], [])
        with pytest.raises(MXNetError, match=r"rhs: expected \(2, 3\), got \(3,\)"):
            c.infer_shape(a=(2, 3), b=(3,))
    assert sym.FullyConnected(a - b, num_hidden=1).infer_shape(b=(4, 7))[0][0] == (4, 7)
    assert sym.broadcast_add(a, b).infer_shape(a=(2, 3), b=(3,))[1] == [(2, 3)]
    assert (traced((2, 3)) + traced((3,))).shape == (2, 3)  # where the shapes are known


# --- eval ---


def test_eval_gives_arrays_and_names_what_is_wrong():
    net = mlp()
    with pytest.raises(ValueError, match="eval: x must be an NDArray, got NoneType; give"):
        net.eval()
    with pytest.raises(TypeError, match="eval: x must be an NDArray, got list"):
        net.eval(**{**dict.fromkeys(net.list_arguments(), nd.ones(1)), "x": [1.0]})
    arrays = dict.fromkeys(net.list_arguments(), nd.ones((2, 3)))
    with pytest.raises(MXNetError, match=r"FullyConnected in node 'fc1', made at"):
        net.eval(**arrays)
    with d2lmini.autograd.record():
        x = nd.ones(3)
        x.attach_grad()
        assert sym.Dropout(sym.var("x")).eval(x=x)[0].asnumpy().tolist() == [1, 1, 1]


# --- traced values ---

X = np.arange(24, dtype="float32").reshape(4, 3, 2)

KEYS = [
    0, -1, slice(1, 3), slice(None, None, 2), slice(None, None, -1), (slice(None), 1), (1, 2),
    (slice(None), None), None, Ellipsis, (..., 0), (slice(1, 3), slice(None), 1), (0, ..., None),
    [0, 2], (slice(None), [2, 0]), ([0, 1], [1, 2]), (slice(None), np.array([[0, 1], [2, 2]])),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_traced_values_are_indexed_as_arrays_are(key):
    """The shape is known at once; the values are those of the array."""
    x = traced(X.shape)
    trace = SymbolicTrace((), (), True)
    y = trace.run(lambda: x[key])
    constants = {node.name: array.asnumpy() for node, array in trace.uses.items()}
    wanted = nd.array(X)[key].asnumpy()
    assert y.shape == wanted.shape
    np.testing.assert_array_equal(value_of(y, x=X, **constants), wanted)


def test_traced_values_act_like_arrays():
    x = traced((4, 3))
    assert (len(x), x.size, x.ndim, x.dtype, x.stype) == (4, 12, 2, np.float32, "default")
    assert x.context == x.ctx == d2lmini.cpu() and x.as_in_context(d2lmini.cpu()) is x
    assert x.T.shape == (3, 4) and x.reshape(2, -1).shape == (2, 6)
    assert x.expand_dims(0, inplace=True).shape == (1, 4, 3) and x.flatten().shape == (4, 3)
    assert x.astype("float16").dtype == np.float16 and x.astype("float32", copy=False) is x
    rows = list(x)
    assert len(rows) == 4 and all(isinstance(r, Traced) and r.shape == (3,) for r in rows)
    a, *_ = sym.split(x, num_outputs=3, axis=1)
    assert a.shape == (4, 1) and len(sym.split(x, num_outputs=3, axis=1)) == 3
    assert x[:] is x and x[...] is x
    assert sum(rows).shape == (3,) and x.detach().shape == (4, 3)


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda x: x[4], IndexError, "out of bounds"),
        (lambda x: x[0, 0, 0], IndexError, "too many indices"),
        (lambda x: x["a"], ValueError, "cannot be indexed by 'a'"),
        (lambda x: x.as_in_context(d2lmini.gpu(0)), MXNetError, "a compiled net runs on one"),
        (lambda x: x.__setitem__(slice(None), 0), NotImplementedForSymbol, "value is not"),
        (lambda x: bool(x), NotImplementedForSymbol, "run it imperatively"),
        (lambda x: len(x.sum(axis=(0, 1)).reshape(())), (TypeError, MXNetError), ""),
        (lambda x: sym.dot(x, x), MXNetError, "dot: inner sizes differ"),
    ],
)
def test_traced_values_refuse_at_the_line(use, error, words):
    with pytest.raises(error) as caught:
        use(traced((4, 3)))
    assert words in str(caught.value)


# --- pictures ---


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 14))
    widths = draw(st.lists(st.floats(10, 200), min_size=n, max_size=n))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=25))
    return widths, [(a, b) for a, b in edges if a < b]


@given(graphs())
def test_boxes_stand_apart_and_data_flows_down(graph):
    widths, edges = graph
    places = place(widths, edges)
    for a, b in edges:
        assert places.row[a] < places.row[b]
        assert len(places.bends.get((a, b), ())) == places.row[b] - places.row[a] - 1
    for i, (x, w) in enumerate(zip(places.x, widths)):
        assert x - w / 2 > -0.1
        for j in range(i):
            if places.row[i] == places.row[j]:
                assert abs(x - places.x[j]) >= (w + widths[j]) / 2 + GAP - 0.2


def test_the_picture_says_what_the_graph_is():
    picture = mlp().picture(x=(7, 3))
    tree = ElementTree.fromstring(picture.svg)
    texts = ["".join(e.itertext()) for e in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("FullyConnected") == 2 and texts.count("relu") == 1
    assert "fc1, num_hidden=5" in texts and "weight 5 × 3, bias 5" in texts
    assert "7 × 5" in texts and "7 × 2" in texts
    titles = [e.text for e in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "x" and any("test_symbol.py" in title for title in titles)
    assert len(re.findall("<rect", picture.svg)) >= 4
