"""The compiler's parts one by one, with what each gives for small inputs, calculated by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import d2lmini
from d2lmini import MXNetError, autograd, nd, sym
from d2lmini.graph.cached_op import CachedOp
from d2lmini.graph.fusion import Cut, Needs, find_cut
from d2lmini.graph.ir import constant, topological
from d2lmini.graph.symbolic_trace import FallbackToEager, SymbolicTrace
from d2lmini.graph.typed import graph_of, listing

x, y = sym.var("x"), sym.var("y")


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
    assert f(a, b, out=parts[0]) is parts[0], "it has a history, but nothing is recorded"
    with autograd.record():
        other = type("F", (autograd.Function,), {"forward": lambda self, x: x * 1})()(a)
    with pytest.raises(MXNetError, match="get_symbol: F is no operation that a Symbol could name"):
        autograd.get_symbol(other)
    with pytest.raises(MXNetError, match="NDArray is not part of a computation graph"):
        autograd.get_symbol(nd.ones(1))


# -- traces and the lazy scope ---------------------------------------------------------------------


def test_a_trace_refuses_writes_that_others_would_see():
    array = nd.ones((2,))
    trace = SymbolicTrace(["a"], [array._spec], shaped=True)

    def written(a: Any) -> Any:
        b = a * 2
        c, b = b, b.__iadd__(array)
        return [b, array, "text"] if c is b else None

    assert trace.run(written)[2] == "text" and trace.outputs == [0, 1, ("text",)]
    assert trace.symbol.list_arguments() == ["a", "array0"] and not trace.general
    for refused in (
        lambda a: a.__iadd__(1),
        lambda a: a.reshape((1, 2)).__iadd__(1),
        lambda a: [b := a * 2, b.reshape((1, 2)), b.__iadd__(1)],
    ):
        with pytest.raises(FallbackToEager, match=r"x [+]= y, or the like, of an input, of a view"):
            trace.run(refused)


def test_what_a_lazy_scope_records_computes_and_drops():
    def counts() -> tuple[int, ...]:
        return scope.recorded, scope.computed, scope.dropped

    a = nd.ones((2, 3))
    nd.waitall()
    with d2lmini.lazy() as scope:
        b = a + 1
        c = b * 2
        assert counts() == (2, 0, 0) and b._chunk.version == 1
        del c
        assert counts() == (2, 0, 1)
        assert b.asnumpy().tolist() == [[2] * 3] * 2 and counts() == (2, 1, 1)
        assert (b + 1).asnumpy().sum() == 18 and counts() == (3, 2, 1)
        e = a * 3
        a += 1
        assert counts() == (5, 2, 1) and a._chunk.version == 2
        a[0] = 9  # no pure op: pushed after all that reads and writes `a`
        assert scope.computed == 4 and e.asnumpy().sum() == 18
        assert ((a * 2)[1:] + 1).asnumpy().tolist() == [[5] * 3], "a part of what was recorded"
        with pytest.raises(MXNetError, match="this lazy scope is open already"), scope:
            pass
    assert scope.computed + scope.dropped == scope.recorded
    assert f"{scope.computed} computed, {scope.dropped} dropped, {scope.compiled} prog" in repr(
        scope
    )
