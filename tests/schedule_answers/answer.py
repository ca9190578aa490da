"""What an exercise and an answer are, and the decorators that collect answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Exercise:
    """draw(rng) gives inputs, expected(inputs) the value or None, check(trace, inputs) raises."""

    name: str
    draw: Callable[[Any], SimpleNamespace]
    expected: Callable[[SimpleNamespace], float | None]
    check: Callable[[Any, SimpleNamespace], object]


@dataclass(frozen=True)
class Answer:
    """hints: empty for a right answer. stepped: does it run on the stepped engine too? (Work that
    sets an event is never done there while the program waits for the event.)"""

    exercise: Exercise
    function: Callable[[SimpleNamespace], Any]
    hints: tuple[str, ...]
    stepped: bool

    @property
    def right(self) -> bool:
        return not self.hints

    def __str__(self) -> str:
        return f"{self.exercise.name}: {self.function.__name__}"


@dataclass
class Exercises:
    """The answers of a module."""

    answers: list[Answer] = field(default_factory=list)

    def right(self, *exercises: Exercise, stepped: bool = True) -> Callable[[Any], Any]:
        return self._add(exercises, (), stepped)

    def wrong(self, *hints: str, to: Exercise, stepped: bool = True) -> Callable[[Any], Any]:
        return self._add((to,), hints, stepped)

    def _add(
        self, exercises: tuple[Exercise, ...], hints: tuple[str, ...], stepped: bool
    ) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            self.answers += [Answer(each, function, hints, stepped) for each in exercises]
            return function

        return decorate
