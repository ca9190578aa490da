"""One schedule of each class of schedules that differ in the order of independent steps only.

Two steps are independent if they use no common object, or if both only look at it. Exchanging
neighbouring independent steps changes nothing that a thread can see, so one order of them is
enough. The search is dynamic partial-order reduction with sleep sets: after a run, each pair of
dependent steps that nothing orders is a race, and the other thread is noted to be tried at the
state before the first of the two (Flanagan and Godefroid, POPL 2005). A thread that was tried at a
state sleeps below its later siblings until a dependent step wakes it (Godefroid, LNCS 1032).

Only what is named counts: threads that share plain attributes without a lock about them need
`lines` or `access`. A jump of the virtual clock waits for all threads, so it orders all steps. Only
an operation that was announced before the jump may race with steps before the jump.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from d2lmini.interleavings.controlled import ControlledThread
from d2lmini.interleavings.policies import Policy
from d2lmini.interleavings.records import Step, Uses
from d2lmini.interleavings.scheduler import Run
from d2lmini.interleavings.search import Execute


class _Node:
    """A state on the current path: what ran from it, what is to run, what need not run."""

    __slots__ = ("chosen", "done", "sleep", "todo")

    def __init__(self, sleep: dict[int, Uses], chosen: int):
        self.sleep = sleep
        self.chosen = chosen
        self.done: dict[int, Uses] = {}
        self.todo: set[int] = {chosen}


def search_reduced(execute: Execute) -> Iterator[Run]:
    """A schedule of each class. Runs that turn out to repeat a class are given up, and not
    yielded. Ends when there are no more."""
    path: list[_Node] = []
    while True:
        run = execute(_follow_path(path))
        if not run.cut:
            yield run
        del path[len(run.trace) :]
        for node, step in zip(path, run.trace, strict=False):
            node.done[node.chosen] = step.uses
        _note_races(run, path)
        while path:
            node = path[-1]
            left = node.todo - node.done.keys() - node.sleep.keys()
            if left:
                node.chosen = min(left)
                break
            path.pop()
        if not path:
            return


def _follow_path(path: list[_Node]) -> Policy:
    """Follow `path`, then extend it by threads that do not sleep."""

    def choose(
        run: Run, enabled: list[ControlledThread], default: ControlledThread
    ) -> ControlledThread | None:
        depth = len(run.trace)
        if not path:
            path.append(_Node({}, 0))  # the first step has no choice
        if depth < len(path):
            number = path[depth].chosen
            return next(thread for thread in enabled if thread.number == number)
        before, last = path[depth - 1], run.trace[-1]
        sleep = {
            number: uses
            for number, uses in {**before.sleep, **before.done}.items()
            if number != before.chosen and are_independent(uses, last.uses)
        }
        awake = [thread for thread in enabled if thread.number not in sleep]
        if not awake and run.is_forced:
            awake = enabled
        if not awake:
            return None
        chosen = default if default in awake else awake[0]
        path.append(_Node(sleep, chosen.number))
        return chosen

    return choose


def are_independent(uses: Uses, others: Uses) -> bool:
    """True if no object is used by both and changed by one of them."""
    return not any(key == other and (w or x) for key, w in uses for other, x in others)


class _History:
    """The steps of a run that come before the one looked at: which of them are known to which
    thread (vector clocks), and which used an object."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.of_thread: dict[int, dict[int, int]] = {}
        self.of_step: list[dict[int, int]] = []
        self.everything: dict[int, int] = {}
        self.epoch = 0
        self.barrier: dict[int, int] = {}
        self.users: dict[object, list[tuple[int, bool]]] = {}
        self.taken: dict[int, list[int]] = {}

    def known_to(self, thread: ControlledThread) -> dict[int, int]:
        """By thread the number of its steps that come before the next step of `thread`."""
        known = self.of_thread.get(thread.number)
        if known is None:
            known = dict(self.of_step[thread.born]) if self.of_step else {}
            self.of_thread[thread.number] = known
        return known

    def races(self, thread: ControlledThread, uses: Uses) -> Iterator[int]:
        """The steps that use the same objects as the next step of `thread` and are not known to
        come before it."""
        known, trace = self.known_to(thread), self.run.trace
        for key, writes in uses:
            for j, wrote in reversed(self.users.get(key, ())):
                early = trace[j]
                if early.thread is not thread and known.get(early.thread.number, 0) < early.number:
                    if writes or wrote:
                        yield j
                elif wrote:
                    break  # all earlier users of the object come before this one

    def add(self, step: Step) -> None:
        """Add the next step."""
        thread, i = step.thread, len(self.of_step)
        known = dict(self.known_to(thread))
        if step.epoch > self.epoch:  # the clock has jumped: all that was comes before this step
            self.epoch, self.barrier = step.epoch, dict(self.everything)
        _merge(known, self.barrier)
        for key, writes in step.uses:
            for j, wrote in reversed(self.users.get(key, ())):
                if writes or wrote:
                    _merge(known, self.of_step[j])
                if wrote:
                    break
        for key, writes in step.uses:
            self.users.setdefault(key, []).append((i, writes))
        known[thread.number] = self.everything[thread.number] = step.number
        self.of_thread[thread.number] = known
        self.of_step.append(known)
        self.taken.setdefault(thread.number, []).append(i)


def _merge(known: dict[int, int], others: dict[int, int]) -> None:
    """Know all that `others` knows."""
    for number, steps in others.items():
        if known.get(number, 0) < steps:
            known[number] = steps


def _note_races(run: Run, path: list[_Node]) -> None:
    """Note on `path` the threads to try at the states before steps that race with later ones."""
    history = _History(run)
    for step in run.trace:
        for j in history.races(step.thread, step.uses):
            _note(history, path, j, step.thread, step.number, len(step.uses))
        history.add(step)
    for thread in run.threads:
        operation = run.announced.get(thread.number)
        if operation is not None:  # the run ended before it
            uses = operation.uses + (((thread.life, True),) if thread.daemon else ())
            for j in history.races(thread, uses):
                _note(history, path, j, thread, thread.steps + 1, len(uses))


def _note(
    history: _History,
    path: list[_Node],
    j: int,
    thread: ControlledThread,
    number: int,
    objects: int,
) -> None:
    """Step `number` of `thread`, which uses so many `objects`, races with step j: before step j,
    try `thread` or another that must run before it; all of them if there is none."""
    if j >= len(path):
        return
    enabled, taken = history.run.trace[j].enabled, history.taken
    steps_then = bisect_left(taken.get(thread.number, ()), j)
    was_blocked = thread.number not in enabled and thread.born < j and steps_then == number - 1
    if was_blocked and objects == 1:
        return  # the operation itself was blocked: the two cannot be exchanged
    known = history.known_to(thread)
    leading = [
        other
        for other in enabled
        if other == thread.number or known.get(other, 0) > bisect_left(taken.get(other, ()), j)
    ]
    todo = path[j].todo
    if not leading:
        todo.update(enabled)
    elif todo.isdisjoint(leading):
        todo.add(thread.number if thread.number in leading else leading[0])
