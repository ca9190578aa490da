"""The compiler for programs that are text: what is left prints what the whole would have printed,
and what may not be moved stays."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from labs.hybridize import folding

FANCY = """
def add(a, b):
    return a + b
def fancy_func(a, b, c, d):
    e = add(a, b)
    f = add(c, d)
    g = add(e, f)
    return g
"""


def printed(source: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(source, {})
    return out.getvalue()


def left(source: str) -> str:
    return folding(source)[-1].source


def test_the_program_of_the_founding_texts_becomes_print_10():
    steps = folding(FANCY + "print(fancy_func(1, 2, 3, 4))")
    assert [step.source.splitlines()[-1] for step in steps] == [
        "print(fancy_func(1, 2, 3, 4))", "print(1 + 2 + (3 + 4))", "print(1 + 2 + (3 + 4))",
        "print(10)",
    ]  # fmt: skip
    assert [len(step.source.splitlines()) for step in steps] == [8, 8, 1, 1]
    assert [printed(step.source) for step in steps] == ["10\n"] * 4


calls = st.recursive(
    st.integers(-9, 9).map(str) | st.sampled_from(["x", "y"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("add({0[0]}, {0[1]})".format),
        st.tuples(inner, inner, inner, inner).map(lambda x: f"fancy_func({', '.join(x)})"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("({0[0]} {0[1]} (9 + {0[2]}))".format),
    ),
    max_leaves=8,
)  # fmt: skip


@given(calls)
def test_every_step_means_the_same(call):
    source = f"x = 3\ny = x * 0.5\n{FANCY}try:\n    print({call})\nexcept Exception as e: print(e)"
    steps = folding(source)
    assert {printed(step.source) for step in steps} == {printed(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # It prints: neither moved nor left out.
        ("def f(a):\n    b = print(a)\n    return a\nprint(f(1))", None),
        # An argument that prints is computed once.
        ("def f(a):\n    return a + a\nprint(f(g(1)))", None),
        # It calls itself.
        ("def f(a):\n    return f(a)\nprint(f)", None),
        # It looks at what is outside.
        ("n = 1\ndef f(a):\n    return a + n\nprint(f(1))", None),
        # Which one is meant?
        ("def f(a):\n    return a\ndef f(a):\n    return a + 1\nprint(f(1))", None),
        ("def f(a, b=1):\n    return a + b\nprint(f(1))", None),
        ("def f(a):\n    return a\nprint(f(a=1), f(1, 2))", None),
        ("def f(a):\n    if a:\n        return 1\n    return 2\nprint(f(1))", None),
        ("print('a' + 'b', 1 / 2, True + 1)", None),
        ("def f(a):\n    return a * 2\nprint(f(x) - 1 * 2)", "print(x * 2 - 2)"),
        ("def f():\n    return g()\ndef g():\n    return 1\nprint(2)", "print(2)"),
    ],
)
def test_what_may_not_be_moved_stays(source, expected):
    assert left(source) == (expected or source)
