"""The checks of schedules judge answers as students write them: no wrong one passes, no right one
fails, whatever inputs are drawn."""

from __future__ import annotations

import zlib

import pytest
from schedule_answers import ANSWERS, grade

SEEDS = (1, 2)


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_an_answer_is_judged_as_it_deserves(answer):
    for seed in SEEDS:
        hint = grade(answer, seed)
        assert (hint in answer.hints) if answer.hints else hint is None, (seed, hint)


@pytest.mark.parametrize("answer", [each for each in ANSWERS if each.stepped], ids=str)
def test_so_it_is_on_the_stepped_engine(answer):
    seed = zlib.crc32(str(answer).encode())
    hint = grade(answer, seed, seed=seed)
    assert (hint in answer.hints) if answer.hints else hint is None, (seed, hint)


def test_there_are_many_of_both_kinds_for_every_check():
    right = [answer for answer in ANSWERS if answer.right]
    assert len(right) >= 40 and len(ANSWERS) - len(right) >= 40
    for name in {answer.exercise.name for answer in ANSWERS}:
        kinds = {answer.right for answer in ANSWERS if answer.exercise.name == name}
        assert kinds == {True, False}, name
