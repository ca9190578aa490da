"""Predict training with n machines: a model of a training step and its exchange.

    fitted = cluster.fit(sizes, times, n=2)        # alpha and beta, from measured sums
    works = cluster.works_of(trace, trainer)       # when each gradient is ready
    found = cluster.scaling(works, fitted)         # 1 ... 4096 processes
    print(found)                                   # seconds of a step, with bands

The model of a step is little more than a table. Gradients become ready one by one during backward,
the last layer's first. They travel in the buckets that the library would form, in its order, one
bucket after the other, each as long as `alpha_beta.all_reduce_s` says. The weights of a bucket are
updated when it has arrived; the next forward pass goes on as far as its weights are updated. On the
stepped engine's clock the library's own steps take as long as the model says, within a percent or
two (`test_d2l_cluster.py`); on a machine there is more to a step (tests/benchmarks/scaling.py
compares).

>>> work = work_of([(0.01, 0.02, 400_000)] * 10)           # ten layers, 0.3 s, 4 MB
>>> link = Link(alpha_s=1e-3, beta_s=1e-8)                 # 1 ms a message, 0.1 GB/s
>>> for n in (1, 2, 64):
...     print(n, step(work, n, link, "ring"))
1 0.300 s, of which 0.000 s for the exchange alone
2 0.307 s, of which 0.007 s for the exchange alone
64 0.910 s, of which 0.610 s for the exchange alone

The model leaves out: a network that is busy with other traffic, data that come late, and the effect
of a larger batch on training. It includes that one late process delays all (`sigma_s`).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from d2lmini.distributed.alpha_beta import (
    DRAWS,
    WAYS,
    Fit,
    Link,
    Rounds,
    all_reduce_s,
    band,
    fit,
    rounds_of,
)
from d2lmini.distributed.dist import group_by_bucket, in_turns
from d2lmini.gluon.trainer import Trainer
from d2lmini.profiler.recorder import serial_of
from d2lmini.profiler.tracing import Trace

__all__ = [
    "WAYS", "Fit", "Gradient", "Link", "Prediction", "Rounds", "Scaling", "Step", "Work",
    "all_reduce_s", "fit", "rounds_of", "scaling", "step", "work_of", "works_of",
]  # fmt: skip

#: 1, 2, 4, ... 4096 processes.
SIZES = tuple(2**k for k in range(13))


class Gradient(NamedTuple):
    """One gradient of a net: its bytes; the seconds from the begin of the step until it is ready,
    if nothing waits; and the time in forward at which its weight is needed."""

    nbytes: int
    ready_s: float
    needed_s: float = 0.0


class Work(NamedTuple):
    """One process's own work in a step: `compute_s` seconds forward and backward, during which the
    gradients become ready, in the order of the net's parameters; and `update_s` in the end."""

    compute_s: float
    gradients: tuple[Gradient, ...]
    update_s: float = 0.0

    def later(self, seconds: float) -> Work:
        """The same work, by a process that takes `seconds` longer in all."""
        by = 1 + seconds / self.compute_s
        gradients = (Gradient(g.nbytes, by * g.ready_s, by * g.needed_s) for g in self.gradients)
        return Work(by * self.compute_s, tuple(gradients), self.update_s)

    @classmethod
    def slowest(cls, works: Sequence[Work]) -> Work:
        """The work that a process which waits for all sees: the latest of every time."""
        gradients = (
            Gradient(row[0].nbytes, max(g.ready_s for g in row), max(g.needed_s for g in row))
            for row in zip(*(work.gradients for work in works))
        )
        compute_s, update_s = (max(values) for values in zip(*((w[0], w[2]) for w in works)))
        return cls(compute_s, tuple(gradients), update_s)


def work_of(layers: Sequence[tuple[float, float, int]], update_s: float = 0.0) -> Work:
    """The work of layers, from a table: for each layer the seconds forward, the seconds backward,
    and the bytes of its gradient. Backward goes from the last to the first.

    >>> work_of([(1, 2, 1000), (1, 2, 50)]).gradients
    (Gradient(nbytes=1000, ready_s=6, needed_s=0), Gradient(nbytes=50, ready_s=4, needed_s=1))
    """
    begins = [0, *accumulate(forward_s for forward_s, _, _ in layers)]
    now = begins.pop()
    gradients: list[Gradient] = []
    for (_, backward_s, nbytes), needed_s in zip(reversed(layers), reversed(begins)):
        now += backward_s
        gradients.append(Gradient(nbytes, now, needed_s))
    return Work(now, tuple(reversed(gradients)), update_s)


def works_of(trace: Trace, trainer: Trainer) -> list[Work]:
    """The work of each step in a trace of training by one process, except for the first step, whose
    begin is not in the trace: a step begins when the update before it is over. trainer: the Trainer
    of a net on one context. ValueError if there are fewer than two steps in the trace."""
    params = [p for p in (trainer._params[i] for i in trainer._in_net) if p.grad_req != "null"]
    weights = [serial_of(p.data()._chunk) for p in params]
    grads = [serial_of(p.grad()._chunk) for p in params]
    nbytes = [p.grad()._spec.nbytes for p in params]
    found: list[Work] = []
    begin = done = updated = 0
    needed, ready = dict.fromkeys(weights, 0), dict.fromkeys(grads, 0)

    def close() -> None:
        if begin:
            times = [
                [1e-9 * (at - begin) for at in operation.values()] for operation in (ready, needed)
            ]
            compute_s, update_s = 1e-9 * (done - begin), 1e-9 * (updated - done)
            found.append(Work(compute_s, tuple(map(Gradient, nbytes, *times)), update_s))

    for operation in trace.operations:
        if needed.keys() & set(operation.writes):
            updated = max(updated, operation.ended_ns)
            continue
        if updated:  # the first operation of the next step
            close()
            begin, done, updated = updated, 0, 0
            needed = dict.fromkeys(weights, 0)
        done = max(done, operation.ended_ns)
        for serial in operation.reads:
            if not needed.get(serial, 1):
                needed[serial] = operation.began_ns
        for serial in operation.writes:
            if serial in ready:
                ready[serial] = operation.ended_ns
    if updated:
        close()
    if not found:
        raise ValueError("works_of: the trace needs two steps of training or more, updates and all")
    return found


# -- simulation ------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A step of training in the model: the last of several, which follow one another.

    seconds   the mean of all: from an idle begin until the last update, divided by their number
    work      the work of each process, or of the slowest
    stalls    (when, how long) forward waited for weights, in seconds after its begin
    sent      for each bucket: its bytes, when its exchange began, when it was over
    after_s   how long before this step the one before began; 0 for the first
    """

    seconds: float
    work: Work
    stalls: tuple[tuple[float, float], ...]
    sent: tuple[tuple[int, float, float], ...]
    after_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """How long the link was in use."""
        return sum(end - begin for _, begin, end in self.sent)

    @property
    def alone_s(self) -> float:
        """How long nothing was computed because of the exchange."""
        return max(0.0, self.seconds - self.work.compute_s - self.work.update_s)

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s, of which {self.alone_s:.3f} s for the exchange alone"


def step(
    work: Work, n: int, link: Link, way: str = "shares", *, per_node: int = 1,
    inside: Link | None = None, sigma_s: float = 0.0,
    buckets: Sequence[Sequence[int]] | None = None, overlap: bool = True,
    wait_for_all: bool = False, count: int = 10,
) -> Step:  # fmt: skip
    """A step of n processes that each do `work`, the mean of `count` steps in sequence; `way`,
    `per_node` and `inside` as for `all_reduce_s`.

    sigma_s: standard deviation of a process's time. All wait for the last of n, which comes
    sigma_s * sqrt(2 ln n) late, if times are normal (an upper bound).
    buckets: which gradients travel together, as indices into the work, in sending order; None: as
    in the library. overlap: False sends when backward is over.
    wait_for_all: True updates when all have arrived, and only then begins the next step.
    """
    if n > 1 and sigma_s:
        work = work.later(sigma_s * math.sqrt(2 * math.log(n)))
    plan = (buckets or _buckets(work)) if n > 1 else []
    nbytes = [sum(work.gradients[i].nbytes for i in bucket) for bucket in plan]
    costs = [all_reduce_s(size, n, link, way, per_node, inside) for size in nbytes]
    updates = [work.update_s * size / sum(nbytes) for size in nbytes]
    forward = sorted(range(len(work.gradients)), key=lambda i: work.gradients[i].needed_s)
    there = [0.0] * len(work.gradients)  # when each weight is updated
    begin = following = free = 0.0
    for _ in range(count):
        after_s, begin = following - begin, following
        late, stalls = 0.0, []
        for i in forward:
            now = begin + work.gradients[i].needed_s + late
            if there[i] > now:
                stalls.append((now - begin, there[i] - now))
                late += there[i] - now
        sent = []
        for bucket, size, cost, update_s in zip(plan, nbytes, costs, updates):
            ready = max(work.gradients[i].ready_s for i in bucket) if overlap else work.compute_s
            start = max(free, begin + late + ready)
            free = start + cost
            sent.append((size, start - begin, free - begin))
            for i in bucket:
                there[i] = free + update_s
        following = begin + late + work.compute_s + work.update_s
        if wait_for_all and plan:
            following = max(following, free + work.update_s)
            there = [following] * len(there)
    seconds = max(following, *there) / count
    return Step(seconds, work, tuple(stalls), tuple(sent), after_s)


def _buckets(work: Work) -> list[list[int]]:
    """The buckets of `DistKVStore`, the last gradient first, in the order of a Trainer's step, in
    which some follow after backward."""
    places = range(len(work.gradients))[::-1]
    groups = group_by_bucket([work.gradients[i].nbytes for i in places], ["float32"] * len(places))
    return [[places[i] for i in group] for group in in_turns(groups)]


class Prediction(NamedTuple):
    """Seconds of a step of n processes; in 90 of 100 draws of link and work they lie between
    `low_s` and `high_s`. efficiency: the time of one process alone divided by this, at best 1."""

    n: int
    seconds: float
    low_s: float
    high_s: float
    efficiency: float


class Scaling(tuple[Prediction, ...]):
    """A prediction for each number of processes."""

    __slots__ = ()

    def at(self, n: int) -> Prediction:
        """The prediction for n processes; KeyError if there is none."""
        for row in self:
            if row.n == n:
                return row
        raise KeyError(f"{n} processes: predicted were {', '.join(str(p.n) for p in self)}")

    def __str__(self) -> str:
        lines = ["processes    a step           from             to   efficiency"]
        for p in self:
            times = "".join(f"{1e3 * s:11.2f} ms " for s in (p.seconds, p.low_s, p.high_s))
            lines.append(f"{p.n:9}{times} {100 * p.efficiency:9.0f} %")
        return "\n".join(lines)

    __repr__ = __str__


def scaling(
    works: Work | Iterable[Work], link: Link | Fit, sizes: Iterable[int] = SIZES, seed: int = 0,
    **options: Any,
) -> Scaling:  # fmt: skip
    """A prediction for each number of processes in `sizes`: the median of random steps. In each
    step the processes do one of the works (one of several measured, or the given one) and wait for
    the slowest; the link is one of those that fit (or the given one).
    options: those of `step`. Each process adds its own part of the batch: the same work as before.

    >>> work = work_of([(0.01, 0.02, 4_000_000)] * 10)
    >>> ten_gigabit = Link(alpha_s=30e-6, beta_s=1 / 1.2e9)
    >>> print(scaling(work, ten_gigabit, (1, 8, 512), way="ring"))
    processes    a step           from             to   efficiency
            1     300.00 ms      300.00 ms      300.00 ms        100 %
            8     308.13 ms      308.13 ms      308.13 ms         97 %
          512     430.14 ms      430.14 ms      430.14 ms         70 %
    """
    known = [works] if isinstance(works, Work) else list(works)
    links = link.draws if isinstance(link, Fit) else (link,)
    count = max(DRAWS, len(links)) if len(known) > 1 else len(links)
    most = 4 * len(known)  # in this many draws almost every work occurs
    chance = random.Random(seed)
    alone_s = statistics.median(work.compute_s + work.update_s for work in known)
    found = []
    for n in sizes:
        steps = []
        for i in range(count):
            work = Work.slowest(chance.choices(known, k=min(n, most)))
            steps.append(step(work, n, links[i % len(links)], **options).seconds)
        seconds = statistics.median(steps)
        found.append(Prediction(n, seconds, *band(steps), alone_s / seconds))
    return Scaling(found)
