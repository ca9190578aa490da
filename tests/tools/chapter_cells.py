"""What stands in a chapter, for the tests of its exercises: code and words."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labs.grading import CheckFailed

from d2lmini.cli.files import find_chapter

CHAPTERS = Path(__file__).parent.parent.parent / "chapters"


def code_of(name: str) -> list[str]:
    """The sources of a chapter's code cells."""
    return _sources(name, "code")


def words_of(name: str) -> str:
    """All its markdown."""
    return "\n\n".join(_sources(name, "markdown"))


def names_in(name: str, *needs: str) -> dict[str, Any]:
    """The names that a chapter has after its first cell, and those of `needs`: functions, classes
    and variables that its other cells define."""
    first, *others = code_of(name)
    place: dict[str, Any] = {}
    exec(first, place)
    for source in (source for source in others if not source.startswith("%")):
        for statement in ast.parse(source).body:
            defined = {getattr(statement, "name", None)}
            defined |= {getattr(t, "id", None) for t in getattr(statement, "targets", [])}
            if defined & {*needs}:
                exec(ast.get_source_segment(source, statement) or "", place)
    return place


def hint_of(check: Callable[..., Any], *given: Any, **options: Any) -> str:
    """The hint by which a check turns a wrong answer down; it has to say some words, too."""
    with pytest.raises(CheckFailed) as caught:
        check(*given, **options)
    assert len(str(caught.value)) > 30
    return caught.value.hint


def _sources(name: str, kind: str) -> list[str]:
    cells = json.loads(find_chapter(name).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]
