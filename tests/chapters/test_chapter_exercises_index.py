"""The first page: it names every chapter, its solution passes its own check, and each typical wrong
answer gets a hint of its own."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from chapter_cells import CHAPTERS, hint_of, names_in, words_of

from d2lmini import d2l, nd
from d2lmini.cli.files import find_chapter
from d2lmini.ops.spec import Cost

NAME = "index"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the page's imports, of its check, and of the answers in its folds."""
    return names_in(NAME, "def check_flops", "def why_flops")


def test_every_chapter_is_named_and_every_link_leads_somewhere():
    text = words_of(NAME)
    links = set(re.findall(r"\]\(([\w-]+\.ipynb)\)", text))
    assert links == {path.name for path in CHAPTERS.glob("*.ipynb")} - {find_chapter(NAME).name}
    for picture in re.findall(r'src="([^"]+)"', text):
        assert (CHAPTERS / picture).is_file(), picture


def test_every_row_of_the_hardware_table_has_a_source():
    text = words_of(NAME)
    table = text.partition("| from | latency |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    known = set(re.findall(r"^(\d)\. ", text.partition("\n## Sources\n")[2], re.M))
    named = [set(re.findall(r"\[(\d)\]", row)) for row in rows]
    assert len(rows) >= 10 and all(named), rows
    assert set().union(*named) <= known == set("123456")


def test_the_solution_is_right(chapter):
    assert chapter["check_flops"](chapter["flops"]).startswith("right")


def with_numpy(widths, batch):
    """Unusual, and right."""
    m, n = np.array(widths[:-1]), np.array(widths[1:])
    return (batch * (2 * m + 1) * n).sum()


def as_float(widths, batch):
    return float(batch) * sum(n * (1 + 2 * m) for m, n in pairwise(widths))


def from_the_end(widths, batch):
    *first, m, n = widths
    rest = from_the_end([*first, m], batch) if first else 0
    return rest + batch * n + batch * n * m + batch * n * m


def by_the_library(widths, batch):
    return sum(
        nd.FullyConnected.cost(
            [((batch, m), "float32"), ((n, m), "float32"), ((n,), "float32")], num_hidden=n
        ).flops
        for m, n in pairwise(widths)
    )


def each_example(widths, batch):
    return sum(2 * m * n + n for _ in range(batch) for m, n in pairwise(widths))


@pytest.mark.parametrize(
    "answer", [with_numpy, as_float, from_the_end, by_the_library, each_example]
)
def test_an_unusual_right_answer_passes(chapter, answer):
    assert chapter["check_flops"](answer).startswith("right")


def halves(widths, batch):
    return sum(batch * m * n + batch * n for m, n in pairwise(widths))


def without_biases(widths, batch):
    return sum(2 * batch * m * n for m, n in pairwise(widths))


def halves_without_biases(widths, batch):
    return sum(batch * m * n for m, n in pairwise(widths))


def of_one_example(widths, batch):
    return sum(2 * m * n + n for m, n in pairwise(widths))


def a_bias_for_the_batch(widths, batch):
    return sum(2 * batch * m * n + n for m, n in pairwise(widths))


def with_backward(widths, batch):
    return 3 * sum(2 * batch * m * n + batch * n for m, n in pairwise(widths))


def bytes_of_it(widths, batch):
    return sum(4 * (batch * m + m * n + batch * n) for m, n in pairwise(widths))


def of_the_example_in_the_text(widths, batch):
    return sum(64 * (2 * m * n + n) for m, n in pairwise((512, 256, 128, 2)))


def does_nothing(widths, batch):
    """Returns None."""


WRONG = {
    halves: "two", without_biases: "biases", halves_without_biases: "both",
    of_one_example: "batch", a_bias_for_the_batch: "each", with_backward: "backward",
    bytes_of_it: "other", of_the_example_in_the_text: "other", does_nothing: "none",
}  # fmt: skip


@pytest.mark.parametrize("answer", WRONG)
def test_every_mistake_has_its_hint(chapter, answer):
    assert hint_of(chapter["check_flops"], answer) == WRONG[answer]


def test_an_error_in_an_answer_is_raised_as_it_is(chapter):
    with pytest.raises(NameError, match="pairs"):
        chapter["check_flops"](lambda widths, batch: sum(m * n for m, n in pairs(widths)))  # noqa: F821


def test_what_is_broken_says_what_the_answers_tell():
    with pytest.raises(ValueError, match="or None for all cores, got 3"):
        d2l.machine().at_least_s(Cost(1.0, 1.0), threads=3)
    verdict = d2l.compare({"a": lambda: None, "b": lambda: None}, rounds=2)
    assert str(verdict).startswith("verdict: too few rounds")
