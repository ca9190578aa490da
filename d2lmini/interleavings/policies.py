"""How a run's next thread is chosen: by a written schedule, at random, or by priorities."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

from d2lmini.base import MXNetError
from d2lmini.interleavings.controlled import ControlledThread
from d2lmini.interleavings.records import Choice
from d2lmini.interleavings.scheduler import Run

Policy = Callable[[Run, list[ControlledThread], ControlledThread], "ControlledThread | None"]

_NO_REPEAT = (
    "The program or its input has changed, or the program does not repeat itself: let it make its "
    "state anew, seed what it draws, and use no real clock"
)


def write_schedule(choices: Iterable[Choice]) -> str:
    """The choices as a short text: "1.5>2" says that after step 5 of thread 1, thread 2 goes on."""
    return " ".join(f"{thread}.{step}>{then}" for thread, step, then in choices)


def read_schedule(text: str) -> tuple[Choice, ...]:
    """The choices that `write_schedule` wrote."""
    choices = []
    for word in text.split():
        match = re.fullmatch(r"(\d+)\.(\d+)>(\d+)", word)
        if match is None:
            raise MXNetError(
                f"explore: the schedule has {word!r}; expected words like 1.5>2, as in the "
                "`schedule` of a result"
            )
        choices.append(Choice(*map(int, match.groups())))
    return tuple(choices)


def follow(choices: Iterable[Choice], strict: bool = True) -> Policy:
    """Deviate from the default order by `choices` only. If one is impossible: an error if `strict`,
    else the default."""
    deviations = {choice[:2]: choice.then for choice in choices}

    def choose(
        run: Run, enabled: list[ControlledThread], default: ControlledThread
    ) -> ControlledThread:
        before = run.trace[-1]
        wanted = deviations.get((before.thread.number, before.number))
        if wanted is None:
            return default
        for thread in enabled:
            if thread.number == wanted:
                return thread
        if strict:
            word = write_schedule([Choice(before.thread.number, before.number, wanted)])
            raise MXNetError(
                f"explore: the schedule says {word}, but then thread {wanted} cannot go on. "
                + _NO_REPEAT
            )
        return default

    return choose


def check_followed(run: Run, choices: tuple[Choice, ...]) -> None:
    """Raise an error if `run`, which followed `choices`, has made others."""
    if run.choices != choices:
        raise MXNetError(
            f"explore: the schedule is {write_schedule(choices)!r}, but the program came to "
            f"{write_schedule(run.choices)!r}. {_NO_REPEAT}"
        )


def follow_order(numbers: Iterable[int]) -> Policy:
    """Let the threads take their steps in the order of `numbers`, leaving out those that cannot go
    on, and go on in the default order."""
    left = list(numbers)[::-1]

    def choose(
        run: Run, enabled: list[ControlledThread], default: ControlledThread
    ) -> ControlledThread:
        while left:
            number = left.pop()
            for thread in enabled:
                if thread.number == number:
                    return thread
        return default

    return choose


def walk(seed: object) -> Policy:
    """Choose among the enabled threads at random."""
    draw = random.Random(str(seed))
    return lambda run, enabled, default: draw.choice(enabled)


def by_priority(seed: object, length: int, changes: int = 2) -> Policy:
    """Run the enabled thread of highest priority. The running thread gets the lowest at `changes`
    random steps of `length`, when it yields, and when it has kept another waiting for long.

    Probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010): in a program of n
    threads and k steps it finds a bug of depth d in one run with probability 1 / (n k^(d-1)) at
    least, where d - 1 is the number of changes."""
    draw = random.Random(str(seed))
    points = {draw.randrange(1, max(length, 2)) for _ in range(changes)}
    priority: dict[int, float] = {}
    lowest = 0

    def choose(
        run: Run, enabled: list[ControlledThread], default: ControlledThread
    ) -> ControlledThread:
        nonlocal lowest
        before = run.trace[-1].thread
        yields = before.pending is not None and before.pending.what == "yields"
        if len(run.trace) in points or yields or run.is_forced:
            lowest -= 1
            priority[before.number] = lowest
        for thread in enabled:
            if thread.number not in priority:
                priority[thread.number] = draw.random()
        return max(enabled, key=lambda thread: priority[thread.number])

    return choose
