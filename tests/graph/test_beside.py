"""Long operations that do not need each other run side by side in a program."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from check_programs import check, compiled
from graphs import graphs
from hypothesis import given, settings

from d2lmini import MXNetError, engine, sym
from d2lmini.graph import fusion
from d2lmini.graph.fusion import statements
from d2lmini.graph.lower import lower
from d2lmini.graph.program import Program
from d2lmini.ops.core import Op, registry


def together(heads, shapes: dict) -> list[list[str]]:
    """The names of the ops in each statement."""
    _, graph = compiled(heads, shapes)
    found = fusion.side_by_side(statements(lower(graph.outputs)))
    return [[node.name for node in statement.nodes] for statement in found]


x, y, z = sym.var("x"), sym.var("y"), sym.var("z")
SQUARE = {v: (256, 256) for v in (x, y, z)}


def ops_with_own_flops() -> list[Op]:
    """The elementwise ops that count their FLOPs by a formula, as products do."""
    found = {op.name: op for op in registry.values() if op.elementwise and callable(op.flops)}
    return [op for op in found.values() if op.takes_out]


def product(a, b, name: str):
    return sym.dot(a, b, name=name)


def test_what_needs_another_comes_after_it():
    a, b = product(x, y, "a"), product(y, x, "b")
    assert together([a, b], {x: (256, 256), y: (256, 256)}) == [["a", "b"]]
    c = product(a, b, "c")
    assert together([c, a], {x: (256, 256), y: (256, 256)}) == [["a", "b"], ["c"]]
    through_a_view = product(a.reshape((256, 256)), y, "c")
    assert ["a", "c"] not in together(through_a_view, {x: (256, 256), y: (256, 256)})


def test_short_ones_and_what_changes_an_input_stay_alone():
    small = [product(x, y, "a"), product(y, x, "b")]
    assert together(small, {x: (16, 16), y: (16, 16)}) == [["a"], ["b"]]
    between = [product(x, y, "a"), sym.sum(z, name="s"), product(y, x, "b")]
    assert together(between, SQUARE) == [["a"], ["s"], ["b"]]


@pytest.mark.parametrize("name", [op.name for op in ops_with_own_flops()])
def test_an_op_of_several_calls_stays_alone(name, monkeypatch):
    """`add_n` of three counts its own FLOPs and is two calls: beside a product, one of the three
    calls was left out and the other two ran at the same time."""
    monkeypatch.setattr(fusion, "LONG_US", -1.0)
    several = registry[name](x, y, z)
    shapes = {v: (4, 4) for v in (x, y, z)}  # too small for a loop over blocks of its own
    program, graph = compiled([product(x, y, "p"), several, product(y, x, "q")], shapes)
    assert program.source.count("out=") >= 2
    check(program, graph, tolerance=1e-4)


def test_no_more_than_some_at_once():
    heads = [product(x, y, f"p{i}") for i in range(fusion.MOST_AT_ONCE + 2)]
    found = together(heads, {x: (256, 256), y: (256, 256)})
    assert [len(each) for each in found] == [fusion.MOST_AT_ONCE, 2]


def test_the_gradients_of_a_convolution():
    w = sym.var("w")
    data = sym.Convolution(x, w, num_filter=32, kernel=(3, 3), pad=(1, 1), no_bias=True)
    _, graph = compiled(data, {x: (8, 32, 20, 20), w: (32, 32, 3, 3)})
    joint = graph.with_gradients()
    program = Program("net", joint.variables, joint.outputs)
    (begin,) = [i for i, line in enumerate(program.source.splitlines()) if "side_by_side(" in line]
    body = "\n".join(program.source.splitlines()[begin:])
    assert "lambda: _conv_backward_data(" in body and "lambda: _conv_backward_weight(" in body
    check(program, joint, tolerance=1e-4)


@given(graph=graphs())
@settings(deadline=None)
def test_programs_equal_the_interpreter(graph):
    """However short, whatever can run side by side does so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "LONG_US", -1.0)
        patch.setattr(fusion, "SMALLEST", 2)
        joint = graph.with_gradients()
        program = Program("net", joint.variables, joint.outputs)
    check(program, joint)


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_an_error_names_its_node_when_the_others_are_done(monkeypatch, kind):
    """A product fails; the one beside it is computed to its end before the program ends."""
    program, graph = compiled([product(x, y, "good"), product(y, x, "bad")], SQUARE)
    arrays = graph.arrays()
    places = [np.zeros((256, 256), np.float32) for _ in graph.outputs]
    globals_ = program._make.__globals__
    matmul, failed = globals_["shared_matmul"], threading.Event()

    def fails(xp, a, b, out):
        if out is places[1]:
            failed.set()
            raise ValueError("no product today")
        assert kind == "naive" or failed.wait(30)
        matmul(xp, a, b, out)

    monkeypatch.setitem(globals_, "shared_matmul", fails)
    done = engine.new_var()
    with engine.use(kind, **({"workers": 2} if kind == "threaded" else {})):
        engine.push(lambda: program.run(arrays, places, []), writes=[done])
        with pytest.raises(MXNetError, match="node 'bad': ValueError: no product today"):
            engine.wait_for_var(done)
    np.testing.assert_allclose(places[0], arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4)
