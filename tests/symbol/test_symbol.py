"""Symbols: composition, inference, traced values, labels, names, pictures.

What MXNet says to hundreds of expressions is compared in `test_symbol_mxnet.py`; here is what
needs no MXNet, and what goes beyond it."""

from __future__ import annotations

import copy
import pickle
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import d2lmini
from d2lmini import gluon, nd, sym
from d2lmini.base import MXNetError
from d2lmini.draw.layers import GAP, place
from d2lmini.graph.ir import Node, topological
from d2lmini.graph.typed import infer_types
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Spec
from d2lmini.symbol import AttrScope, NameManager, NotImplementedForSymbol, Prefix, Traced
from d2lmini.symbol.infer import Conflict, merged, shapes_of
from d2lmini.symbol.picture import KINDS, Picture, kind_of


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


def test_unknown_names_say_why():
    with pytest.raises(AttributeError, match="sym has no 'nothing'"):
        sym.nothing
    with pytest.raises(AttributeError, match=r"sym\.contrib has no 'nothing'"):
        sym.contrib.nothing
    with pytest.raises(NotImplementedForSymbol, match="boolean_mask"):
        sym.contrib.boolean_mask(sym.var("x"), sym.var("m"))


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
        (lambda x: x + "one", TypeError, "expected an NDArray or a number"),
        (lambda x: x.reshape(), TypeError, "reshape: takes a shape"),
        (lambda x: x.gradient(["x"]), MXNetError, "not implemented for Symbols, in MXNet neither"),
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


def test_composition_leaves_the_old_graph_as_it_was():
    net, inner = mlp(), sym.exp(sym.var("data"), name="inner")
    whole = net(x=inner, name="whole")
    assert net.list_arguments()[0] == "x" and net.name == "fc2"
    assert whole.list_arguments()[0] == "data" and whole.name == "whole"
    assert whole.get_internals()["inner_output"]._entry == inner._entry  # shared, not copied
    x = nd.array([[1, 2, 3]])
    parameters = {
        name: nd.random.normal(shape=shape)
        for name, shape in zip(net.list_arguments(), net.infer_shape(x=(1, 3))[0])
        if name != "x"
    }
    a = net.eval(x=x.exp(), **parameters)[0].asnumpy()
    b = whole.eval(data=x, **parameters)[0].asnumpy()
    np.testing.assert_array_equal(a, b)


def test_pickles_and_copies():
    net = sym.Group([mlp(), sym.var("z", lr_mult=2, __mine__="1")])
    for other in (pickle.loads(pickle.dumps(net)), copy.copy(net), copy.deepcopy(net)):
        assert other.list_outputs() == net.list_outputs()
        assert other.list_arguments() == net.list_arguments()
        assert other.attr_dict() == net.attr_dict()


def test_debug_str_has_all_nodes():
    text = mlp().debug_str()
    assert "Op:FullyConnected, Name=fc1" in text and "Variable:fc2_bias" in text
    assert "\targ[1]=fc1_weight(0)" in text and "\tnum_hidden=5" in text


def test_a_deep_graph_needs_no_recursion():
    x = start = sym.var("x")
    for _ in range(3000):
        x = x + 1
    assert x.list_arguments() == ["x"] and len(x.get_internals()) == 3001
    assert x(x=sym.exp(start)).list_arguments() == ["x"]
    assert x.infer_shape(x=(2,)) == ([(2,)], [(2,)], [])


# --- labels and names ---


def test_labels_are_shared_with_the_node():
    x = sym.var("x")
    y = sym.exp(x)
    x._set_attr(lr_mult="3", mood="good")
    assert y.attr_dict()["x"] == {"lr_mult": "3", "__lr_mult__": "3", "mood": "good"}
    with pytest.raises(ValueError, match="attributes are strings, got mood=3"):
        x._set_attr(mood=3)


def test_parameters_of_a_node_get_its_labels():
    with AttrScope(ctx_group="first"):
        fc = sym.FullyConnected(sym.var("x"), num_hidden=2, name="fc", attr={"wd_mult": "0"})
    for name in ("fc_weight", "fc_bias", "fc"):
        assert fc.attr_dict()[name]["wd_mult"] == "0"
        assert fc.attr_dict()[name]["ctx_group"] == "first"
    assert "wd_mult" not in fc.attr_dict()["x"]


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


@given(sizes, sizes)
def test_what_is_merged_fits_both(a, b):
    try:
        c = merged(a, b)
    except Conflict:
        assert len(a) != len(b) or any(m and n and m != n for m, n in zip(a, b))
        return
    assert c == merged(b, a)
    for m, n, both in zip(a, b, c):
        assert both in (m, n) and (both or not (m or n))


@given(st.integers(1, 5), st.integers(1, 9), st.sets(st.integers(0, 1)))
def test_partial_shapes_never_contradict_full_ones(batch, width, unknown):
    net = sym.concat(mlp(), sym.var("y") * 2, dim=1).transpose().reshape((-1, 1))
    shape = (batch, width)
    full = net.infer_shape(x=shape, y=(batch, 3))
    known = tuple(0 if i in unknown else n for i, n in enumerate(shape))
    partial = net.infer_shape_partial(x=known)
    for rows, sure in zip(full, partial):
        for a, b in zip(rows, sure):
            assert b == () or merged(a, b) == a


def test_inference_agrees_with_what_runs():
    x = sym.var("data")
    x = sym.Convolution(x, kernel=(3, 3), num_filter=4, name="conv")
    x = sym.Pooling(sym.BatchNorm(x, name="bn").relu(), kernel=(2, 2), stride=(2, 2))
    net = sym.LayerNorm(sym.FullyConnected(x, num_hidden=6, name="fc"), name="ln")
    arguments, outputs, states = net.infer_shape(data=(2, 3, 8, 8))
    shapes = dict(zip(net.list_arguments() + net.list_auxiliary_states(), arguments + states))
    arrays = {name: nd.ones(shape) for name, shape in shapes.items()}
    assert shapes["conv_weight"] == (4, 3, 3, 3) and shapes["fc_weight"] == (6, 36)
    assert [y.shape for y in net.eval(**arrays)] == outputs == [(2, 6)]


def test_not_enough_is_a_warning_with_names():
    with pytest.warns(UserWarning, match=r"Cannot decide shape .* fc1_weight: None"):
        assert mlp().infer_shape() == (None, None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mlp().infer_shape_partial(x=(2, 0))[0][:3] == [(2, 0), (5, 0), (5,)]


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


def test_zeros_of_unknown_size_get_it_from_who_uses_them():
    state = sym.zeros((0, 4), name="state")
    net = sym.FullyConnected(sym.var("x"), num_hidden=4, name="fc") + state
    found = shapes_of(net._entries, {net.get_internals()["x"]._entry[0]: (5, 2)})
    assert found[state._entry] == (5, 4)
    x = nd.ones((5, 2))
    arrays = {"x": x, "fc_weight": nd.ones((4, 2)), "fc_bias": nd.zeros(4)}
    assert net.eval(**arrays)[0].asnumpy().tolist() == [[2.0] * 4] * 5
    with pytest.raises(MXNetError, match="node 'state': its size cannot be inferred"):
        state.eval()


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


def test_eval_of_random_nodes_draws_anew():
    noise = sym.random.uniform(0, 1, shape=(8,))
    a, b = noise.eval()[0].asnumpy(), noise.eval()[0].asnumpy()
    assert a.shape == (8,) and (a != b).any() and a.min() >= 0 and a.max() < 1
    picked, log = sym.random.multinomial(sym.var("p"), shape=5).eval(p=nd.array([0, 1]))
    assert picked.asnumpy().tolist() == [1] * 5 and log.asnumpy().tolist() == [0] * 5


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
    constants = {}

    def capture(array):
        node = Node(None, f"constant{len(constants)}", specs=(array._spec,))
        constants[node.name] = array.asnumpy()
        return node, 0

    from d2lmini.symbol.symbol import tracer

    tracer.capture = capture
    try:
        y = x[key]
    finally:
        tracer.capture = None
    wanted = nd.array(X)[key].asnumpy()
    assert y.shape == wanted.shape
    np.testing.assert_array_equal(value_of(y, x=X, **constants), wanted)


def test_traced_values_by_traced_indices():
    x, i, j = traced(X.shape), traced((2,), "int64", "i"), traced((2,), "int64", "j")
    wanted = X[[1, 3], [0, 2]]
    y = x[i, j]
    assert y.shape == (2, 2)
    found = value_of(y, x=X, i=np.array([1, 3]), j=np.array([0, 2]))
    np.testing.assert_array_equal(found, wanted)
    alone = value_of(x[i], x=X, i=np.array([1, 3]))
    np.testing.assert_array_equal(alone, X[[1, 3]])


def test_a_compiled_forward_takes_elements_and_rows():
    class Takes(gluon.HybridBlock):
        def forward(self, x):
            y = x[1:3] * 2 + x[0] - x[[0, 1]]
            z = x[:, None, 1] + y.sum() + x[nd.array([0, 2])].sum()
            return sum(row.exp() for row in x) + z.sum() + x.T[0, 1]

    net, x = Takes(), nd.random.uniform(shape=(4, 3))
    x.attach_grad()
    found = []
    for _ in range(2):
        with d2lmini.autograd.record():
            y = net(x)
        y.backward()
        found.append((y.asnumpy(), x.grad.asnumpy()))
        net.hybridize()
    for eager, compiled in zip(*found):
        np.testing.assert_allclose(compiled, eager, rtol=1e-5, atol=1e-5)


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


def test_batch_norm_writes_in_training_only():
    bn = sym.BatchNorm(sym.var("x"), name="bn")
    frozen = sym.BatchNorm(sym.var("x"), name="bn", use_global_stats=True)
    assert frozen.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    for symbol, training, wanted in ((bn, True, 2), (bn, False, 0), (frozen, True, 0)):
        shapes = {"x": (4, 3)}
        specs = {
            node: Spec(shapes.get(node.name, (3,)), "float32")
            for node in topological(symbol._entries)
            if node.op is None
        }
        _, [(node, _)] = infer_types(symbol._entries, specs, training)
        assert len(node.mutated) == wanted


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


def test_a_diamond_has_no_crossing_and_is_symmetric():
    places = place([40.0] * 6, [(0, 1), (0, 2), (1, 4), (2, 3), (3, 5), (4, 5)])
    assert (places.x[1] < places.x[2]) == (places.x[4] < places.x[3])
    assert places.x[0] == pytest.approx((places.x[1] + places.x[2]) / 2, abs=1)


def test_the_picture_says_what_the_graph_is():
    picture = mlp().picture(x=(7, 3))
    tree = ElementTree.fromstring(picture.svg)
    texts = ["".join(e.itertext()) for e in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("FullyConnected") == 2 and texts.count("relu") == 1
    assert "fc1, num_hidden=5" in texts and "weight 5 × 3, bias 5" in texts
    assert "7 × 5" in texts and "7 × 2" in texts
    titles = [e.text for e in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "x" and any("test_symbol.py" in title for title in titles)
    assert [node.name for node in picture.nodes] == ["x", "fc1", "relu0", "fc2"]


def test_a_notebook_shows_a_symbol_as_its_picture():
    assert "<svg" in mlp()._repr_svg_() and "num_hidden=5" in mlp()._repr_svg_()
    net = mlp()
    assert net._repr_svg_() == Picture(net).svg  # there is no chance in it
    x = sym.var("x")
    for _ in range(400):
        x = x + 1
    assert x._repr_svg_() is None
    with pytest.raises(MXNetError, match="a picture of 401 boxes is too large"):
        x.picture()


def test_kinds_of_work_differ_in_grey():
    x = sym.var("x")
    found = {
        "product": sym.dot(x, x), "many": sym.softmax(x), "each": sym.exp(x), "variable": x,
        "move": sym.transpose(x), "chance": sym.Dropout(x),
    }  # fmt: skip
    assert {kind: kind_of(symbol._entry[0]) for kind, symbol in found.items()} == {
        kind: kind for kind in KINDS
    }
    looks = set()
    for kind in KINDS.values():
        red, green, blue = (int(kind.fill[i : i + 2], 16) for i in (1, 3, 5))
        looks.add((round((0.3 * red + 0.59 * green + 0.11 * blue) / 12), kind.dashes))
    assert len(looks) == len(KINDS)


def test_a_compiled_forward_knows_its_device():
    class Asks(gluon.HybridBlock):
        def forward(self, x):
            return x.as_in_context(x.context)[:, 1:].T + nd.ones((1, len(x)), ctx=x.context)

    net = Asks()
    net.hybridize()
    x = nd.arange(6, ctx=d2lmini.cpu(1)).reshape((2, 3))
    for _ in range(2):
        assert net(x).context == d2lmini.cpu(1)
        assert net(x).asnumpy().tolist() == [[2, 5], [3, 6]]


def test_print_summary_counts_parameters(capsys):
    net = sym.BatchNorm(sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="c"))
    net = sym.FullyConnected(net + net, num_hidden=10, name="fc")
    net = sym.SoftmaxOutput(net, name="softmax")
    d2lmini.viz.print_summary(net, shape={"data": (2, 3, 8, 8)})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["c(Convolution)", "4x6x6", "112", "data"] in lines
    assert ["batchnorm0(BatchNorm)", "4x6x6", "8", "c"] in lines
    assert ["softmax(SoftmaxOutput)", "10", "0", "fc"] in lines
    assert ["Total", "params:", str(112 + 8 + 1450)] in lines
    d2lmini.viz.print_summary(net)
    assert "Total params: 14" in capsys.readouterr().out  # both biases
    with pytest.raises(TypeError, match="expected a Symbol, got int"):
        d2lmini.viz.plot_network(3)
    assert "4 × 6 × 6" in d2lmini.viz.plot_network(net, shape={"data": (2, 3, 8, 8)}).svg
