"""What the engine was given, heard by a listener."""

from __future__ import annotations

from typing import Any

from d2lmini.base import instrument


class Pushes(instrument.Instrument):
    """The names of the tasks that the engine was given, and the kinds of the waits."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.waits: list[str] = []

    def push(self, task: Any) -> None:
        self.names.append(task.name)

    def wait(self, kind: str, *_: Any) -> None:
        self.waits.append(kind)
