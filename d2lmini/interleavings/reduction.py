"""One schedule of each class of schedules that differ in the order of independent steps only.

Two steps are independent if they use no common object, or if both only look at it. Exchanging
neighbouring independent steps changes nothing that a thread can see, so one order of them is
enough. The search is dynamic partial-order reduction with sleep sets: after a run, each pair of
dependent steps that nothing orders is a race, and the other thread is noted to be tried at the
state before the first of the two (Flanagan and Godefroid, POPL 2005). A thread that was tried at a
state sleeps below its later siblings until a dependent step wakes it (Godefroid, LNCS 1032).

Only what is named counts: threads that share plain attributes without a lock about them need
`lines` or `access`. A jump of the virtual clock orders all steps, as it waits for all.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2lmini.interleavings.policies import Policy
from d2lmini.interleavings.scheduler import ControlledThread, Run, Step, Uses
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
        if not awake:
            return None
        chosen = default if default in awake else awake[0]
        path.append(_Node(sleep, chosen.number))
        return chosen

    return choose


def are_independent(uses: Uses, others: Uses) -> bool:
    """True if no object is used by both and changed by one of them."""
    return not any(key == other and (w or x) for key, w in uses for other, x in others)


class _Clocks:
    """Which steps are known to come before which: a vector clock for each thread and each step."""

    def __init__(self) -> None:
        self.of_thread: dict[int, dict[int, int]] = {}
        self.of_step: list[dict[int, int]] = []
        self.everything: dict[int, int] = {}
        self.epoch = 0

    def before(self, step: Step, epoch: int, born: int) -> dict[int, int]:
        """What the thread of `step` knows before the step."""
        number = step.thread.number
        if number not in self.of_thread:
            self.of_thread[number] = dict(self.of_step[born]) if self.of_step else {}
        if epoch > self.epoch:
            self.epoch = epoch
            for clock in self.of_thread.values():
                clock.update(self.everything)
        return self.of_thread[number]


def _note_races(run: Run, path: list[_Node]) -> None:
    """Note on `path` the threads to try at the states before steps that race with later ones."""
    clocks = _Clocks()
    users: dict[object, list[tuple[int, bool]]] = {}
    for i, step in enumerate(run.trace):
        number = step.thread.number
        known = clocks.before(step, step.epoch, step.thread.born)
        merged = dict(known)
        for key, writes in step.uses:
            for j, wrote in users.get(key, ()):
                if not (writes or wrote):
                    continue
                early = run.trace[j]
                other = early.thread.number
                if other != number and known.get(other, 0) < early.number:
                    _note(run, path, j, step.thread, step.number, len(step.uses))
                for thread, steps in clocks.of_step[j].items():
                    if merged.get(thread, 0) < steps:
                        merged[thread] = steps
        for key, writes in step.uses:
            users.setdefault(key, []).append((i, writes))
        merged[number] = step.number
        clocks.of_thread[number] = merged
        clocks.of_step.append(dict(merged))
        clocks.everything[number] = step.number
    _note_last(run, path, clocks, users)


def _note_last(
    run: Run, path: list[_Node], clocks: _Clocks, users: dict[object, list[tuple[int, bool]]]
) -> None:
    """The same for the operations that the run did not come to."""
    for thread in run.threads:
        operation = run.left.get(thread.number)
        if operation is None:
            continue
        known = clocks.of_thread.get(thread.number)
        if known is None:
            known = clocks.of_step[thread.born]
        uses = operation.uses + (((run.key, False),) if thread.daemon else ())
        for key, writes in uses:
            for j, wrote in users.get(key, ()):
                early = run.trace[j]
                other = early.thread.number
                races = other != thread.number and known.get(other, 0) < early.number
                if races and (writes or wrote):
                    _note(run, path, j, thread, thread.steps + 1, len(uses))


def _note(
    run: Run, path: list[_Node], j: int, thread: ControlledThread, number: int, objects: int
) -> None:
    """Step `number` of `thread` races with step j: try `thread` before step j."""
    early = run.trace[j]
    if j >= len(path):
        return
    if thread.number in early.enabled:
        path[j].todo.add(thread.number)
        return
    steps_then = sum(step.thread is thread for step in run.trace[:j])
    if steps_then == number - 1 and thread.born < j and objects == 1:
        return  # the very operation was blocked: the two cannot be exchanged
    path[j].todo.update(early.enabled)
