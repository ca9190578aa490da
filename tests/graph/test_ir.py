"""The graph kit: nodes, `transform`, `interpret`; deep graphs and long chains."""

from __future__ import annotations

import random

import pytest

from d2lmini import nd, sym
from d2lmini.graph.backward import cut_graph, recompute, residuals
from d2lmini.graph.ir import Node, interpret, mutated_by, topological, transform, variables_of
from d2lmini.graph.passes import simplify
from d2lmini.graph.symbolic_trace import plain
from d2lmini.graph.typed import graph_of
from d2lmini.ops.core import registry
from d2lmini.symbol import Symbol
from d2lmini.symbol.evaluate import evaluate

NEGATIVE, ADD = registry["negative"], registry["broadcast_add"]


def drawn(seed: int) -> tuple[list[Node], list]:
    """A random graph of sums over three variables: its nodes and some outputs."""
    rng = random.Random(seed)
    nodes = [Node(None, name) for name in "xyz"]
    for i in range(rng.randrange(1, 12)):
        op = rng.choice([NEGATIVE, ADD])
        inputs = tuple((rng.choice(nodes), 0) for _ in range(1 if op is NEGATIVE else 2))
        nodes.append(Node(op, f"n{i}", inputs))
    return nodes, [(rng.choice(nodes), 0) for _ in range(rng.randrange(1, 4))]


def calculate(node: Node, inputs: list[float]) -> list[float]:
    if node.op is None:
        return [float(ord(node.name))]
    return [-inputs[0] if node.op is NEGATIVE else inputs[0] + inputs[1]]


def naive(entry) -> float:
    """The value of an entry, by recursion."""
    return calculate(entry[0], [naive(e) for e in entry[0].inputs])[0]


@pytest.mark.parametrize("seed", range(50))
def test_interpret_and_transform_agree_with_recursion(seed):
    _, outputs = drawn(seed)
    assert interpret(outputs, calculate) == [naive(entry) for entry in outputs]

    def drop_double_signs(node, inputs):
        inner = inputs[0][0] if node.op is NEGATIVE else None
        return [inner.inputs[0]] if inner is not None and inner.op is NEGATIVE else None

    after = transform(outputs, drop_double_signs)
    assert interpret(after, calculate) == interpret(outputs, calculate)
    for node in topological(after):
        assert node.op is not NEGATIVE or node.inputs[0][0].op is not NEGATIVE
    given = {(node, 0): (Node(None, "q"), 0) for node in variables_of(outputs)}
    assert {node.name for node in variables_of(transform(outputs, given=given))} <= {"q"}


@pytest.mark.parametrize("seed", range(20))
def test_what_a_rule_leaves_is_the_same_object(seed):
    _, outputs = drawn(seed)
    seen = []
    after = transform(outputs, lambda node, inputs: seen.append((node, inputs)))
    assert after == outputs
    assert [node for node, _ in seen] == topological(outputs)
    assert all(node.inputs == inputs for node, inputs in seen)


def test_the_nodes_of_a_graph_are_never_changed():
    x = Node(None, "x")
    y = Node(ADD, "y", ((x, 0), (x, 0)), {}, labels={"a": "b"}, site="here")
    z = y.replace(name="z", inputs=((x, 0), (y, 0)))
    assert (y.name, z.name, z.op, z.labels, z.site) == ("y", "z", ADD, {"a": "b"}, "here")
    assert y.inputs == ((x, 0), (x, 0))


def test_several_outputs_and_watch():
    x = sym.var("x")
    parts = sym.split(x, num_outputs=2, axis=0, name="parts")
    swapped = transform(parts._entries, lambda node, inputs: node.op and [(node, 1), (node, 0)])
    values = {x._entry[0]: nd.array([1, 2])}
    assert [y.asscalar() for y in evaluate(swapped, values)] == [2, 1]
    unused = transform(parts[:1]._entries, lambda node, _: node.op and [(x._entry[0], 0), None])
    assert unused == [x._entry]
    with pytest.raises(AssertionError, match="output 1 was used after all"):
        transform(parts._entries, lambda node, _: node.op and [(x._entry[0], 0), None])
    seen = []
    evaluate(parts._entries, values, lambda *call: seen.append(call))
    ((node, inputs, outputs),) = seen
    assert node.name == "parts" and len(inputs) == 1 and len(outputs) == 2


def test_variables_that_nodes_change():
    net = sym.BatchNorm(sym.var("x"), name="bn")
    shapes = {
        "x": (2, 3),
        **{f"bn_{name}": (3,) for name in "gamma beta moving_mean moving_var".split()},
    }
    for training, changed in ((True, {"bn_moving_mean", "bn_moving_var"}), (False, set())):
        nodes = topological(graph_of(net, training, **shapes))
        assert {node.name for node in mutated_by(nodes)} == changed


DEEP = 10_000


def test_a_deep_graph_does_not_overflow_the_stack():
    x = sym.var("x")
    y = x
    for _ in range(DEEP):
        y = y.sin()
    before = graph_of(y, x=(2,))
    assert len(topological(before)) == DEEP + 1
    assert simplify(before) == before
    again = recompute(before, [*before])
    assert len(topological(again)) == DEEP + 1
    kept = residuals([before[0][0].inputs[0]], before)
    variables, rest = cut_graph(before, kept)
    assert [node.name for node in variables] and len(topological(rest)) == 2
    assert len(topological(plain(Symbol(tuple(before)))._entries)) == DEEP + 1
    (count,) = interpret(before, lambda node, inputs: [1 + sum(inputs)])
    assert count == DEEP + 1
    (value,) = evaluate(y._entries, {x._entry[0]: nd.array([0.5, 1])})
    assert value.shape == (2,)


def test_what_is_cheap_is_found_in_one_walk():
    """Each step of a chain doubled the work of the one before when all of it was cheap."""
    x, w = sym.var("x"), sym.var("w")
    y = x
    for _ in range(40):
        y = y * 2 + 1
    (grad,) = graph_of(y * w, x=(3,), w=(3,))
    outputs = [grad[0].inputs[0]]
    assert residuals(outputs, [grad]) and not residuals(outputs, recompute(outputs, [grad]))
