"""Long operations that do not need each other run side by side in a program."""

from __future__ import annotations

import pytest
from check_programs import check, compiled
from graphs import graphs
from hypothesis import given, settings

from d2lmini import sym
from d2lmini.graph import fusion
from d2lmini.graph.fusion import statements
from d2lmini.graph.lower import lower
from d2lmini.graph.program import Program


def together(heads, shapes: dict) -> list[list[str]]:
    """The names of the ops in each statement."""
    _, graph = compiled(heads, shapes)
    found = fusion.side_by_side(statements(lower(graph.outputs)))
    return [[node.name for node in statement.nodes] for statement in found]


x, y, z = sym.var("x"), sym.var("y"), sym.var("z")


def product(a, b, name: str):
    return sym.dot(a, b, name=name)


def test_what_needs_another_comes_after_it():
    a, b = product(x, y, "a"), product(y, x, "b")
    assert together([a, b], {x: (256, 256), y: (256, 256)}) == [["a", "b"]]
    c = product(a, b, "c")
    assert together([c, a], {x: (256, 256), y: (256, 256)}) == [["a", "b"], ["c"]]
    through_a_view = product(a.reshape((256, 256)), y, "c")
    assert ["a", "c"] not in together(through_a_view, {x: (256, 256), y: (256, 256)})


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
