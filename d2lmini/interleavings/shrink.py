"""From a schedule that fails to one with fewer preemptions, and then with fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby

from d2lmini.interleavings.policies import Policy, follow, follow_order
from d2lmini.interleavings.scheduler import Run
from d2lmini.interleavings.search import Execute, search_preemptions


def shrink(execute: Execute, bad: Run, is_over: Callable[[], bool], tries: int = 300) -> Run:
    """A run that fails like `bad`, with as few preemptions and then steps as were found. First
    deviations are left out while it still fails; then schedules with fewer preemptions are tried.
    Up to 2 * `tries` runs."""
    left = iter(range(tries))
    while True:
        for policy, _ in zip(_list_simpler(bad), left, strict=False):
            run = execute(policy)
            if is_over() or _is_simpler(run, bad):
                break
        else:
            break
        if is_over() or not _is_simpler(run, bad):
            break
        bad = run
    for run, _ in zip(search_preemptions(execute, bad.preemptions, 0), range(tries), strict=False):
        if is_over() or run.preemptions > bad.preemptions:
            break
        if _is_simpler(run, bad):
            bad = run
            if bad.preemptions == 0:
                break
    return bad


def _list_simpler(bad: Run) -> Iterator[Policy]:
    """Schedules that may fail with fewer preemptions: without a half, a quarter, ... of the
    deviations, without each; with two stretches of a thread joined, at the place of either."""
    choices = bad.choices
    size = len(choices)
    while size:
        for begin in range(0, len(choices), size):
            yield follow(choices[:begin] + choices[begin + size :], strict=False)
        size //= 2
    stretches = [list(group) for _, group in groupby(step.thread.number for step in bad.trace)]
    for i, early in enumerate(stretches):
        for j in range(i + 1, len(stretches)):
            if stretches[j][0] == early[0]:
                before, between, after = stretches[:i], stretches[i + 1 : j], stretches[j + 1 :]
                joined = [early + stretches[j]]
                yield follow_order(chain(*before, *joined, *between, *after))
                yield follow_order(chain(*before, *between, *joined, *after))
                break


def _is_simpler(run: Run, bad: Run) -> bool:
    if run.failure is None or bad.failure is None or run.failure.sort != bad.failure.sort:
        return False
    return _measure(run) < _measure(bad)


def _measure(run: Run) -> tuple[int, int, int]:
    return run.preemptions, len(run.trace), len(run.choices)
