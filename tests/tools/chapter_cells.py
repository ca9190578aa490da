"""What stands in a chapter, for the tests of its exercises: code, words, and the folded answers."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d2lmini.cli.files import find_chapter
from d2lmini.d2l.check import Wrong

CHAPTERS = Path(__file__).parent.parent.parent / "chapters"


def code_of(name: str) -> list[str]:
    """The sources of a chapter's code cells."""
    return _sources(name, "code")


def words_of(name: str) -> str:
    """All its markdown."""
    return "\n\n".join(_sources(name, "markdown"))


def answers_of(name: str) -> list[str]:
    """The Python in its folds, in their order."""
    folds = re.findall(r"<details>.*?</details>", words_of(name), re.S)
    return [block for fold in folds for block in re.findall(r"```python\n(.*?)```", fold, re.S)]


def names_in(name: str, *begins: str) -> dict[str, Any]:
    """The names that a chapter has after its first cell, those in which a line begins with one of
    `begins`, and the answers in its folds."""
    code = code_of(name)
    place: dict[str, Any] = {}
    exec(code[0], place)
    for source in code[1:]:
        if any(line.startswith(begins) for line in source.splitlines()):
            exec(source, place)
    for block in answers_of(name):
        exec(block, place)
    return place


def definitions_in(name: str) -> dict[str, Any]:
    """The names that a chapter has after its first cell, and each function and class of its other
    cells; nothing else of the cells is run."""
    code = code_of(name)
    place: dict[str, Any] = {}
    exec(code[0], place)
    for source in code[1:]:
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                exec(ast.get_source_segment(source, node), place)
    return place


def hint_of(check: Callable[..., Any], *given: Any, **options: Any) -> str:
    """The hint by which a check turns a wrong answer down; it has to say some words, too."""
    with pytest.raises(Wrong) as caught:
        check(*given, **options)
    assert len(str(caught.value)) > 30
    return caught.value.hint


def refusal_of(check: Callable[..., Any], *given: Any) -> str:
    """The hint and the words by which a check turns a wrong answer down."""
    with pytest.raises(AssertionError) as caught:
        check(*given)
    return f"{getattr(caught.value, 'hint', '')}: {caught.value}"


def _sources(name: str, kind: str) -> list[str]:
    cells = json.loads(find_chapter(name).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]
