"""Passes keep the meaning of a graph, and a graph stays one: random graphs and chosen ones."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import Graph, check_same, evaluate, graphs
from hypothesis import given
from hypothesis import strategies as st

from d2lmini import sym
from d2lmini.autograd.scopes import scope
from d2lmini.graph import passes
from d2lmini.graph import typed as checker
from d2lmini.graph.ir import Draw, Node, topological
from d2lmini.graph.passes import simplify
from d2lmini.graph.typed import GraphError, graph_of, verify
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Spec
from d2lmini.symbol.symbol import Traced


def ops(outputs):
    """The names of the ops of a graph, in order."""
    return [node.op.name for node in topological(outputs) if node.op is not None]


def variables(outputs):
    """Its variables."""
    return [node for node in topological(outputs) if node.op is None]


def traced(shape, dtype="float32", name="x"):
    """A variable as a traced value."""
    return Traced(((Node(None, name, specs=(Spec(shape, dtype),)), 0),))


# -- random graphs ---------------------------------------------------------------------------------


@given(graphs())
def test_a_random_graph_is_one_and_runs(graph):
    joint = graph.with_gradients()
    verify(joint.variables, joint.outputs)
    evaluate(joint.variables, joint.outputs, joint.arrays(), joint.keys())


@given(graphs(), st.booleans())
def test_every_pass_keeps_meaning(graph, joint):
    """One after the other, as `simplify` runs them: forward, or with the gradients."""
    if joint:
        graph = graph.with_gradients()
    current = graph.outputs
    for pass_ in passes.PASSES:
        after = pass_(current)
        verify(graph.variables, after, like=current)
        check_same(graph, current, after, tolerance=0)
        current = after


@given(graphs(), st.booleans())
def test_simplified_graphs_mean_the_same(graph, joint):
    if joint:
        graph = graph.with_gradients()
    after = simplify(graph.outputs)
    verify(graph.variables, after, like=graph.outputs)
    check_same(graph, graph.outputs, after, tolerance=0)
    assert simplify(after) == after  # the same nodes: nothing was left to do
    assert len(topological(after)) <= len(topological(graph.outputs))


# -- what each pass finds: an expression, and the ops that are left of it --------------------------

x, y = sym.var("x"), sym.var("y")
SMALLER = [
    # identities
    ("copies", x.copy().exp(), "exp"),
    ("no gradient, no copy", sym.make_loss(sym.BlockGrad(x)), ""),
    ("same dtype", sym.cast(x, dtype="float32").exp(), "exp"),
    ("times one", (x * 1) / 1 - 0, ""),
    ("plus zero", x + 0, "_plus_scalar"),
    ("plus minus zero", x + -0.0, ""),
    ("to the first", x**1, ""),
    ("backwards", sym.slice(x, begin=(None,), end=(None,), step=(-1,)), "slice"),
    ("dropout of a prediction", sym.Dropout(x, p=0.5), ""),
    ("dropout always", sym.Dropout(x, p=0.5, mode="always"), "Dropout"),
    ("dropout of nothing", sym.Dropout(x, p=0, mode="always"), ""),
    ("a known choice", sym.where(sym.ones((2, 6)), x, x + 1), ""),
    # views
    ("one reshape", x.reshape((3, 4)).expand_dims(axis=0).reshape((2, 6, 1)), "reshape"),
    ("to the same", x.reshape((3, 4)).reshape((2, 6)), ""),
    ("one transpose", sym.transpose(sym.transpose(x.reshape((3, 2, 2)), axes=(0, 2, 1)),
                                    axes=(1, 0, 2)), "reshape transpose"),
    ("no transpose", sym.swapaxes(sym.transpose(x), dim1=0, dim2=1), ""),
    ("only ones move", sym.transpose(x.reshape((2, 1, 6)), axes=(1, 0, 2)), "reshape"),
    ("a sum of one", sym.sum(x.expand_dims(axis=1), axis=1), "reshape sum"),
    ("of what is spread out", sym.exp(sym.broadcast_to(y.reshape((1, 6)), shape=(2, 6))),
     "reshape exp broadcast_to"),
    # constants
    ("of nothing", sym.exp(sym.zeros((2, 3))) * 2, "_graph_constant"),
    ("like", sym.zeros_like(x.exp()), "_graph_constant"),
    ("a known sum", sym.sum(sym.ones((2, 3)), axis=0), "_graph_constant"),
    ("a known range", sym.arange(6) * 2 + 1, "_graph_constant"),
    # simpler forms
    ("plus ones", x + sym.ones((2, 6)), "_plus_scalar"),
    ("from ones", sym.broadcast_sub(sym.ones((1, 6)), x), "_rminus_scalar"),
    ("at least zeros", sym.broadcast_maximum(sym.zeros((2, 6)), x), "_graph_constant _maximum"),
    ("a number that wraps", sym.cast(x, dtype="uint8") + sym.full((2, 6), 300, dtype="uint8"),
     "cast _plus_scalar"),
    ("a larger one", sym.broadcast_add(sym.ones((3, 1, 1)), x), "_graph_constant broadcast_add"),
    ("equal shapes", x + x.exp(), "exp elemwise_add"),
    ("minus", x.exp() + sym.negative(x), "exp negative elemwise_add"),
    ("squared", x * x + x**2, "square _power_scalar elemwise_add"),
    ("a family's member", sym.Activation(x, act_type="tanh"), "tanh"),
    # common parts
    ("twice", x.exp() * x.exp(), "exp square"),
    ("twice, turned round", (x + x.sin()) * (x.sin() + x), "sin elemwise_add square"),
    ("not turned round", sym.Group([sym.broadcast_maximum(x, x.sin()), sym.maximum(x.sin(), x)]),
     "sin _maximum _maximum"),
    ("two draws", sym.Dropout(x, mode="always") + sym.Dropout(x, mode="always"),
     "Dropout Dropout elemwise_add"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("symbol", "left"), [row[1:] for row in SMALLER], ids=[r[0] for r in SMALLER]
)
def test_what_is_left(symbol, left):
    before = graph_of(symbol, x=(2, 6), y=(6,))
    after = simplify(before)
    verify(variables(before), after, like=before)
    assert ops(after) == left.split()
    check_same(Graph(variables(before), before, False), before, after)


# -- constants -------------------------------------------------------------------------------------


def test_minus_zero_is_not_lost():
    v = traced((2,))
    for made in ((v + 0)._entries, (0 - v)._entries, (v * -1)._entries, (v - 0)._entries):
        arrays = [np.array([-0.0, 0.0], "float32")]
        expected, _ = evaluate([v._entry[0]], made, arrays, [])
        got, _ = evaluate([v._entry[0]], simplify(made), arrays, [])
        assert got[0].tobytes() == expected[0].tobytes()


# -- variables that change -------------------------------------------------------------------------


def norm(data, states):
    """BatchNorm in training mode, which changes its moving statistics."""
    with scope(False, True):
        return registry["BatchNorm"](data, *states)


@pytest.fixture
def states():
    names = ("gamma", "beta", "moving_mean", "moving_var")
    return [traced((3,), name=name) for name in names]


def run(outputs):
    """Outputs, and what variables hold afterwards."""
    known = variables(outputs)
    graph = Graph(known, list(outputs), True)
    results, held = evaluate(known, outputs, graph.arrays(), graph.keys())
    return results, {node.name: array for node, array in zip(known, held)}


def test_reads_before_and_after_a_change_are_two(states):
    """The moving mean is read, changed, and read again: the two copies differ, and stay."""
    data, mean = traced((2, 3)), states[2]
    early = mean * 2
    changed = norm(data, states)
    late = mean * 2
    outputs = [early._entry, changed._entry, late._entry]
    results, held = run(outputs)
    assert not np.array_equal(results[0], results[2])
    after = simplify(outputs)
    verify(variables(outputs), after, like=outputs)
    assert ops(after).count("_mul_scalar") == 2
    again, held_again = run(after)
    for a, b in zip([*results, *held.values()], [*again, *held_again.values()]):
        np.testing.assert_array_equal(a, b)


def test_a_rewriting_that_would_lose_or_move_a_change_is_not_done(states):
    data, mean = traced((1, 3)), states[2]
    total = mean.expand_dims(axis=0).sin() + norm(data, states).exp()
    outputs = [total._entry]
    (add, _) = total._entry
    read = (mean.expand_dims(axis=0) * 2)._entry
    for op, value in [
        ("exp", data._entry),  # nothing would change the mean any more
        ("exp", read),  # the mean would be read later
        (add.op.name, passes.call(add.op, add.inputs[::-1], add)),  # and before it is changed
    ]:
        after = passes.rewritten(outputs, lambda n, op=op, v=value: v if n.op.name == op else None)
        assert after == outputs


# -- verify ----------------------------------------------------------------------------------------


def test_verify_names_the_node_that_is_wrong():
    v = traced((2, 3))
    node = v._entry[0]
    exp = v.exp()._entry[0]
    other = traced((2, 4), name="other")._entry
    two = Node(None, "two", specs=(Spec((2,), "float32"),) * 2)
    drop = registry["Dropout"](v, p=0.5)._entry[0]

    def like(node, **changes):
        parts = {k: getattr(node, k) for k in ("op", "name", "inputs", "attrs", "specs")}
        return [(Node(**{**parts, "name": "bad", **changes}), 0)]

    circle = Node(exp.op, "bad", exp.inputs, exp.attrs, exp.specs)
    circle.inputs = ((circle, 0),)
    times = (v * 2)._entry[0]
    half = registry["split"](v, num_outputs=3, axis=1)._entries[0][0]
    keyed = {**drop.attrs, "rng": Draw(0)}
    twice = [*like(drop, attrs=keyed, name="first"), *like(drop, attrs=dict(keyed))]
    faults = [
        ([node], like(exp, specs=(Spec((2, 3), "float64"),)), r"bad: exp gives \(2, 3\) float32"),
        ([node], like(exp, specs=None), "bad: its specs are not known"),
        ([node], like(exp, inputs=(other,)), "other: the variable is not among the inputs"),
        ([node], like(exp, inputs=((exp, 1),)), "bad: .* has no output 1"),
        ([node], [(half, 3)], "split.*: has no output 3"),
        ([node], [(circle, 0)], "bad: a circle with bad"),
        ([node], like(times, attrs={}), "bad: attribute 'scalar' of _mul_scalar is not bound"),
        ([node], like(exp, attrs={"scalar": 2}), "bad: exp has no attribute 'scalar'"),
        ([node, node], [(exp, 0)], "x: two variables have this name"),
        (
            [node],
            like(drop, attrs={**drop.attrs, "rng": Draw(-1)}),
            r"rng=keys\[-1\] is no key that a call has",
        ),
        ([node], twice, "bad: draws with the key of first"),
        ([two], [(two, 0)], "two: a variable is one value"),
    ]
    for known, outputs, message in faults:
        with pytest.raises(GraphError, match=message):
            verify(known, outputs)
    for like_this, message in [
        ([], "outputs: 1 instead of 0"),
        ([other], r"exp.* is .*, and other was"),
    ]:
        with pytest.raises(GraphError, match=message):
            verify([node], [(exp, 0)], like_this)
    verify([node, other[0]], [(exp, 0), (half, 2), other])


def test_passes_are_checked_when_asked(monkeypatch):
    """As with D2LMINI_VERIFY: a pass that breaks the graph is found out at once."""
    v = traced((3,))

    def broken(outputs):
        node = outputs[0][0]
        return [(Node(node.op, "bad", node.inputs, node.attrs, (Spec((4,), "float32"),)), 0)]

    monkeypatch.setattr(checker, "checking", True)
    with pytest.raises(GraphError, match="bad: exp gives"):
        simplify(v.exp()._entries, [broken])
