"""Which schedules are run, and in what order.

"preemptions"  every schedule with no preemption, then every one with 1, 2, ... up to the bound. A
               schedule is its deviations from the default order, so a run has as its children the
               schedules with one deviation more, later than the last. Each schedule runs once
               (Musuvathi and Qadeer, "Iterative context bounding", PLDI 2007)
"random"       by turns a random walk, and random priorities (see `policies`)
"mixed"        by turns one of the first and one of the second
"all"          every schedule, depth first
"reduced"      one schedule of each class; see `reduction`
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from d2lmini.interleavings.policies import Policy, by_priority, check_followed, follow, walk
from d2lmini.interleavings.records import Choice
from d2lmini.interleavings.scheduler import Run

#: Runs the program once under a policy.
Execute = Callable[[Policy], Run]


def search_preemptions(execute: Execute, most: int | None, seed: int = 0) -> Iterator[Run]:
    """Every schedule with at most `most` preemptions (None: all), those with fewest first and
    within these in random order. Ends when there are no more."""
    draw = random.Random(str(seed))
    waiting: list[list[tuple[Choice, ...]]] = [[()]]  # by number of preemptions
    while any(waiting):
        n = next(n for n, schedules in enumerate(waiting) if schedules)
        schedules = waiting[n]
        if most is not None:
            i = draw.randrange(len(schedules))
            schedules[i], schedules[-1] = schedules[-1], schedules[i]
        choices = schedules.pop()
        run = execute(follow(choices))
        check_followed(run, choices)
        yield run
        for preemptions, child in _list_children(run, choices):
            if most is None or preemptions <= most:
                while len(waiting) <= preemptions:
                    waiting.append([])
                waiting[preemptions if most is not None else 0].append(child)


def _list_children(
    run: Run, choices: tuple[Choice, ...]
) -> Iterator[tuple[int, tuple[Choice, ...]]]:
    """The schedules that deviate from that of `run` once more, and their preemptions."""
    begin = preemptions = 0
    if choices:
        for i, step in enumerate(run.trace):
            preemptions += step.preempts
            if step.after == choices[-1][:2] and i:
                begin = i
                break
    for step in run.trace[begin + 1 :]:
        for number in step.enabled:
            if number != step.default:
                costs = step.default == step.after[0]
                yield preemptions + costs, (*choices, Choice(*step.after, number))


def search_randomly(execute: Execute, seed: int) -> Iterator[Run]:
    """Random schedules without end."""
    length, i = 1, 0
    while True:
        policy = walk((seed, i)) if i % 2 == 0 else by_priority((seed, i), length, 1 + i % 3)
        run = execute(policy)
        length = max(length, len(run.trace))
        i += 1
        yield run


def search_both(execute: Execute, most: int, seed: int) -> Iterator[Run]:
    """By turns a schedule of `search_preemptions` and a random one; ends with the former."""
    drawn = search_randomly(execute, seed)
    for run in search_preemptions(execute, most, seed):
        yield run
        yield next(drawn)
