"""How short could the run have been? Bounds that no order of the same operations beats.

    print(trace.bounds())

    work      the operations of a place, on all its workers at once: T1 / p
    chain     the longest chain of operations that come one after the other: the critical path of
              the operations alone, on any number of workers
    link      the copies over a link, one after the other

Each takes the recorded durations; the program's own Python is not in them. The largest is the
bound. The other way round, R. L. Graham (1966, "Bounds for certain multiprocessing anomalies")
showed: if no worker is idle while an operation is ready, the operations take at most
T1 / p + (1 - 1 / p) chain, in any order (list scheduling). An operation is ready when it has been
pushed and its inputs are there. So a run may take longer although no worker waited without a
reason: the program pushed late, or waited between.

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(workers=2, times=1000), profile() as trace:
...     x, y = nd.ones((2, 2)), nd.ones((2, 2))
...     z = x + y
...     nd.waitall()
>>> print(trace.bounds())
2.00 ms; no order of these operations takes less than 2.00 ms (the longest chain); if all are \
pushed at once and no worker is idle while one is ready, any order takes at most 2.50 ms
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.profiler.replay import recorded_threads

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


class ScheduleBounds(NamedTuple):
    """Bounds of a run, in ns.

    wall_ns   how long the run took
    work_ns   place -> the work of its operations over the number of its workers; links too
    chain_ns  the longest chain
    greedy_ns Graham's bound; None if operations ran at several places, or if the trace does not
              show all that they need
    """

    wall_ns: int
    work_ns: dict[str, float]
    chain_ns: float
    greedy_ns: float | None

    @property
    def least_ns(self) -> float:
        """What no order of the operations beats."""
        return max([self.chain_ns, *self.work_ns.values()])

    @property
    def reason(self) -> str:
        """The bound that is the largest, in words."""
        if self.chain_ns >= self.least_ns:
            return "the longest chain"
        place = max(self.work_ns, key=self.work_ns.__getitem__)
        return f"the work of {place} on all its workers"

    def __str__(self) -> str:
        text = (
            f"{self.wall_ns / 1e6:.2f} ms; no order of these operations takes less than "
            f"{self.least_ns / 1e6:.2f} ms ({self.reason})"
        )
        if self.greedy_ns is not None:
            text += (
                "; if all are pushed at once and no worker is idle while one is ready, any order "
                f"takes at most {self.greedy_ns / 1e6:.2f} ms"
            )
        return text


def bounds_of(trace: Trace) -> ScheduleBounds:
    """The bounds of a trace; ValueError if no operation ran."""
    ran = [operation for operation in trace.operations if operation.ran]
    if not ran:
        raise ValueError("bounds: no operation ran while it was recorded")
    workers = computing_threads(trace, recorded_threads(trace))
    places = [operation.place for operation in trace.operations]
    run_ns = [operation.run_ns for operation in trace.operations]
    shares, longest = work_and_chain(trace, workers, places, run_ns)
    greedy = None
    if len(shares) == 1 and not trace.lacks:
        ((place, share),) = shares.items()
        greedy = share + (1 - 1 / workers[place]) * longest
    return ScheduleBounds(trace.end_ns - trace.begin_ns, shares, longest, greedy)


def work_and_chain(
    trace: Trace, workers: Mapping[str, int], places: Sequence[str], run_ns: Sequence[float],
    order: bool = True,
) -> tuple[dict[str, float], float]:  # fmt: skip
    """The work of each place over its workers, and the longest chain, if the operations ran at
    these places and took so long. `order`: False if none comes after another."""
    work: dict[str, float] = defaultdict(float)
    chain = [0.0] * (len(trace.operations) + 1)  # by number: the longest chain that ends there
    for operation, place, ns, (needs, room) in zip(trace.operations, places, run_ns, trace.order):
        whole = least = float(ns)
        if operation.number in trace.shared and operation.run_ns:  # idle workers took pieces
            split, times = trace.shared[operation.number], ns / operation.run_ns
            whole += times * (split.work_ns - split.ns)
            least += times * (split.work_ns / workers[place] - split.ns)
        work[place] += whole
        # A rendezvous needs later operations, too; of these the chain is not known yet: 0.
        before = needs + room if order else ()
        chain[operation.number] = least + max((chain[number] for number in before), default=0.0)
    return {place: ns / workers[place] for place, ns in work.items()}, max(chain)


def computing_threads(trace: Trace, workers: Mapping[str, int]) -> dict[str, int]:
    """The threads of each place that could compute: these workers, and the threads of the program
    that computed inline beside them. The naive engine has no workers, and other libraries' are
    counted with the callers: these are "workers" of the trace."""
    callers = {operation.thread for operation in trace.operations if operation.inline}
    if trace.engine_kind in ("", "naive"):
        callers = set()
    return {**workers, "cpu": workers["cpu"] + len(callers)}
