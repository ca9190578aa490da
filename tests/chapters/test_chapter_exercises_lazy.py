"""The exercises of the chapter on lazy evaluation: its solutions pass its own checks, and each
typical wrong answer gets a hint of its own."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from chapter_cells import code_of, hint_of, names_in

import d2lmini
from d2lmini import MXNetError, cpu, engine, nd, profile

NAME = "lazy-evaluation-and-memory"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the chapter's imports, of its checks, and of the answers in its folds."""
    return names_in(NAME, "def check_bounded")


def runs_ahead(matrices):
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
    return product.sum().asscalar()


def reads_each(matrices):
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
        product.asnumpy()
    return product.sum().asscalar()


def waits_for_each(matrices):
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
        product.wait_to_read()
    return product.sum().asscalar()


def waits_for_all(matrices):
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
        nd.waitall()
    return product.sum().asscalar()


def looks_at_each(matrices):
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
        if product.max() > 1e9:
            break
    return product.sum().asscalar()


def keeps_all(matrices):
    engine.limit_pending(5_000_000)
    matrices = list(matrices)
    product = matrices[0]
    for X in matrices[1:]:
        product = nd.dot(product, X)
    return product.sum().asscalar()


def in_one_piece(matrices):
    engine.limit_pending(5_000_000)
    everything = nd.zeros((40, 500, 500))
    for i, X in enumerate(matrices):
        everything[i] = X
    product = everything[0]
    for i in range(1, 40):
        product = nd.dot(product, everything[i])
    return product.sum().asscalar()


@pytest.fixture(autouse=True)
def bound_as_before():
    yield
    engine.limit_pending(None)


def test_a_bound_is_right(chapter, capsys):
    chapter["check_bounded"](chapter["bounded_product"])
    out = capsys.readouterr().out
    assert out == "at most 10.0 MB on cpu(0)\nat most 1 wait in all\n"


def test_every_mistake_has_its_hint(chapter):
    answers = (
        runs_ahead, reads_each, waits_for_each, waits_for_all, looks_at_each, keeps_all,
        in_one_piece,
    )  # fmt: skip
    hints = {each.__name__: hint_of(chapter["check_bounded"], each) for each in answers}
    assert hints == {
        "runs_ahead": "ahead",
        "reads_each": "reading",
        "waits_for_each": "waiting",
        "waits_for_all": "waitall",
        "looks_at_each": "hidden",
        "keeps_all": "kept",
        "in_one_piece": "large",
    }


def test_one_array_is_enough(chapter, capsys):
    chapter["check_frugal"](chapter["frugal"])
    assert capsys.readouterr().out == "at most 0 waits in all\nat most 1.1 MB on cpu(0)\n"


def keeps_steps(x):
    y = x * 2
    z = y + 1
    t = nd.tanh(z)
    return t * x


def waits(x):
    y = x * 2
    y += 1
    nd.tanh(y, out=y)
    y.wait_to_read()
    y *= x
    return y


def twice_as_many(x):
    both = nd.concat(x, x, dim=0)
    return nd.tanh(both * 2 + 1)[: x.shape[0]] * x


def into_x(x):
    y = x
    y *= 2
    y += 1
    return nd.tanh(y, out=y)


def forgets_one(x):
    y = x * 2
    nd.tanh(y, out=y)
    y *= x
    return y


def test_every_mistake_has_its_hint_there_too(chapter):
    check = chapter["check_frugal"]
    answers = (keeps_steps, waits, twice_as_many)
    hints = {each.__name__: hint_of(check, each) for each in answers}
    assert hints == {"keeps_steps": "many", "waits": "waiting", "twice_as_many": "large"}
    with pytest.raises(AssertionError, match="x was changed"):
        check(into_x)
    with pytest.raises(AssertionError, match="other values"):
        check(forgets_one)


def test_what_is_broken_says_what_the_answers_tell():
    with pytest.raises(MXNetError, match="open already; make another"):
        with d2lmini.lazy() as scope:
            with scope:
                pass
    with d2lmini.lazy(), pytest.raises(MXNetError, match=r"\(2, 3\), rhs is \(4,\)"):
        nd.ones((2, 3)) / nd.ones((4,))


def test_a_hundred_equal_sums_are_one_and_its_copies():
    """The answer of section 2."""
    x = nd.ones((1000, 1000))
    with d2lmini.lazy() as scope:
        results = [x + 1 for _ in range(100)]
    assert (scope.recorded, scope.computed) == (100, 100) and len(results) == 100
    assert scope.program().count(" add(") == 1
    assert scope.program().count("copy_of__plusscalar0") >= 99


def test_a_step_promises_what_the_last_answer_says():
    """Section 10: the bytes of one step, of which the answer takes two or three."""
    place = names_in(NAME, "def train(")
    with engine.stepped(remember=0), profile() as trace:
        place["train"](1)
        nd.waitall()
    assert 1_500_000 < trace.memory()[cpu()].peak_pending < 1_700_000


def test_the_first_cell_only_imports():
    kinds = {type(line) for line in ast.parse(code_of(NAME)[0]).body}
    assert kinds <= {ast.Import, ast.ImportFrom, ast.Expr}
