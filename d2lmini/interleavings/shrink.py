"""From a schedule that fails to one with fewer preemptions, and then with fewer steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby

from d2lmini.interleavings.policies import Policy, follow, follow_order
from d2lmini.interleavings.scheduler import Run
from d2lmini.interleavings.search import Execute, search_preemptions


def shrink(execute: Execute, bad: Run, tries: int = 300) -> Iterator[Run]:
    """Runs that fail like `bad`, each with fewer preemptions, or then fewer steps, than the one
    before. First deviations are left out while the run still fails; then schedules with fewer
    preemptions are tried. Up to 2 * `tries` runs."""
    policies, left = _list_simpler(bad), tries
    while left and (policy := next(policies, None)) is not None:
        left -= 1
        run = execute(policy)
        if _is_simpler(run, bad):
            bad = run
            yield bad
            policies = _list_simpler(bad)
    for run, _ in zip(search_preemptions(execute, bad.preemptions, 0), range(tries), strict=False):
        if run.preemptions > bad.preemptions:
            return
        if _is_simpler(run, bad):
            bad = run
            yield bad


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
