"""The exercises of the chapter on parallel devices: their solutions and unusual right
answers pass the checks, each typical wrong answer gets its hint, and what the answers say of
schedules is so."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from chapter_cells import hint_of, names_in

from d2lmini import MXNetError, engine, gpu, nd, profile, virtual_gpus


@pytest.fixture(scope="module")
def devices() -> dict[str, Any]:
    """What runs a program on paper, the checks, and the answers in the chapter's folds."""
    begins = (
        "def length_ms",
        "def dealt",
        "def greedy",
        "HINTS",
        "def check_deal",
        "def check_sum",
    )
    return names_in("parallel-devices", *begins)


def answers(*functions) -> dict[str, Any]:
    return {function.__name__: function for function in functions}


def does_nothing(*given):
    return None


# -- a deal ----------------------------------------------------------------------------------------


def all_to_the_first(costs, speeds):
    return [0] * len(costs)


def in_turns(costs, speeds):
    return [k % len(speeds) for k in range(len(costs))]


def equal_loads(costs, speeds):
    loads, devices = [0.0] * len(speeds), [0] * len(costs)
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        devices[k] = loads.index(min(loads))
        loads[devices[k]] += costs[k]
    return devices


def first_half_and_the_rest(costs, speeds):
    return [k * len(speeds) // len(costs) for k in range(len(costs))]


def as_they_come(costs, speeds):
    done_at, devices = [0.0] * len(speeds), []
    for cost in costs:
        then = [at + cost / speed for at, speed in zip(done_at, speeds)]
        devices.append(then.index(min(then)))
        done_at[devices[-1]] = min(then)
    return devices


def names_them_from_one(costs, speeds):
    return [1 + k % len(speeds) for k in range(len(costs))]


def one_too_few(costs, speeds):
    return in_turns(costs, speeds)[:-1]


DEAL_WRONG = {
    "idle": all_to_the_first, "turns": in_turns, "speeds": equal_loads,
    "blocks": first_half_and_the_rest, "order": as_they_come, "device": names_them_from_one,
    "count": one_too_few, "nothing": does_nothing,
}  # fmt: skip


def tries_every_deal(costs, speeds):
    def end(devices):
        loads = [sum(c for c, d in zip(costs, devices) if d == i) for i in range(len(speeds))]
        return max(load / speed for load, speed in zip(loads, speeds))

    return min(itertools.product(range(len(speeds)), repeat=len(costs)), key=end)


def later_at_a_tie(costs, speeds):
    done_at, devices = [0.0] * len(speeds), [0] * len(costs)
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        then = {i: done_at[i] + costs[k] / speeds[i] for i in range(len(speeds))}
        devices[k] = min(reversed(then), key=lambda i: round(then[i], 9))
        done_at[devices[k]] = then[devices[k]]
    return devices


def as_an_array(costs, speeds):
    return np.array(tries_every_deal(costs, speeds))


def as_a_generator(costs, speeds):
    yield from tries_every_deal(costs, speeds)


def sorts_its_list(costs, speeds):
    devices = dict(enumerate(tries_every_deal(costs, speeds)))
    costs.sort()
    return [float(devices[k]) for k in range(len(costs))]


DEAL_RIGHT = answers(tries_every_deal, later_at_a_tie, as_an_array, as_a_generator, sorts_its_list)


def test_the_largest_first_is_right(devices, capsys):
    devices["check_deal"](devices["deal"])
    assert capsys.readouterr().out == "three deals, each as short as possible\n"


@pytest.mark.parametrize("name", DEAL_RIGHT)
def test_unusual_deals_pass(devices, name):
    devices["check_deal"](DEAL_RIGHT[name])


@pytest.mark.parametrize("hint", DEAL_WRONG)
def test_every_mistake_of_a_deal_has_its_hint(devices, hint):
    assert hint_of(devices["check_deal"], DEAL_WRONG[hint]) == hint


def test_a_deal_learnt_by_heart_fails(devices):
    """Of many drawn instances one answer is right for few."""
    costs, speeds, _ = devices["draw_deal"](np.random.default_rng(1))
    learnt = devices["deal"](costs, speeds)
    with pytest.raises(devices["Wrong"]):
        for _ in range(5):
            devices["check_deal"](lambda costs, speeds: learnt)


# -- one sum of both devices -----------------------------------------------------------------------


def squares(xs):
    return [nd.dot(x, x) for x in xs]


def each_travels(lefts, rights):
    return nd.add_n(*squares(lefts), *[y.as_in_context(gpu(0)) for y in squares(rights)])


def inputs_travel(lefts, rights):
    return nd.add_n(*squares([*lefts, *[x.as_in_context(gpu(0)) for x in rights]]))


def on_the_second(lefts, rights):
    return nd.add_n(*squares(lefts)).as_in_context(gpu(1)) + nd.add_n(*squares(rights))


def one_after_the_other(lefts, rights):
    left = nd.add_n(*squares(lefts))
    nd.waitall()
    return left + nd.add_n(*squares(rights)).as_in_context(gpu(0))


def one_side(lefts, rights):
    return nd.add_n(*squares(lefts)) * 2 + nd.dot(rights[0], rights[0]).as_in_context(gpu(0))


def by_numpy(lefts, rights):
    total = sum(y.asnumpy() for y in [*squares(lefts), *squares(rights)])
    return nd.array(total, ctx=gpu(0))


SUM_WRONG = {
    "copies": each_travels, "place": on_the_second, "waitall": one_after_the_other,
    "values": one_side, "reading": by_numpy, "nothing": does_nothing,
}  # fmt: skip


def in_a_loop(lefts, rights):
    sums = []
    for xs in (lefts, rights):
        total = nd.zeros(xs[0].shape, ctx=xs[0].context)
        for x in xs:
            total += nd.dot(x, x)
        sums.append(total)
    return sums[0] + sums[1].copyto(gpu(0))


def the_second_first(lefts, rights):
    away = sum(squares(rights)).as_in_context(lefts[0].context)
    return away + sum(squares(lefts))


def written_into(lefts, rights):
    total = nd.zeros(lefts[0].shape, ctx=gpu(0))
    nd.add_n(*squares(rights)).copyto(total)
    for y in squares(lefts):
        total += y
    return total


def in_turns_over_both(lefts, rights):
    left, right = 0, 0
    for a, b in zip(lefts, rights):
        left, right = nd.dot(a, a) + left, nd.dot(b, b) + right
    return left + right.as_in_context(gpu(0))


def stacked(lefts, rights):
    """One product of a batch on each device."""
    sums = [nd.batch_dot(x, x).sum(axis=0) for x in (nd.stack(*xs) for xs in (lefts, rights))]
    return sums[0] + sums[1].as_in_context(gpu(0))


SUM_RIGHT = answers(in_a_loop, the_second_first, written_into, in_turns_over_both, stacked)


def test_one_copy_is_right(devices, capsys):
    devices["check_sum"](devices["sum_once"])
    assert capsys.readouterr().out.endswith("dot may run beside dot\n")


@pytest.mark.parametrize("name", SUM_RIGHT)
def test_unusual_sums_pass(devices, name):
    devices["check_sum"](SUM_RIGHT[name])


@pytest.mark.parametrize("hint", SUM_WRONG)
def test_every_mistake_of_a_sum_has_its_hint(devices, hint):
    assert hint_of(devices["check_sum"], SUM_WRONG[hint]) == hint
    assert hint_of(devices["check_sum"], inputs_travel) == "copies"


@pytest.mark.parametrize("check", ["check_deal", "check_sum"])
def test_a_misspelt_name_comes_out_as_it_is(devices, check):
    with pytest.raises(NameError, match="nothing_of_this_name"):
        devices[check](lambda one, other: nothing_of_this_name)  # noqa: F821


# -- what the answers say --------------------------------------------------------------------------


def test_three_gpus_in_a_row(devices):
    def program():
        devices["pipeline"](nd.ones((2, 2), ctx=gpu(0)))

    for copy in (0.25, 0.5):
        trace = devices["on_paper"](program, _ones=0, CopyGPU2GPU=copy)
        assert devices["length_ms"](trace) == 12 + 2 * copy


def test_twenty_products_on_unequal_devices(devices):
    for counts, expected in (((13, 7), 14), ((14, 6), 14), ((20, 0), 20), ((0, 20), 40)):
        with virtual_gpus(2, gflops=[2, 1]), engine.stepped(), profile() as trace:
            devices["dealt"](*counts)()
        products = [op for op in trace.operations if op.name == "dot"]
        ends = max(op.ended_ns for op in products) - min(op.began_ns for op in products)
        assert ends / 1e6 == pytest.approx(expected, rel=0.01)


def test_a_list_of_rates_has_one_for_each_device():
    with pytest.raises(MXNetError, match="gflops"):
        virtual_gpus(2, gflops=[1])
