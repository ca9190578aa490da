"""`explore`, and what it returns."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.interleavings.controlled import allocate_lock, current
from d2lmini.interleavings.failures import Failure
from d2lmini.interleavings.lines import make_tracer
from d2lmini.interleavings.patches import number_names, patched
from d2lmini.interleavings.policies import (
    Policy,
    check_followed,
    follow,
    read_schedule,
    write_schedule,
)
from d2lmini.interleavings.records import Bounds
from d2lmini.interleavings.reduction import search_reduced
from d2lmini.interleavings.scheduler import Run, TimeIsUp, monotonic
from d2lmini.interleavings.search import (
    Execute,
    search_both,
    search_preemptions,
    search_randomly,
)
from d2lmini.interleavings.shrink import shrink
from d2lmini.interleavings.story import write_story

#: One exploration at a time: the replaced names are those of the process.
_exploring = allocate_lock()


class Exploration:
    """The result of `explore`; print it to read it.

    schedules    number of schedules that ran, without those that shortened a failing one
    complete     did all schedules of the search run, to their ends?
    preemptions  the bound on preemptions up to which all schedules ran; None if there was no bound
    failure      None, or the `Failure` of the schedule: `kind`, `message`, `error`
    schedule     the schedule that failed, for `explore(program, schedule=...)`
    steps        number of steps of that schedule, or of the longest that ran
    story        the steps of that schedule, in words
    outcomes     what the program returned, or the failure -> in how many schedules
    """

    def __init__(self) -> None:
        self.schedules = 0
        self.complete = False
        self.preemptions: int | None = None
        self.failure: Failure | None = None
        self.schedule: str | None = None
        self.steps = 0
        self.story = ""
        self.outcomes: Counter[Any] = Counter()
        self._interruptions = 0
        self._extent = ""

    def __str__(self) -> str:
        many = "1 schedule" if self.schedules == 1 else f"{self.schedules} schedules"
        if self.failure is not None:
            times = (
                "1 preemption" if self._interruptions == 1 else f"{self._interruptions} preemptions"
            )
            return (
                f"{self.failure.kind} after {self.steps} steps with {times}, found in {many}; "
                f'schedule "{self.schedule}"\n{self.failure.message}\n{self.story}'
            )
        if not self.complete:
            return f"no failure in {many} of up to {self.steps} steps; there are more schedules"
        return f"no failure in {many} of up to {self.steps} steps: {self._extent}"

    __repr__ = __str__


def explore(
    program: Callable[[], object],
    *,
    search: str = "mixed",
    schedules: int = 1000,
    preemptions: int = 2,
    seconds: float = 60.0,
    steps: int = 5000,
    seed: int = 0,
    schedule: str | None = None,
    lines: Iterable[Any] = (),
    modules: Iterable[ModuleType] = (),
    timers: str = "idle",
    stop: bool = True,
    patience_s: float = 5.0,
) -> Exploration:
    """Run `program` under many schedules of its threads; report the first that fails, shortened.

    program      takes no argument and makes its locks, threads and state anew each time; it fails
                 if a thread raises, if all threads are blocked, or if it does not end in `steps`
    search       "mixed": by turns a schedule of "preemptions" and one of "random";
                 "preemptions": every schedule with up to `preemptions` preemptions, fewest first;
                 "random": random walks and random priorities, drawn with `seed`;
                 "reduced": one schedule of each class that differs in independent steps only;
                 "all": every schedule
    schedules    the bound on their number
    seconds      the bound on the time for all of them; a sixth of it again for shortening
    steps        the bound on the steps of a schedule. More is the failure "no end": a livelock, or
                 a thread that starves; no thread that could run waits for long in a schedule
    schedule     run only this one: the `schedule` of a result
    lines        functions, classes and modules whose every line and store is a step
    modules      modules whose global locks, and names imported from `threading`, `queue` and
                 `time`, belong to the program too, like those of the program's own module
    timers       "idle": sleeps and timeouts end when no thread can run, as if computing took no
                 time; "any": at any moment, as if every thread could be slow
    stop         False: go on after a failure, to count the `outcomes`; the first is reported
    patience_s   a step that takes longer is the failure "no step": a thread computes without end,
                 or blocks on an object that the exploration does not control

    MXNetError for arguments that cannot be, when another exploration runs, and if the program does
    not repeat itself.
    """
    _check(search, timers)
    bounds = Bounds(steps, patience_s, timers, make_tracer(lines), monotonic() + seconds)
    spaces = [vars(module) for module in modules]
    own = getattr(program, "__globals__", None)
    if own is not None:
        spaces.append(own)
    if current() is not None or not _exploring.acquire(blocking=False):
        raise MXNetError("explore: an exploration runs already; wait for its end")
    try:
        with patched(spaces):
            explorer = _Explorer(program, bounds, seconds / 6)
            return explorer.explore(search, schedules, preemptions, seed, schedule, stop)
    finally:
        _exploring.release()


def _check(search: str, timers: str) -> None:
    searches = "mixed", "preemptions", "random", "reduced", "all"
    if search not in searches:
        raise MXNetError(f"explore: search is {search!r}, expected one of {', '.join(searches)}")
    if timers not in ("idle", "any"):
        raise MXNetError(f"explore: timers is {timers!r}, expected 'idle' or 'any'")


class _Explorer:
    """Runs a program under schedules, within bounds."""

    def __init__(self, program: Callable[[], object], bounds: Bounds, extra_s: float):
        self.program = program
        self.bounds = bounds
        self.extra_s = extra_s

    def execute(self, policy: Policy) -> Run:
        """Run the program once; TimeIsUp at the deadline."""
        if monotonic() > self.bounds.deadline:
            raise TimeIsUp
        number_names()
        run = Run(self.program, policy, self.bounds).go()
        if run.failure is not None and run.failure.kind == "exploration":
            assert run.failure.error is not None, "made from an error"
            raise run.failure.error
        return run

    def explore(
        self,
        search: str,
        schedules: int,
        preemptions: int,
        seed: int,
        schedule: str | None,
        stop: bool,
    ) -> Exploration:
        """See `explore`."""
        found = Exploration()
        if schedule is not None:
            choices = read_schedule(schedule)
            try:
                run = self.execute(follow(choices))
            except TimeIsUp:
                raise MXNetError("explore: the schedule has not ended in `seconds`") from None
            check_followed(run, choices)
            _count(found, run)
            _report(found, run)
            return found
        found._extent = "one of each class" if search == "reduced" else "these are all"
        if search in ("mixed", "preemptions"):
            found.preemptions = preemptions
            found._extent = f"all with at most {preemptions} preemptions"
        bad: Run | None = None
        with suppress(TimeIsUp):
            for run in self._runs(search, preemptions, seed):
                _count(found, run)
                if run.failure is not None and bad is None:
                    bad = run
                    if stop or run.failure.kind == "no step":
                        break
                if found.schedules >= schedules:
                    break
                if found.schedules % 100 == 0:
                    gc.collect(0)
            else:
                found.complete = True
        if bad is not None:
            _report(found, self._shorten(bad))
        return found

    def _shorten(self, bad: Run) -> Run:
        if bad.failure is not None and bad.failure.kind != "no step":
            self.bounds = replace(self.bounds, deadline=monotonic() + self.extra_s)
            with suppress(TimeIsUp):
                for shorter in shrink(self.execute, bad):
                    bad = shorter
        return bad

    def _runs(self, search: str, preemptions: int, seed: int) -> Iterator[Run]:
        execute: Execute = self.execute
        if search == "mixed":
            return search_both(execute, preemptions, seed)
        if search == "preemptions":
            return search_preemptions(execute, preemptions, seed)
        if search == "random":
            return search_randomly(execute, seed)
        if search == "reduced":
            return search_reduced(execute)
        return search_preemptions(execute, None)


def _count(found: Exploration, run: Run) -> None:
    found.schedules += 1
    found.steps = max(found.steps, len(run.trace))
    value = run.value if run.failure is None else run.failure.kind
    try:
        found.outcomes[value] += 1
    except TypeError:  # not hashable
        found.outcomes[repr(value)] += 1


def _report(found: Exploration, run: Run) -> None:
    found.failure = run.failure
    found.schedule = write_schedule(run.choices)
    found.steps = len(run.trace)
    found.story = write_story(run)
    found._interruptions = run.preemptions
