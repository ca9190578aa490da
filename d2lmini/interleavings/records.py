"""The records of a run: what a thread is about to do, what it did, which thread was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.interleavings.sites import Site

if TYPE_CHECKING:
    from d2lmini.interleavings.controlled import ControlledThread
    from d2lmini.interleavings.scheduler import Run

#: What an operation uses: (key of the object, does it change the object?).
Uses = tuple[tuple[Any, bool], ...]


class Choice(NamedTuple):
    """After step number `step` of `thread`, `then` takes the next step."""

    thread: int
    step: int
    then: int


class Operation:
    """An operation that a thread is about to do."""

    __slots__ = ("deadline", "ready", "site", "target", "uses", "what")

    def __init__(
        self,
        what: str,
        target: Any,
        uses: Uses,
        ready: Callable[[bool], bool] | None,
        deadline: float | None,
        site: Site,
    ):
        self.what = what
        self.target = target
        self.uses = uses
        self.ready = ready
        self.deadline = deadline
        self.site = site


class Step:
    """A step that was taken.

    thread, number     the thread, and how many steps it had taken with this one
    operation, result  what it did; `result` tells in words what an attempt came to
    enabled            the numbers of the threads that could have taken the step
    after              (thread, number) of the step before
    default            the number of the thread that takes the step in the default order
    preempts           True if the thread of the step before could have gone on and was to
    epoch              how often the virtual clock had jumped
    """

    __slots__ = (
        "after", "default", "enabled", "epoch", "number", "operation", "preempts", "result",
        "thread", "uses",
    )  # fmt: skip

    def __init__(self, thread: ControlledThread, operation: Operation, run: Run):
        self.thread = thread
        self.number = thread.steps
        self.operation = operation
        self.uses = operation.uses
        self.result = ""
        self.enabled: tuple[int, ...] = ()
        self.after = (0, 0)
        self.default = 0
        self.preempts = False
        self.epoch = run.epoch


@dataclass(frozen=True)
class Bounds:
    """How long a run may be, and what it controls; see `explore`."""

    steps: int
    patience_s: float
    timers: str
    tracer: Any
    deadline: float
