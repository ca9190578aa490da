"""Answers to the chapters' checked exercises, right and wrong, as readers write them.

Each module belongs to a chapter and has a dictionary CHECKS: the name of a check -> `Answers`. The
test that runs them all is `test_graders.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class Answers(NamedTuple):
    """name     of the function or class that the check is called with
    right   programs that define it in unusual ways, and pass
    wrong   (hint, program): each fails with this hint, which says what is really the matter

    A program sees the names of the chapter's first code cell, and those that the other cells
    define at their top level where `needs` names them."""

    name: str
    right: list[str]
    wrong: list[tuple[str, str]]
    needs: tuple[str, ...] = ()
