"""Each check of the chapters' exercises judges right and wrong answers (`answers/`)."""

from __future__ import annotations

import importlib
import importlib.util
import json
from typing import Any

import pytest
from chapter_cells import CHAPTERS, names_in
from labs.grading import CheckFailed

from d2lmini.cli.assign import find_exercises
from d2lmini.cli.files import chapter_name, find_chapter

NAMES = [chapter_name(path) for path in sorted(CHAPTERS.glob("*.ipynb"))]
#: Of each check at least so many answers of each kind.
LEAST = 5


def checks_of(chapter: str) -> dict[str, Any]:
    """The table of a chapter; {} if there is none."""
    module = f"answers.{chapter.replace('-', '_')}"
    return importlib.import_module(module).CHECKS if importlib.util.find_spec(module) else {}


def exercises_of(chapter: str) -> list[Any]:
    return find_exercises(json.loads(find_chapter(chapter).read_text(encoding="utf-8"))["cells"])


def rows() -> list[Any]:
    """(chapter, check, answer's name, names it needs, program, hint or None) for each answer."""
    found = []
    for chapter in NAMES:
        own = {exercise.check: exercise.code for exercise in exercises_of(chapter)}
        for check, answers in checks_of(chapter).items():
            known = [(own[check], None), *((program, None) for program in answers.right)]
            for turn, (program, hint) in enumerate(
                [*known, *((program, hint) for hint, program in answers.wrong)]
            ):
                label = f"{chapter}-{check}-{turn}-{hint or 'right'}"
                row = (chapter, check, answers.name, answers.needs, program, hint)
                found.append(pytest.param(*row, id=label))
    return found


@pytest.mark.parametrize(("chapter", "check", "name", "needs", "program", "hint"), rows())
def test_a_check_judges_an_answer(chapter, check, name, needs, program, hint):
    place = names_in(chapter, *needs)
    exec(program, place)
    if hint is None:
        place[check](place[name])
        return
    with pytest.raises(CheckFailed) as caught:
        place[check](place[name])
    assert caught.value.hint == hint, caught.value
    assert len(str(caught.value)) > 30


@pytest.mark.parametrize("chapter", NAMES)
def test_each_check_has_enough_answers(chapter):
    table = checks_of(chapter)
    assert set(table) == {exercise.check for exercise in exercises_of(chapter)}
    for check, answers in table.items():
        assert len(answers.right) >= LEAST and len(answers.wrong) >= LEAST, check
