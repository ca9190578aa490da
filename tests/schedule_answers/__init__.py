"""Answers to exercises on schedules, right and wrong, as students write them.

    for answer in ANSWERS:
        print(answer, grade(answer, instance=3))      # None: passes; else the hint, or "value"

Each answer is a function of the exercise's inputs, which are drawn at random. It returns the value
that the exercise asks for, if it asks for one. `grade` runs it in a trace, compares the value, and
applies the exercise's check. Wrong answers name the hints that would be fair.
"""

from __future__ import annotations

import random
from typing import Any

from labs.grading import CheckFailed

from d2lmini import engine, profile, virtual_gpus

from . import copies, memory, waits
from .answer import Answer

ANSWERS: list[Answer] = [
    answer for module in (copies, waits, memory) for answer in module.EXERCISES.answers
]


def grade(answer: Answer, instance: int = 0, **options: Any) -> str | None:
    """None if the answer passes; else the hint of the check, or "value" for a wrong result. The
    engine is threaded, or with options a stepped one."""
    with virtual_gpus(2):
        kind = options or {"inline_below": 0.0}
        with engine.use("stepped" if options else "threaded", **kind):
            inputs = answer.exercise.draw(random.Random(instance))
            engine.waitall()
            with profile() as trace:
                value = answer.function(inputs)
            expected = answer.exercise.expected(inputs)
            if expected is not None and not abs(float(value) - expected) <= 1e-3 * abs(expected):
                return "value"
            try:
                answer.exercise.check(trace, inputs)
            except CheckFailed as failed:
                return failed.hint
            return None
