"""The exercises of the chapter on asynchronous computation: right answers pass its checks, each
plausible wrong answer gets a hint of its own, and what the folded answers say is so."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest
from chapter_cells import names_in, refusal_of

from d2lmini import MXNetError, autograd, engine, nd, profile

NAME = "async-computation"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the chapter's imports, of its checks, and of the answers in its folds."""
    return names_in(NAME, "def by_waiting", "def check_quiet", "def in_one_place")


@pytest.fixture(autouse=True)
def drawn_alike():
    """The instances that the checks draw."""
    np.random.seed(5)


def broken(*given):
    return undefined_name  # noqa: F821


def gives_nothing(*given):
    return None


# -- exercise 7 ------------------------------------------------------------------------------------


def run_epoch(net, trainer, loss, batches, look=lambda l: None, update=True):
    """The mean loss of each batch; `look` does something with the loss in each."""
    losses = []
    for X, y in batches:
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        if update:
            trainer.step(len(X))
        losses.append(l.mean())
        look(l)
    return losses


def read(losses):
    losses = nd.concat(*losses, dim=0).asnumpy()
    return float(losses.mean()), float(losses.max())


def floats(*given):
    return read(run_epoch(*given, lambda l: float(l.mean())))


def compares(*given):
    return read(run_epoch(*given, lambda l: bool(l.mean() > 100)))


def asscalar(*given):
    return read(run_epoch(*given, lambda l: l.mean().asscalar()))


def waits_for_the_loss(*given):
    return read(run_epoch(*given, lambda l: l.wait_to_read()))


def waits_for_all(*given):
    return read(run_epoch(*given, lambda l: nd.waitall()))


def reads_each_at_the_end(*given):
    losses = [loss.asscalar() for loss in run_epoch(*given)]
    return float(np.mean(losses)), float(max(losses))


def never_learns(*given):
    return read(run_epoch(*given, update=False))


def gives_arrays(*given):
    losses = nd.concat(*run_epoch(*given), dim=0)
    return losses.mean(), losses.max()


def leaves_one_out(net, trainer, loss, batches):
    return read(run_epoch(net, trainer, loss, list(batches)[:-1]))


def goes_backwards(net, trainer, loss, batches):
    return read(run_epoch(net, trainer, loss, list(batches)[::-1]))


def means_of_the_largest(*given):
    largest = []
    run_epoch(*given, lambda l: largest.append(l.max()))
    return read(largest)


def gives_the_largest_first(*given):
    return read(run_epoch(*given))[::-1]


def gives_the_last(*given):
    losses = nd.concat(*run_epoch(*given), dim=0).asnumpy()
    return float(losses.mean()), float(losses[-1]) - 1


WRONG_EPOCHS = {
    floats: "hidden",
    compares: "hidden",
    asscalar: "reading",
    waits_for_the_loss: "waiting",
    waits_for_all: "waitall",
    reads_each_at_the_end: "reading",
    never_learns: "other weights",
    leaves_one_out: "other weights",
    goes_backwards: "other weights",
    gives_arrays: "Python numbers, not NDArray",
    means_of_the_largest: "another mean",
    gives_the_largest_first: "another mean",
    gives_the_last: "another maximum",
    gives_nothing: "two Python numbers, not None",
}


@pytest.mark.parametrize("answer", WRONG_EPOCHS, ids=lambda answer: answer.__name__)
def test_a_wrong_epoch_gets_its_hint(chapter, answer):
    assert WRONG_EPOCHS[answer] in refusal_of(chapter["check_quiet"], answer)


def two_scalars(*given):
    losses = nd.concat(*run_epoch(*given), dim=0)
    return losses.mean().asscalar(), losses.max().asscalar()


def running_results(*given):
    total, largest, n = nd.zeros((1,)), nd.zeros((1,)), 0
    for loss in run_epoch(*given):
        total, largest, n = total + loss, nd.maximum(largest, loss), n + 1
    return float(total) / n, float(largest)


def a_list_of_numpy_scalars(*given):
    losses = nd.stack(*run_epoch(*given)).asnumpy()
    return [losses.mean(), losses.max()]


def an_array_of_two(*given):
    losses = nd.concat(*run_epoch(*given), dim=0)
    return nd.concat(losses.mean(), losses.max(), dim=0).asnumpy()


def all_batches_first(net, trainer, loss, batches):
    return read(run_epoch(net, trainer, loss, list(batches)))


def into_one_array(net, trainer, loss, batches):
    batches = list(batches)
    losses = nd.zeros((len(batches),))
    for i, (X, y) in enumerate(batches):
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.allreduce_grads()
        trainer.update(len(X))
        losses[i] = l.mean()
    return losses.mean().asscalar(), losses.max().asscalar()


RIGHT_EPOCHS = [
    two_scalars,
    running_results,
    a_list_of_numpy_scalars,
    an_array_of_two,
    all_batches_first,
    into_one_array,
]


@pytest.mark.parametrize("answer", RIGHT_EPOCHS, ids=lambda answer: answer.__name__)
def test_an_unusual_epoch_is_right(chapter, answer, capsys):
    chapter["check_quiet"](answer)
    assert capsys.readouterr().out == "at most 0 waits for each batch\nat most 2 waits in all\n"


@pytest.mark.parametrize("check, answer", [("check_quiet", "epoch"), ("check_quiet", "by_waiting")])
def test_the_folded_epoch_is_right_and_the_one_that_waits_is_not(chapter, check, answer):
    if answer == "epoch":
        chapter[check](chapter[answer])
    else:
        assert "hidden" in refusal_of(chapter[check], chapter[answer])


# -- exercise 8 ------------------------------------------------------------------------------------


def sum_of_products(W, drawn):
    total = 0
    for X in drawn:
        total = total + nd.dot(X, W).sum()
    return total


def draw(W, out=None):
    return nd.random.normal(0, 0.05, shape=W.shape, out=out)


def in_one_place_again(W, n):
    place = nd.zeros(W.shape)
    return sum_of_products(W, (draw(W, place) for _ in range(n))).asscalar()


def waits_in_each(W, n):
    total = 0
    for _ in range(n):
        total += nd.dot(draw(W), W).sum().asscalar()
    return total


def keeps_all(W, n):
    return sum_of_products(W, [draw(W) for _ in range(n)]).asscalar()


def in_one_piece(W, n):
    drawn = nd.zeros((n, *W.shape))
    total = 0
    for i in range(n):
        drawn[i] = draw(W)
        total = total + nd.dot(drawn[i], W).sum()
    return total.asscalar()


def a_new_array_each_time(W, n):
    return sum_of_products(W, (draw(W) for _ in range(n))).asscalar()


def a_new_place_each_time(W, n):
    return sum_of_products(W, (draw(W, nd.zeros(W.shape)) for _ in range(n))).asscalar()


def eight_places(W, n):
    places = cycle([nd.zeros(W.shape) for _ in range(8)])
    return sum_of_products(W, (draw(W, next(places)) for _ in range(n))).asscalar()


def one_more(W, n):
    return a_new_array_each_time(W, n + 1)


def draws_in_numpy(W, n):
    drawn = (nd.array(np.random.normal(0, 0.05, W.shape)) for _ in range(n))
    return sum_of_products(W, drawn).asscalar()


def gives_an_array(W, n):
    return sum_of_products(W, (draw(W) for _ in range(n)))


def multiplies_the_sum(W, n):
    return nd.dot(draw(W), W).sum().asscalar() * n


WRONG_SUMS = {
    in_one_place_again: "room",
    waits_in_each: "waits",
    keeps_all: "ahead",
    in_one_piece: "large",
    a_new_array_each_time: "ahead",
    a_new_place_each_time: "ahead",
    eight_places: "ahead",
    one_more: "another number",
    draws_in_numpy: "another number",
    multiplies_the_sum: "another number",
    gives_an_array: "return a number, not NDArray",
    gives_nothing: "return a number, not NoneType",
}


@pytest.mark.parametrize("answer", WRONG_SUMS, ids=lambda answer: answer.__name__)
def test_a_wrong_sum_gets_its_hint(chapter, answer):
    assert WRONG_SUMS[answer] in refusal_of(chapter["check_overlapped"], answer)


def three_places(W, n):
    places = cycle([nd.zeros(W.shape) for _ in range(3)])
    return float(sum_of_products(W, (draw(W, next(places)) for _ in range(n))))


def in_turns_without_a_list(W, n):
    one, other, total = nd.zeros(W.shape), nd.zeros(W.shape), nd.zeros((1,))
    for _ in range(n):
        draw(W, one)
        total += nd.dot(one, W).sum()
        one, other = other, one
    return total.asnumpy()[0]


def by_a_limit(W, n):
    engine.limit_pending(3 * W.size * 4)
    return a_new_array_each_time(W, n)


def waits_two_steps_later(W, n):
    sums = []
    for _ in range(n):
        sums.append(nd.dot(draw(W), W).sum())
        if len(sums) > 2:
            sums[-3].wait_to_read()
    return nd.add_n(*sums).asscalar()


def places_for_the_products_too(W, n):
    places = cycle([(nd.zeros(W.shape), nd.zeros(W.shape)) for _ in range(2)])
    total = 0
    for _ in range(n):
        X, product = next(places)
        total = total + nd.dot(draw(W, X), W, out=product).sum()
    return total.asscalar()


RIGHT_SUMS = [
    three_places,
    in_turns_without_a_list,
    by_a_limit,
    waits_two_steps_later,
    places_for_the_products_too,
]


@pytest.mark.parametrize("answer", RIGHT_SUMS, ids=lambda answer: answer.__name__)
def test_an_unusual_sum_is_right(chapter, answer, capsys):
    chapter["check_overlapped"](answer)
    out = capsys.readouterr().out
    assert out == "_random_normal may run beside dot\nat most 3.8 MB on cpu(0)\n"


def test_two_places_in_turns_are_right_and_one_is_not(chapter):
    chapter["check_overlapped"](chapter["overlapped"])
    assert "room" in refusal_of(chapter["check_overlapped"], chapter["in_one_place"])


@pytest.mark.parametrize("check", ["check_quiet", "check_overlapped"])
def test_an_error_of_the_answer_comes_out(chapter, check):
    with pytest.raises(NameError, match="undefined_name"):
        chapter[check](broken)


# -- what the answers, and the text, say -----------------------------------------------------------


def test_only_the_truth_of_a_sum_waits():
    """Exercise 1."""
    with profile() as trace:
        y = nd.ones((2, 2))
        assert (y.shape, len(y)) == ((2, 2), 2)
        y * 2, y[0], y.sum(), y.copy()
        str(y.dtype)
        assert not list(trace.waits)
        assert bool(y.sum() > 0)
        assert [wait.kind for wait in trace.waits] == ["bool"]


def test_what_is_broken_says_what_the_answers_tell():
    """Exercises 5 and 6."""
    x, a = nd.ones((2,)), nd.ones((2,))
    engine.push(lambda: x.asnumpy(), writes=[a], name="impatient")
    with pytest.raises(MXNetError, match=r"impatient(.|\n)*reads="):
        a.asnumpy()
    with pytest.raises((MXNetError, TypeError), match=r"dtype|int32"):
        nd.array([1, 2], dtype="int32") / nd.array([0, 1])


def test_the_size_at_which_an_addition_moves_to_a_worker():
    """The answer of section 7."""
    where = {}
    for size in (263, 264):
        x = nd.ones((size, size))
        x.wait_to_read()
        with profile() as trace:
            (x + 1).wait_to_read()
        where[size] = trace.operations[-1].inline
    assert where == {263: True, 264: False}
