"""The graph kit: `transform`, `interpret`; deep graphs."""

from __future__ import annotations

import random

import pytest

from d2lmini import nd, sym
from d2lmini.graph.backward import cut_graph, recompute, residuals
from d2lmini.graph.ir import Node, interpret, topological, transform, variables_of
from d2lmini.graph.passes import simplify
from d2lmini.graph.symbolic_trace import plain
from d2lmini.graph.typed import graph_of
from d2lmini.ops.core import registry
from d2lmini.symbol import Symbol
from d2lmini.symbol.infer import evaluate

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
