"""The first page: it names every chapter, its solution passes its own check, and each typical wrong
answer gets a hint of its own."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from chapter_cells import CHAPTERS, names_in, words_of

from d2lmini import d2l
from d2lmini.ops.spec import Cost

NAME = "index"


@pytest.fixture(scope="module")
def chapter() -> dict[str, Any]:
    """The names of the page's imports, of its check, and of the answers in its folds."""
    return names_in(NAME, "def check_flops")


def test_every_chapter_is_named_and_every_link_leads_somewhere():
    text = words_of(NAME)
    links = set(re.findall(r"\]\(([\w-]+\.ipynb)\)", text))
    assert links == {path.name for path in CHAPTERS.glob("*.ipynb")} - {f"{NAME}.ipynb"}
    for picture in re.findall(r'src="([^"]+)"', text):
        assert (CHAPTERS / picture).is_file(), picture


def test_the_solution_is_right(chapter):
    assert chapter["check_flops"](chapter["flops"]).startswith("right")


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


def test_every_mistake_has_its_hint(chapter):
    hints = {}
    for answer in (
        halves, without_biases, halves_without_biases, of_one_example, a_bias_for_the_batch,
        with_backward, bytes_of_it,
    ):  # fmt: skip
        with pytest.raises(AssertionError) as caught:
            chapter["check_flops"](answer)
        hints[answer] = str(caught.value).splitlines()[0]
    assert len(set(hints.values())) == len(hints)
    assert "biases are missing" in hints[without_biases]
    assert "two operations" in hints[halves]
    assert "one example" in hints[of_one_example]
    assert "forward only" in hints[with_backward]


def test_what_is_broken_says_what_the_answers_tell():
    with pytest.raises(ValueError, match="or None for all cores, got 3"):
        d2l.machine().at_least_s(Cost(1.0, 1.0), threads=3)
    verdict = d2l.compare({"a": lambda: None, "b": lambda: None}, rounds=2)
    assert str(verdict).startswith("verdict: too few rounds")
