"""The exercises of the chapters on automatic parallelism and on parallelism across devices: their
solutions and unusual right answers pass the checks, each typical wrong answer gets its hint, and
what the answers say of schedules is so."""

from __future__ import annotations

import itertools
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


@pytest.fixture(scope="module")
def devices() -> dict[str, Any]:
    """The same of the chapter on parallelism across devices."""
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


@pytest.mark.parametrize("check", ["check_behind", "check_halves"])
def test_a_misspelt_name_comes_out_as_it_is(chapter, check):
    with pytest.raises(NameError, match="nothing_of_this_name"):
        chapter[check](lambda x, n: nothing_of_this_name)  # noqa: F821


@pytest.mark.parametrize("check", ["check_deal", "check_sum"])
def test_a_misspelt_name_comes_out_there_too(devices, check):
    with pytest.raises(NameError, match="nothing_of_this_name"):
        devices[check](lambda one, other: nothing_of_this_name)  # noqa: F821


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
    with pytest.raises(MXNetError, match="gflops"):
        virtual_gpus(2, gflops=[1])
