"""Checks for the chapter Case files: does a repaired engine, or a repaired stream program, keep its
promises?

    d2l.check_case("lock", Bounded)                 # an engine of some thirty lines, in Python
    d2l.check_streams("double buffer", sums)        # a program on `d2lmini.streams`

Programs with the engine are drawn at random, and each runs under many schedules of its threads
(`d2lmini.interleavings.explore`). The checks also ask for what a careless repair gives up: that
tasks still run at the same time, that a bound still holds, that the host does not wait too early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.d2l.cases.device import check_streams
from d2lmini.d2l.cases.orders import check_pool, check_priority, check_view
from d2lmini.d2l.cases.tried import Tried
from d2lmini.d2l.cases.waits import check_lock, check_shutdown, check_slot
from d2lmini.d2l.check import Sentence

__all__ = ["check_case", "check_streams"]


def check_case(case: str, Engine: Callable[..., Any], schedules: int = 150) -> Sentence:
    """A sentence if the engines that `Engine` makes keep the promises of the case; else `Wrong`,
    with a hint for the mistake.

    case       "lock", "shutdown", "pool", "slot", "view" or "priority"; ValueError for another word
    Engine     the class, or a function that makes an engine, with the parameters of the chapter's
    schedules  how many schedules of each program are tried

    An error in the engine itself, such as a NameError, is raised as it is.
    """
    if case not in _CASES:
        raise ValueError(f"check_case: expected one of {', '.join(_CASES)}, got {case!r}")
    check, promise = _CASES[case]
    check(Tried(Engine, schedules))
    return Sentence(f"{promise}, in {schedules} schedules of each program")


_CASES: dict[str, tuple[Callable[[Tried], None], str]] = {
    "lock": (check_lock, "every task runs, and a push waits while the queue is full"),
    "shutdown": (check_shutdown, "after stop() every wait ends"),
    "pool": (check_pool, "every upload arrives, with a bounded number of buffers"),
    "slot": (check_slot, "every wait ends, after its own task"),
    "view": (check_view, "tasks that share memory run in program order"),
    "priority": (check_priority, "urgent tasks run first, and no task starves"),
}
