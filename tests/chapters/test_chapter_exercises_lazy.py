"""The exercises of the chapter on lazy evaluation: right answers pass its checks, and each
plausible wrong answer gets a hint of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from chapter_cells import code_of, names_in, refusal_of

import d2lmini
from d2lmini import MXNetError, cpu, engine, nd, profile
from d2lmini.gluon import nn

NAME = "lazy-evaluation-and-memory"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the chapter's imports, of its checks, and of the answers in its folds."""
    return names_in(NAME, "def check_bounded", "def check_frugal")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The instances that the checks draw; the engine's limit is put back."""
    np.random.seed(5)
    yield
    engine.limit_pending(None)


def broken(given):
    return undefined_name  # noqa: F821


def gives_nothing(given):
    return None


# -- exercise 7 ------------------------------------------------------------------------------------


def multiply(matrices, look=lambda product: None):
    """The product; `look` does something with each on the way."""
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
        look(product)
    return product


def runs_ahead(matrices):
    return multiply(matrices).sum().asscalar()


def reads_each(matrices):
    return multiply(matrices, lambda product: product.asnumpy()).sum().asscalar()


def waits_for_each(matrices):
    return multiply(matrices, lambda product: product.wait_to_read()).sum().asscalar()


def waits_for_all(matrices):
    return multiply(matrices, lambda product: nd.waitall()).sum().asscalar()


def looks_at_each(matrices):
    return multiply(matrices, lambda product: bool(product.max() > 1e9)).sum().asscalar()


def keeps_all(matrices):
    engine.limit_pending(5_000_000)
    return multiply(iter(list(matrices))).sum().asscalar()


def in_one_piece(matrices):
    engine.limit_pending(5_000_000)
    everything = nd.zeros((40, 500, 500))
    for i, X in enumerate(matrices):
        everything[i] = X
    return multiply(everything[i] for i in range(40)).sum().asscalar()


def adds_them(matrices):
    engine.limit_pending(5_000_000)
    return sum(matrices).sum().asscalar()


def multiplies_elements(matrices):
    engine.limit_pending(5_000_000)
    return reduce(lambda product, X: product * X, matrices).sum().asscalar()


def from_the_left(matrices):
    engine.limit_pending(5_000_000)
    return reduce(lambda product, X: nd.dot(X, product), matrices).sum().asscalar()


def forgets_the_first(matrices):
    engine.limit_pending(5_000_000)
    next(matrices)
    return multiply(matrices).sum().asscalar()


def gives_an_array(matrices):
    engine.limit_pending(5_000_000)
    return multiply(matrices).sum()


WRONG_PRODUCTS = {
    runs_ahead: "ahead",
    reads_each: "reading",
    waits_for_each: "waiting",
    waits_for_all: "waitall",
    looks_at_each: "hidden",
    keeps_all: "kept",
    in_one_piece: "large",
    adds_them: "another number",
    multiplies_elements: "another number",
    from_the_left: "another number",
    forgets_the_first: "another number",
    gives_an_array: "return a number, not NDArray",
    gives_nothing: "return a number, not NoneType",
}


@pytest.mark.parametrize("answer", WRONG_PRODUCTS, ids=lambda answer: answer.__name__)
def test_a_wrong_product_gets_its_hint(chapter, answer):
    assert WRONG_PRODUCTS[answer] in refusal_of(chapter["check_bounded"], answer)


def with_another_limit(matrices):
    engine.limit_pending(2_000_000)
    return float(multiply(matrices).sum())


def in_pairs(matrices):
    engine.limit_pending(4_000_000)
    pairs = (nd.dot(X, next(matrices)) for X in matrices)
    return multiply(pairs).sum().asscalar()


def into_two_places(matrices):
    engine.limit_pending(5_000_000)
    places = [next(matrices), nd.zeros((500, 500))]
    for i, X in enumerate(matrices):
        nd.dot(places[i % 2], X, out=places[1 - i % 2])
    return places[39 % 2].sum().asnumpy()[0]


def by_vectors(matrices):
    """The sum of all elements is a product with ones on both sides."""
    engine.limit_pending(5_000_000)
    row = reduce(nd.dot, matrices, nd.ones((1, 500)))
    return nd.dot(row, nd.ones((500, 1))).asscalar()


def by_gemm(matrices):
    engine.limit_pending(5_000_000)
    return reduce(nd.linalg.gemm2, matrices).sum().item()


RIGHT_PRODUCTS = [with_another_limit, in_pairs, into_two_places, by_vectors, by_gemm]


@pytest.mark.parametrize("answer", RIGHT_PRODUCTS, ids=lambda answer: answer.__name__)
def test_an_unusual_product_is_right(chapter, answer, capsys):
    chapter["check_bounded"](answer)
    assert capsys.readouterr().out == "at most 10.0 MB on cpu(0)\nat most 1 wait in all\n"


# -- exercise 8 ------------------------------------------------------------------------------------


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


def forgets_x(x):
    y = x * 2
    y += 1
    return nd.tanh(y, out=y)


def by_numpy(x):
    return np.tanh(x.asnumpy() * 2 + 1) * x.asnumpy()


def through_numpy(x):
    return nd.array(by_numpy(x))


WRONG_FRUGAL = {
    keeps_steps: "many",
    waits: "waiting",
    twice_as_many: "large",
    through_numpy: "reading",
    into_x: "x was changed",
    forgets_one: "other values",
    forgets_x: "other values",
    by_numpy: "return an NDArray, not ndarray",
    gives_nothing: "return an NDArray, not NoneType",
}


@pytest.mark.parametrize("answer", WRONG_FRUGAL, ids=lambda answer: answer.__name__)
def test_a_wasteful_answer_gets_its_hint(chapter, answer):
    assert WRONG_FRUGAL[answer] in refusal_of(chapter["check_frugal"], answer)


def from_a_copy(x):
    y = x.copy()
    y *= 2
    y += 1
    return nd.elemwise_mul(nd.tanh(y, out=y), x, out=y)


def into_zeros(x):
    y = nd.zeros_like(x)
    nd.broadcast_add(x, x, out=y)
    y += 1
    nd.tanh(y, out=y)
    nd.multiply(y, x, out=y)
    return y


def in_a_lazy_scope(x):
    with d2lmini.lazy():
        return nd.tanh(x * 2 + 1) * x


def by_a_compiled_net(x):
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.tanh(x * 2 + 1) * x

    net = Net()
    net.hybridize()
    return net(x)


def by_slices(x):
    y = nd.zeros(x.shape)
    y[:] = x
    y *= 2
    y += 1
    y[:] = nd.tanh(y, out=y)
    y *= x
    return y


RIGHT_FRUGAL = [from_a_copy, into_zeros, in_a_lazy_scope, by_a_compiled_net, by_slices]


@pytest.mark.parametrize("answer", RIGHT_FRUGAL, ids=lambda answer: answer.__name__)
def test_an_unusual_frugal_answer_is_right(chapter, answer, capsys):
    chapter["check_frugal"](answer)
    assert capsys.readouterr().out == "at most 0 waits in all\nat most 1.1 MB on cpu(0)\n"


def test_the_folded_answers_are_right(chapter):
    chapter["check_bounded"](chapter["bounded_product"])
    chapter["check_frugal"](chapter["frugal"])


@pytest.mark.parametrize("check", ["check_bounded", "check_frugal"])
def test_an_error_of_the_answer_comes_out(chapter, check):
    with pytest.raises(NameError, match="undefined_name"):
        chapter[check](broken)


# -- what the answers, and the text, say -----------------------------------------------------------


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
