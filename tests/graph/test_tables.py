"""The compiler's parts one by one, with what each gives for small inputs, calculated by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d2lmini import MXNetError, autograd, nd, sym
from d2lmini.graph.cached_op import CachedOp
from d2lmini.graph.fusion import Cut, Needs, find_cut
from d2lmini.graph.ir import Node, constant, topological
from d2lmini.graph.plan import Life, align, arrange
from d2lmini.graph.typed import GraphError, effects, graph_of, listing, verify
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Spec

x, y, w = sym.var("x"), sym.var("y"), sym.var("w")


# -- text ------------------------------------------------------------------------------------------


# -- memory ----------------------------------------------------------------------------------------


def test_the_plan_puts_the_largest_first_into_the_lowest_gap():
    lives = [Life("a", 100, 0, 1), Life("b", 300, 1, 2), Life("c", 64, 2, 3), Life("d", 65, 0, 3),
             Life("e", 0, 1, 1), Life("f", 100, 2, 2)]  # fmt: skip
    plan = arrange(lives)
    assert plan.offsets == [320, 0, 576, 448, 0, 320]
    assert (plan.nbytes, plan.separately) == (640, 629)
    assert arrange([]).nbytes == 0 and str(arrange([])) == "0 bytes in place of 0"
    assert [align(n) for n in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
    a = Life("a", 1, 2, 4)
    meets = [a.meets(Life("b", 1, begin, begin + 1)) for begin in range(6)]
    assert meets == [False, True, True, True, True, False]


# -- groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axis", "read", "others", "cut"),
    [
        ((64, 32), 1, True, [], (0, 1)), ((64, 32), 0, True, [], None),
        ((64, 2048), 0, True, [], (1, 2)), ((64, 32), 0, False, [], (0, 1)),
        ((64, 32), 1, False, [], (0, 1)), ((8, 9, 2048), 2, True, [], (0, 2)),
        ((8, 9, 2048), 1, True, [], (0, 1)), ((8, 2048, 9), (0, 2), True, [], (1, 2)),
        ((8, 9, 2048), 2, True, [(8, 1, 1)], (0, 1)), ((8, 9, 2048), 2, True, [(1, 1, 1)], (0, 2)),
        ((8, 9, 2048), 2, True, [(1, 9, 1)], (0, 1)), ((8, 9), (0, 1), True, [], None),
        ((8, 9, 2048), (0, 1), False, [], (0, 2)), ((1, 9, 2048), 1, True, [], (2, 3)),
        ((1, 9, 8), 1, True, [], None),
    ],
)  # fmt: skip
def test_where_a_group_is_cut(shape, axis, read, others, cut):
    total = sym.sum(x, axis=axis, keepdims=True, name="total")
    heads = sym.broadcast_sub(x, total) if read else total
    heads = sym.broadcast_add(heads, sym.var("v")) if others else heads
    shapes = {"x": shape, **({"v": others[0]} if others else {})}
    nodes = [n for n in topological(graph_of(heads, **shapes)) if n.op is not None]
    found = find_cut(Needs.of_all([Needs.of(node, shape) for node in nodes]), shape)
    assert found == (None if cut is None else Cut(*cut))


# -- typed graphs ----------------------------------------------------------------------------------


def variable(name: str, *specs: Spec) -> Node:
    return Node(None, name, specs=specs or (Spec((3,), "float32"),))


def call(op: str, *inputs: Node, name: str = "n", **attrs: Any) -> Node:
    op_ = registry[op]
    return Node(op_, name, tuple((n, 0) for n in inputs), {**op_.defaults, **attrs},
                (inputs[0].specs[0],) * max(1, len(inputs) - 2))  # fmt: skip


def test_verify_refuses_each_fault_by_name():
    a, b, two = variable("a"), variable("b"), variable("two", *[Spec((3,), "float32")] * 2)
    exp, sin = call("exp", a, name="exp"), call("sin", a, name="sin")
    state = [variable(f"s{i}") for i in range(4)]
    norm = call("BatchNorm", variable("d", Spec((2, 3), "float32")), *state, name="bn")
    for inputs, outputs, like, words in [
        ([two], [(two, 0)], None, "two: a variable is one value"),
        ([a, b, a], [(exp, 0)], None, "a: two variables have this name"),
        ([a], [(exp, 0)], [], "outputs: 1 instead of 0"),
        ([a], [(exp, 1)], None, "exp: has no output 1"),
        ([a], [(exp, 0)], [(variable("c", Spec((4,), "float32")), 0)],
         r"exp: is \(3,\) float32, and c was \(4,\) float32"),
        ([b], [(exp, 0)], None, "a: the variable is not among the inputs"),
    ]:  # fmt: skip
        with pytest.raises(GraphError, match=words):
            verify(inputs, outputs, like)
    verify([a, b], [(exp, 0), (sin, 0)], [(sin, 0), (exp, 0)])
    assert norm.specs and effects([(exp, 0)]) == {}


def test_a_graph_as_text():
    with sym.NameManager():
        parts = sym.split(x, num_outputs=2, axis=1, name="part")
        twice = sym.exp(parts[1], name="y") + sym.sin(parts[0], name="y")
        heads = sym.Group([sym.cast(twice, dtype="float64", name="z"), parts[0], x])
    lines = listing(graph_of(heads, x=(1, 2))).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "x # (1, 2) float32",
        "part = split(x, num_outputs=2) # (1, 1) float32, (1, 1) float32",
        "y = exp(part[1]) # (1, 1) float32",
        "y_2 = sin(part[0]) # (1, 1) float32",
        "_plus0 = elemwise_add(y, y_2) # (1, 1) float32",
        "z = cast(_plus0, dtype='float64') # (1, 1) float64",
        "return z, part[0], x",
    ]
    assert all(line.index("#") == 44 for line in lines[:1] + lines[2:-1])
    assert "ones = 1.0 everywhere" in listing([constant(np.ones(3), "ones")])
    with pytest.raises(MXNetError, match="nothing is known of variable 'x': give its shape"):
        graph_of(x * 2)


def test_what_was_recorded_as_a_symbol():
    a, b = nd.ones((2,)), nd.ones((2,))
    b.attach_grad()
    a.attach_grad()
    f = CachedOp(sym.exp(x, name="inner") * y)
    with autograd.record():
        c = nd.concat(f(a, b) * nd.ones(2), a, dim=0)
        parts = nd.split(c, num_outputs=2, axis=0)
    symbol = autograd.get_symbol(parts[1])
    assert symbol.list_arguments() == ["var1", "var0", "null0"]
    nodes = [n.name for n in topological(symbol._entries) if n.op]
    assert nodes[0] == "inner" and nodes[2:] == ["node_1", "node_2", "node_3"]
    assert symbol._entries[0][1] == 1 and not topological(symbol._entries)[-1].specs
    with autograd.record():
        other = type("F", (autograd.Function,), {"forward": lambda self, x: x * 1})()(a)
    with pytest.raises(MXNetError, match="get_symbol: F is no operation that a Symbol could name"):
        autograd.get_symbol(other)
    with pytest.raises(MXNetError, match="NDArray is not part of a computation graph"):
        autograd.get_symbol(nd.ones(1))


# -- programs --------------------------------------------------------------------------------------


# -- traces and the lazy scope ---------------------------------------------------------------------
