"""Each check of the chapters' exercises judges right and wrong answers (`answers/*.txt`)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chapter_cells import CHAPTERS, names_in
from labs.grading import CheckFailed

from d2lmini.cli.assign import find_exercises
from d2lmini.cli.files import chapter_name, find_chapter

NAMES = [chapter_name(path) for path in sorted(CHAPTERS.glob("*.ipynb"))]
FOLDER = Path(__file__).parent / "answers"


class Answers(NamedTuple):
    """name      of the function or class that the check is called with
    needs     names of the chapter that a program uses, besides those of its first code cell
    programs  (program, hint): unusual ways to be right have None, a wrong answer has the hint that
              says what is really the matter"""

    name: str
    needs: list[str]
    programs: list[tuple[str, str | None]]


def checks_of(chapter: str) -> dict[str, Answers]:
    """The answers of each check in `answers/`; {} if there is no file."""
    file = FOLDER / f"{chapter.replace('-', '_')}.txt"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = {}
    for part in re.split(r"^=== ", text, flags=re.M)[1:]:
        head, *programs = re.split(r"^--- ", part, flags=re.M)
        check, name, needs = re.match(r"(\w+): (\w+)(?:, needs (.*))?", head).groups()
        rows = []
        for kind, program in (each.split("\n", 1) for each in programs):
            rows.append((program, None if kind == "right" else kind.removeprefix("wrong: ")))
        found[check] = Answers(name, (needs or "").split(), rows)
    return found


def exercises_of(chapter: str) -> list[Any]:
    return find_exercises(json.loads(find_chapter(chapter).read_text(encoding="utf-8"))["cells"])


def rows() -> list[Any]:
    """(chapter, check, answer's name, names it needs, program, hint or None) for each answer."""
    found = []
    for chapter in NAMES:
        own = {exercise.check: exercise.code for exercise in exercises_of(chapter)}
        for check, answers in checks_of(chapter).items():
            for turn, (program, hint) in enumerate([(own[check], None), *answers.programs]):
                label = f"{chapter}-{check}-{turn}-{hint or 'right'}"
                row = (chapter, check, answers.name, answers.needs, program, hint)
                found.append(pytest.param(*row, id=label))
    return found


@pytest.mark.law
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
        hints = [hint for _, hint in answers.programs]
        wrong = [hint for hint in hints if hint]
        assert hints.count(None) >= 4 and len(wrong) >= 5 and len(set(wrong)) >= 3, check
