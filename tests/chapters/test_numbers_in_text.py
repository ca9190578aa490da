"""A chapter's text states no measured number: a cell prints it, or the sentence is conditional."""

from pathlib import Path

import pytest
from numbers_in_text import LISTED, Listed, code_of, find, read, unused

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_each_number_is_computed_or_conditional(path):
    left = [sentence.text for sentence in find(path.stem, read(path)) if not sentence.kind]
    assert not left, left


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_each_row_of_the_list_excuses_one_sentence_and_proves_why(path):
    text, code = read(path), code_of(path)
    assert not unused(path.stem, text)
    rows = [row for row in LISTED if path.stem.startswith(row.chapter)]
    assert all(row.holds(code) for row in rows), [row for row in rows if not row.holds(code)]


@pytest.mark.parametrize(
    "text",
    [
        "The loop took 23 us of arithmetic.",
        "The net trains 1,200 images/s.",
        "`x * x` reaches 230 % of the limit.",
        "Overhead is forty per cent of it.",
        "The second loop is three times as fast.",
        "One is twice as fast as the other.",
        "The gain is a factor of 3.",
        "The accuracy falls to 0.514.",
        "<details><summary>Answer</summary>\n\nIt takes 7 s.\n\n</details>",
        "While the front end waits, the worker needs 12 ms.",
        "If it rains, wait. The worker needs 12 ms.",
        "**Keep.** Wait once.\n\nThe worker needs 12 ms.",
    ],
)
def test_a_measured_number_is_found(text):
    assert [sentence.kind for sentence in find("chapter", text)] == [""]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("given", "**Your prediction.** A link moves 10 GB/s. How long does it take?"),
        ("given", "text\n\n## Exercises\n\n### Recall\n\n1. The disk takes 10 ms."),
        ("question", "## 3. Is it ten times as fast?"),
        ("conditional", "If the disk takes 10 ms, wait."),
        ("conditional", "At 50 GFLOP/s this would be 7 µs; your rate differs."),
        ("conditional", "As long as the queue is full, it is twice as fast."),
    ],
)
def test_a_number_that_is_given_or_conditional_may_stand(kind, text):
    assert {sentence.kind for sentence in find("chapter", text)} == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "An array has 16 million bytes.",
        "The cell runs three times.",
        "It computes $10\\,ms$ of work.",
        "```python\nsleep(10)  # 10 ms\n```",
        "`virtual_gpus(2, gflops=20)` has two.",
        '<img src="a.svg" alt="a copy of 10 ms">',
        "[a page](10 ms.html)",
        "In MXNet 1.9.1 a result gets its memory late.",
    ],
)
def test_other_numbers_are_none_of_them(text):
    assert find("chapter", text) == []


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (Listed("05", "", "set", "gflops=0.025"), True),
        (Listed("05", "", "set", "gflops=0.25"), False),
        (Listed("05", "", "arithmetic", "2 * 100**3 / 0.025e9 == 0.08"), True),
        (Listed("05", "", "arithmetic", "2 * 100**3 / 0.025e9 == 0.8"), False),
        (Listed("05", "", "published", "the book, section 8.2"), True),
        (Listed("05", "", "published", ""), False),
        (Listed("05", "", "because", "it is so indeed"), False),
    ],
)
def test_a_reason_has_a_proof(row, holds):
    assert row.holds("virtual_gpus(2, gflops=0.025)") is holds
