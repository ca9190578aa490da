"""The exercises of the chapter on automatic parallelism: their solutions and unusual right answers
pass the checks, each typical wrong answer gets its hint, and what the answers say of schedules is
so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chapter_cells import hint_of, names_in

from d2lmini import MXNetError, cpu, engine, gpu, nd, profile, virtual_gpus


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """What runs a program on paper, the checks, and the answers in the chapter's folds."""
    begins = ("def on_paper", "def chain", "def check_behind", "def check_halves")
    return names_in("auto-parallelism", *begins)


def answers(*functions) -> dict[str, Any]:
    return {function.__name__: function for function in functions}


# -- one round behind ------------------------------------------------------------------------------


def looks_at_once(x, n):
    total = 0
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        total += z[0, 0].asscalar()
    return total


def looks_at_the_end(x, n):
    zs = [nd.dot(x, x).copyto(cpu()) for _ in range(n)]
    return sum(z[0, 0].asscalar() for z in zs)


def behind_with(wait):
    """One round behind, with a wait of its own in each round."""

    def answer(x, n):
        total, previous = 0, None
        for _ in range(n):
            y = nd.dot(x, x)
            wait(y)
            z = y.copyto(cpu())
            if previous is not None:
                total += previous[0, 0].asscalar()
            previous = z
        return total + previous[0, 0].asscalar()

    return answer


def one_buffer(x, n):
    total, previous, y = 0, None, nd.zeros(x.shape, ctx=x.context)
    for _ in range(n):
        nd.dot(x, x, out=y)
        z = y.copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()


def stays_on_the_cpu(x, n):
    x, total, previous = x.copyto(cpu()), 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = y
    return total + previous[0, 0].asscalar()


def forgets_the_last(x, n):
    total, previous = 0, None
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total


def does_nothing(*given):
    return None


BEHIND_WRONG = {
    "waits": looks_at_once,
    "late": looks_at_the_end,
    "waitall": behind_with(lambda y: (nd.waitall(), y.wait_to_read(), nd.waitall())),
    "waiting": behind_with(lambda y: y.wait_to_read()),
    "room": one_buffer,
    "needs": stays_on_the_cpu,
    "values": forgets_the_last,
}


def one_number_travels(x, n):
    """asscalar copies one number of the round before."""
    total, previous = 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        if previous is not None:
            total += previous.asscalar()
        previous = y[0, 0]
    return total + previous.asscalar()


def two_rounds_behind(x, n):
    total, pending = 0, []
    for _ in range(n):
        pending.append(nd.dot(x, x).copyto(cpu()))
        if len(pending) > 2:
            total += pending.pop(0)[0, 0].asscalar()
    return total + sum(z[0, 0].asscalar() for z in pending)


def whole_matrices(x, n):
    """as_in_context, asnumpy, and a float at the end."""
    zs = [nd.dot(x, x).as_in_context(cpu())]
    total = 0.0
    for _ in range(n - 1):
        zs.append(nd.dot(x, x).as_in_context(cpu()))
        total += float(zs[-2].asnumpy()[0, 0])
    return total + float(zs[-1].asnumpy()[0, 0])


def a_sum_of_arrays(x, n):
    """The sum is an array of one number."""
    total, previous = nd.zeros((1,)), None
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        if previous is not None:
            total[:] = total.asscalar() + previous[0, 0].asscalar()
        previous = z
    return total.asscalar() + previous[0, 0].asscalar()


def with_a_generator(x, n):
    def values():
        previous = nd.dot(x, x).copyto(cpu())
        for _ in range(n - 1):
            z = nd.dot(x, x).copyto(cpu())
            yield previous[0, 0].asscalar()
            previous = z
        yield previous[0, 0].asscalar()

    return np.float32(sum(values()))


BEHIND_RIGHT = answers(
    one_number_travels, two_rounds_behind, whole_matrices, with_a_generator,
    behind_with(lambda y: None),
)  # fmt: skip


def test_one_round_behind_is_right(chapter, capsys):
    chapter["check_behind"](chapter["one_behind"])
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["copy may run beside dot", "values are read while the loop runs"]


@pytest.mark.parametrize("name", BEHIND_RIGHT)
def test_unusual_answers_one_round_behind_pass(chapter, name):
    chapter["check_behind"](BEHIND_RIGHT[name])


@pytest.mark.parametrize("hint", BEHIND_WRONG)
def test_every_mistake_one_round_behind_has_its_hint(chapter, hint):
    assert hint_of(chapter["check_behind"], BEHIND_WRONG[hint]) == hint


# -- both halves of an array -----------------------------------------------------------------------


def in_views(x, n):
    y = x.copy()
    middle = x.shape[0] // 2
    for _ in range(n):
        for half in (y[:middle], y[middle:]):
            nd.tanh(half, out=half)
    return y


def whole(x, n):
    for _ in range(n):
        x = nd.tanh(x)
    return x


def in_place_of_x(x, n):
    for _ in range(n):
        nd.tanh(x, out=x)
    return x


def a_list(x, n):
    return [whole(half, n) for half in x.split(num_outputs=2, axis=0)]


def upper_half_only(x, n):
    middle = x.shape[0] // 2
    return nd.concat(whole(x[:middle].copy(), n), x[middle:].copy(), dim=0)


def waits_for_each_half(x, n):
    halves = x.split(num_outputs=2, axis=0)
    for half in halves:
        half.wait_to_read()
    return nd.concat(*[whole(half, n) for half in halves], dim=0)


def once_too_often(x, n):
    return nd.concat(*[whole(half, n + 1) for half in x.split(num_outputs=2, axis=0)], dim=0)


HALVES_WRONG = {
    "needs": whole, "x": in_place_of_x, "shape": a_list,
    "values": upper_half_only, "waiting": waits_for_each_half,
}  # fmt: skip


def with_split(x, n):
    return nd.concat(*[whole(half, n) for half in x.split(num_outputs=2, axis=0)], dim=0)


def into_a_result(x, n):
    result, middle = nd.zeros(x.shape), x.shape[0] // 2
    top, bottom = whole(x[:middle].copy(), n), whole(x[middle:].copy(), n)
    result[:middle] = top
    result[middle:] = bottom
    return result


def row_by_row(x, n):
    return nd.stack(*[whole(row.copy(), n) for row in x], axis=0)


def buffers_of_its_own(x, n):
    halves = [half.copy() for half in x.split(num_outputs=2, axis=0)]
    for _ in range(n):
        for half in halves:
            nd.tanh(half, out=half)
    return nd.concat(*halves, dim=0)


def with_activation(x, n):
    halves = x.split(num_outputs=2, axis=0)
    for _ in range(n):
        halves = [nd.Activation(half, act_type="tanh") for half in halves]
    return nd.concat(*halves, dim=0)


HALVES_RIGHT = answers(with_split, into_a_result, row_by_row, buffers_of_its_own, with_activation)


def test_both_halves_are_right(chapter, capsys):
    chapter["check_halves"](chapter["halves_apart"])
    assert capsys.readouterr().out == "at most 0 waits in all\ntanh may run beside tanh\n"


@pytest.mark.parametrize("name", HALVES_RIGHT)
def test_unusual_answers_for_both_halves_pass(chapter, name):
    chapter["check_halves"](HALVES_RIGHT[name])


@pytest.mark.parametrize("hint", HALVES_WRONG)
def test_every_mistake_with_halves_has_its_hint(chapter, hint):
    assert hint_of(chapter["check_halves"], HALVES_WRONG[hint]) == hint
    assert hint_of(chapter["check_halves"], once_too_often) == "values"
    assert hint_of(chapter["check_halves"], in_views) == "needs"


@pytest.mark.parametrize("check", ["check_behind", "check_halves"])
def test_a_misspelt_name_comes_out_as_it_is(chapter, check):
    with pytest.raises(NameError, match="nothing_of_this_name"):
        chapter[check](lambda x, n: nothing_of_this_name)  # noqa: F821


def test_an_answer_that_does_nothing_is_told_so(chapter):
    assert hint_of(chapter["check_behind"], does_nothing) == "values"
    assert hint_of(chapter["check_halves"], does_nothing) == "shape"


# -- what the answers say --------------------------------------------------------------------------


def test_four_chains_on_two_and_on_three_workers(chapter):
    on_paper, steps = chapter["on_paper"], chapter["steps"]
    for program, expected in (("four_chains", [20, 20]), ("in_turns", [20, 14])):
        played = [on_paper(chapter[program], workers=n, _ones=0) for n in (2, 3)]
        assert [steps(trace) for trace in played] == expected


def test_one_array_with_two_names(chapter):
    with profile() as trace:
        x = nd.ones((2,))
        y = x
        y += 1
        z = x * 2
    assert str(trace.graph()).splitlines() == [
        "1 _ones", "2 _plus_scalar, after 1", "3 _mul_scalar, after 2"
    ]  # fmt: skip
    assert z.asnumpy().tolist() == [4, 4]


def test_copies_pushed_backwards_are_no_longer(chapter):
    def backwards():
        x = nd.ones((2, 2), ctx=gpu(0))
        for y in reversed([nd.dot(x, x) for _ in range(10)]):
            y.copyto(cpu())

    assert chapter["steps"](chapter["on_paper"](backwards, _ones=0)) == 11


def test_a_write_waits_for_the_reader_of_its_array_only(chapter):
    def written():
        b = nd.ones((2, 2))
        chapter["chain"](b, 5)
        b += 1

    def renewed():
        b = nd.ones((2, 2))
        chapter["chain"](b, 5)
        b = b + 1

    for program in (written, renewed):
        assert chapter["steps"](chapter["on_paper"](program, _ones=0)) == 5


def test_what_is_broken_says_what_the_answers_tell():
    x = nd.ones((2, 2))
    written = nd.ones((4, 4))
    engine.push(lambda: x.asnumpy(), reads=[x], writes=[written])
    with pytest.raises(MXNetError, match="reads"):
        nd.waitall()
    with virtual_gpus(1):
        x_old = nd.ones((2, 2), ctx=gpu(0))
    with pytest.raises(MXNetError, match=r"cpu\(\)"), virtual_gpus(3):
        print(x_old + 1)
