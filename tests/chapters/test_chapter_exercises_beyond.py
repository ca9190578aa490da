"""The exercises of the chapter on several processes: its solutions pass its own checks, each
typical wrong answer gets a hint of its own, and what its texts say of the model is so."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pytest
from chapter_cells import code_of, hint_of, names_in, words_of

from d2lmini.d2l import cluster
from d2lmini.d2l.cluster import Link
from d2lmini.distributed import dist

NAME = "beyond-one-machine"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The checks, and the answers in the chapter's folds."""
    begins = "def check_plan", "LONG", "def check_halving", "def why_amiss", "def buckets_of"
    return names_in(NAME, *begins, "def after_rounds")


# -- 7: which gradients travel together ------------------------------------------------------------


def backwards(work):
    return list(reversed(range(len(work.gradients))))


def each_by_itself(work, link):
    return [[i] for i in backwards(work)]


def all_together(work, link):
    return [backwards(work)]


def two_by_two(work, link):
    order = backwards(work)
    return [order[i : i + 2] for i in range(0, len(order), 2)]


def as_the_library(work, link):
    return cluster._buckets(work)


def the_first_layer_first(work, link):
    return [[i] for i in range(len(work.gradients))]


def without_the_first_layer(work, link):
    return each_by_itself(work, link)[:-1]


def the_last_one_in_two(work, link):
    return [*each_by_itself(work, link), [0]]


def test_every_cut_tried_is_the_shortest_plan(chapter, capsys):
    chapter["check_plan"](chapter["plan"])
    told = "no plan is shorter, for three nets and five random ones\n"
    assert capsys.readouterr().out == told


def by_recursion(chapter):
    """Unusual, and right: the first bucket, and the best plan for the rest."""

    def plans(order):
        yield [order]
        for k in range(1, len(order)):
            yield from ([order[:k], *rest] for rest in plans(order[k:]))

    def answer(work, link):
        return min(plans(backwards(work)), key=lambda plan: chapter["seconds_of"](work, link, plan))

    return answer


UNUSUAL_PLANS = {
    "recursion": by_recursion,
    "tuples": lambda c: lambda *given: tuple(map(tuple, c["plan"](*given))),
    "a generator": lambda c: lambda *given: (bucket for bucket in c["plan"](*given)),
    "arrays": lambda c: lambda *given: [np.array(bucket) for bucket in c["plan"](*given)],
    "sorted buckets": lambda c: lambda *given: [sorted(bucket) for bucket in c["plan"](*given)],
    "an empty bucket": lambda c: lambda *given: [*c["plan"](*given), []],
}


@pytest.mark.parametrize("name", UNUSUAL_PLANS)
def test_an_unusual_right_plan_passes(chapter, name, capsys):
    chapter["check_plan"](UNUSUAL_PLANS[name](chapter))
    assert capsys.readouterr().out.startswith("no plan is shorter")


def test_an_error_in_an_answer_is_raised_as_it_is(chapter):
    with pytest.raises(NameError, match="gradients"):
        chapter["check_plan"](lambda work, link: [gradients])  # noqa: F821
    with pytest.raises(NameError, match="rnak"):
        chapter["check_halving"](lambda rank, n: [(rnak, 0, n, True)])  # noqa: F821


def does_nothing(*given):
    """Returns None."""


def test_every_mistake_has_its_hint(chapter):
    answers = (
        each_by_itself, all_together, two_by_two, as_the_library, the_first_layer_first,
        without_the_first_layer, the_last_one_in_two, does_nothing,
    )  # fmt: skip
    hints = {each.__name__: hint_of(chapter["check_plan"], each) for each in answers}
    assert hints == {
        "each_by_itself": "single",
        "all_together": "whole",
        "two_by_two": "even",
        "as_the_library": "late",
        "the_first_layer_first": "order",
        "without_the_first_layer": "left",
        "the_last_one_in_two": "twice",
        "does_nothing": "none",
    }


# -- 8: a sum by halving ---------------------------------------------------------------------------


def whole_array_each_time(rank, n):
    """A butterfly: all of it to a partner, with as many rounds again in which nothing is new."""
    there = [(rank ^ 2**k, 0, n, True) for k in range(int(math.log2(n)))]
    return there + [(partner, 0, n, False) for partner, *_ in there]


def only_one_way(rank, n):
    return [(rank ^ 2**k, 0, n, True) for k in range(int(math.log2(n)))]


def ring(rank, n):
    return [((rank + 1) % n, rank, rank + 1, True)] * (2 * int(math.log2(n)))


def halves(rank, n, solution, add_back=False, upside_down=False, replace=False):
    """The solution, with a mistake."""
    half = int(math.log2(n))
    found = []
    for k, (partner, first, end, add) in enumerate(solution(rank, n)):
        if upside_down and k == 0:
            first, end = (n // 2, n) if first == 0 else (0, n // 2)
        found.append((partner, first, end, (add and not replace) or (add_back and k >= half)))
    return found


def there_and_back(rank, n, distances, keep_upper):
    """Halves in any order of the distances, and the same way back."""
    rounds, parts = [], [(0, n)]
    for distance in distances:
        first, end = parts[-1]
        half = (first + end) // 2
        lower, upper = (first, half), (half, end)
        keep, send = (upper, lower) if keep_upper(rank, distance) else (lower, upper)
        rounds.append((rank ^ distance, *send, True))
        parts.append(keep)
    for distance in reversed(distances):
        rounds.append((rank ^ distance, *parts.pop(), False))
    return rounds


def is_set(rank, distance):
    return bool(rank & distance)


def is_clear(rank, distance):
    return not rank & distance


def powers(n):
    return [2**k for k in range(int(math.log2(n)))]


UNUSUAL_HALVINGS = {
    "near partners first": lambda r, n: there_and_back(r, n, powers(n), is_set),
    "the other half": lambda r, n: there_and_back(r, n, powers(n)[::-1], is_clear),
    "both": lambda r, n: there_and_back(r, n, powers(n), is_clear),
    "a generator": lambda r, n: iter(there_and_back(r, n, powers(n)[::-1], is_set)),
    "in turns": lambda r, n: there_and_back(r, n, [*powers(n)[1:], *powers(n)[:1]], is_set),
}


@pytest.mark.parametrize("name", UNUSUAL_HALVINGS)
def test_an_unusual_right_schedule_passes(chapter, name, capsys):
    chapter["check_halving"](UNUSUAL_HALVINGS[name])
    assert "16 processes: each has each sum, and sends 30 pieces" in capsys.readouterr().out


def test_halving_is_right(chapter, capsys):
    chapter["check_halving"](chapter["halving"])
    told = (
        "8 processes: each has each sum, and sends 14 pieces\n2 processes: each has each sum, and"
    )
    assert capsys.readouterr().out.startswith(told)


def test_every_mistake_has_its_hint_there_too(chapter):
    right = chapter["halving"]
    answers = {
        "only one way": only_one_way,
        "to the neighbour": ring,
        "the whole array each time": whole_array_each_time,
        "added on the way back": lambda r, n: halves(r, n, right, add_back=True),
        "sends what it keeps": lambda r, n: halves(r, n, right, upside_down=True),
        "never adds": lambda r, n: halves(r, n, right, replace=True),
        "for eight only": lambda r, n: right(r % 8, 8),
        "returns nothing": lambda r, n: None,
    }
    hints = {name: hint_of(chapter["check_halving"], each) for name, each in answers.items()}
    assert hints == {
        "only one way": "rounds",
        "to the neighbour": "partner",
        "the whole array each time": "bytes",
        "added on the way back": "counted",
        "sends what it keeps": "missing",
        "never adds": "add",
        "for eight only": "rounds",
        "returns nothing": "none",
    }


# -- what the texts say ----------------------------------------------------------------------------


def test_programs_that_are_written_to_files_are_python_and_no_longer_than_a_cell():
    written = [code for code in code_of(NAME) if code.startswith("%%writefile")]
    assert len(written) == 7
    for code in written:
        ast.parse(code.partition("\n")[2])


def test_without_an_mpi_nothing_is_run_and_the_reader_told(capsys):
    place = {}
    code = next(code for code in code_of(NAME) if "def launch" in code)
    exec(code_of(NAME)[0], place)
    exec(code.partition("\n\n\nplaces =")[0], place)
    place["mpi"] = False
    assert place["launch"](2, "hello.py") == (None, [])
    assert "there is no MPI" in capsys.readouterr().out
    assert "pip install 'd2lmini[dist]'" in code


def test_what_section_5_says_of_alpha():
    work = cluster.work_of([(0.002, 0.004, 250_000)] * 8)
    plans = {"singly": [[i] for i in reversed(range(8))], "whole": [list(reversed(range(8)))]}
    plans["pairs"] = [[7, 6], [5, 4], [3, 2], [1, 0]]
    for alpha_s, best in ((0, "singly"), (1e-3, "pairs"), (0.02, "whole")):
        link = Link(alpha_s, 1 / 0.05e9)
        times = {
            k: cluster.step(work, 2, link, buckets=b, wait_for_all=True).seconds
            for k, b in plans.items()
        }
        assert min(times, key=times.get) == best


def test_what_section_5_says_of_the_next_forward():
    """To update each bucket by itself gains nothing; that every third one stays behind does."""
    work = cluster.work_of([(0.002, 0.004, 250_000)] * 8)
    link = Link(0.2e-3, work.compute_s / 2.2e6)
    singly = [[i] for i in reversed(range(8))]
    waiting, each, in_turns = (
        cluster.step(work, 2, link, buckets=buckets, wait_for_all=all_of_them).seconds
        for buckets, all_of_them in (
            (singly, True), (singly, False), (dist.in_turns(singly), False)
        )
    )  # fmt: skip
    assert each == pytest.approx(waiting) and in_turns < 0.9 * each
    code = next(code for code in code_of(NAME) if "in_turns = " in code)
    assert f"in_turns = {dist.in_turns(singly)}" in code


def test_what_section_7_says_of_ways():
    work = cluster.work_of([(0.001, 0.002, 2_000_000)] * 50)
    thin, wide = Link(30e-6, 1 / 1.1e9, 1e-6), Link(5e-6, 1 / 11e9, 1e-6)

    def efficiency(link, way, n):
        return cluster.scaling(work, link, (n,), way=way).at(n).efficiency

    assert all(efficiency(thin, way, 8) < 0.9 for way in cluster.WAYS)
    assert efficiency(wide, "halving", 4096) > 0.97
    at_512 = [efficiency(wide, way, 512) for way in ("server", "ring", "tree", "shares", "halving")]
    assert at_512 == sorted(at_512)
    assert efficiency(wide, "shares", 4096) < 0.5


def test_its_picture_and_its_links_are_named():
    words = words_of(NAME)
    assert "../img/beyond-one-machine.svg" in words
    assert "(06-multiple-gpus.ipynb)" in words
