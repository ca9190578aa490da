"""The exercises of the chapter on automatic parallelism: its solutions pass its own checks, each
typical wrong answer gets a hint of its own, and what its answers say of schedules is so."""

from __future__ import annotations

from typing import Any

import pytest
from chapter_cells import hint_of, names_in

from d2lmini import MXNetError, cpu, engine, gpu, nd, profile, virtual_gpus


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """What plays a program on paper, the checks, and the answers in the chapter's folds."""
    checks = ("def check_behind", "def check_deal", "HINTS")
    return names_in("auto-parallelism", "def on_paper", *checks)


# -- 7: one round behind ---------------------------------------------------------------------------


def looks_at_once(x, n):
    total = 0
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        total += z[0, 0].asscalar()
    return total


def looks_at_the_end(x, n):
    z = [nd.dot(x, x).copyto(cpu()) for _ in range(n)]
    return sum(each[0, 0].asscalar() for each in z)


def waits_for_all_besides(x, n):
    total, previous = 0, None
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        nd.waitall()
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()


def waits_for_the_product_besides(x, n):
    total, previous = 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        y.wait_to_read()
        z = y.copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()


def one_buffer(x, n):
    total, previous, y = 0, None, nd.zeros(x.shape, ctx=x.context)
    for _ in range(n):
        nd.dot(x, x, out=y)
        z = y.copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()


def one_number_travels(x, n):
    """Right: asscalar brings home one number of the round before."""
    total, previous = 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        if previous is not None:
            total += previous.asscalar()
        previous = y[0, 0]
    return total + previous.asscalar()


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


def test_one_round_behind_is_right(chapter, capsys):
    chapter["check_behind"](chapter["one_behind"])
    assert capsys.readouterr().out == (
        "at most 10 waits in all\ncopy may run beside dot\nvalues come while the loop runs\n"
    )


def test_one_number_may_travel_in_place_of_the_matrix(chapter):
    chapter["check_behind"](one_number_travels)


def test_every_mistake_has_its_hint(chapter):
    answers = (
        looks_at_once, looks_at_the_end, waits_for_all_besides, waits_for_the_product_besides,
        one_buffer, stays_on_the_cpu,
    )  # fmt: skip
    hints = {each.__name__: hint_of(chapter["check_behind"], each) for each in answers}
    assert hints == {
        "looks_at_once": "waits",
        "looks_at_the_end": "late",
        "waits_for_all_besides": "waits",
        "waits_for_the_product_besides": "waiting",
        "one_buffer": "room",
        "stays_on_the_cpu": "needs",
    }
    with pytest.raises(AssertionError, match="another sum"):
        chapter["check_behind"](forgets_the_last)


# -- 8: a deal -------------------------------------------------------------------------------------


def all_to_the_first(costs, speeds):
    return [0] * len(costs)


def in_turns(costs, speeds):
    return [k % len(speeds) for k in range(len(costs))]


def equal_loads(costs, speeds):
    loads = [0.0] * len(speeds)
    devices = [0] * len(costs)
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        devices[k] = loads.index(min(loads))
        loads[devices[k]] += costs[k]
    return devices


def first_half_and_the_rest(costs, speeds):
    return [int(k >= len(costs) // 2) for k in range(len(costs))]


def as_they_come(costs, speeds):
    done_at = [0.0] * len(speeds)
    devices = []
    for cost in costs:
        then = [at + cost / speed for at, speed in zip(done_at, speeds)]
        devices.append(then.index(min(then)))
        done_at[devices[-1]] = min(then)
    return devices


def names_them_from_one(costs, speeds):
    return [1 + k % len(speeds) for k in range(len(costs))]


def one_too_few(costs, speeds):
    return in_turns(costs, speeds)[:-1]


def test_the_largest_first_is_right(chapter, capsys):
    chapter["check_deal"](chapter["deal"])
    assert capsys.readouterr().out == "done after 6 steps: nobody could do better\n"


def test_every_mistake_has_its_hint_there_too(chapter):
    answers = (
        all_to_the_first, in_turns, equal_loads, first_half_and_the_rest, as_they_come,
        names_them_from_one, one_too_few,
    )  # fmt: skip
    hints = {each.__name__: hint_of(chapter["check_deal"], each) for each in answers}
    assert hints == {
        "all_to_the_first": "idle",
        "in_turns": "turns",
        "equal_loads": "speeds",
        "first_half_and_the_rest": "blocks",
        "as_they_come": "order",
        "names_them_from_one": "device",
        "one_too_few": "count",
    }


# -- what the answers say --------------------------------------------------------------------------


def test_four_chains_on_two_and_on_three_workers(chapter):
    on_paper, steps = chapter["on_paper"], chapter["steps"]
    for program, expected in (("four_chains", [20, 20]), ("in_turns", [20, 14])):
        played = [on_paper(chapter[program], workers=n, _ones=0) for n in (2, 3)]
        assert [steps(each) for each in played] == expected


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
        for index in reversed([nd.dot(x, x) for _ in range(10)]):
            index.copyto(cpu())

    assert chapter["steps"](chapter["on_paper"](backwards, _ones=0)) == 11


def test_three_gpus_in_a_row(chapter):
    def program():
        chapter["pipeline"](nd.ones((2, 2), ctx=gpu(0)))

    for copy in (0.25, 0.5):
        trace = chapter["on_paper"](program, _ones=0, CopyGPU2GPU=copy)
        assert chapter["steps"](trace) == 12 + 2 * copy


def test_what_is_broken_says_what_the_answers_tell():
    x = nd.ones((2, 2))
    whole = nd.ones((4, 4))
    engine.push(lambda: x.asnumpy(), reads=[x], writes=[whole])
    with pytest.raises(MXNetError, match="reads"):
        nd.waitall()
    with virtual_gpus(1):
        x_old = nd.ones((2, 2), ctx=gpu(0))
    with pytest.raises(MXNetError, match=r"cpu\(\)"), virtual_gpus(3):
        print(x_old + 1)
