"""What would n machines give me? A training step, played through with a model of its exchange.

    fitted = cluster.fit(sizes, times, n=2)        # alpha and beta, from measured sums
    works = cluster.works_of(trace, trainer)       # when each gradient is there
    found = cluster.scaling(works, fitted)         # 1 ... 4096 processes
    print(found)                                   # seconds of a step, with bands

A step is little more than a table. Gradients become ready one by one while backward goes on, that
of the last layer first. They travel in the buckets that the library would make of them, in its
order, one bucket after the other, each as long as `alpha_beta.all_reduce_s` says. The update comes
when computing and travelling are over, and then the next step begins.

>>> work = work_of([(0.01, 0.02, 400_000)] * 10)           # ten layers, 0.3 s, 4 MB
>>> link = Link(alpha_s=1e-3, beta_s=1e-8)                 # 1 ms a message, 0.1 GB/s
>>> for n in (1, 2, 64):
...     print(n, step(work, n, link, "ring"))
1 0.300 s, of which 0.000 s for the exchange alone
2 0.306 s, of which 0.006 s for the exchange alone
64 0.955 s, of which 0.655 s for the exchange alone

What it leaves out: a network that is busy with others, data that come late, and what a larger batch
does to the training itself. One that is late holds up all: that it has (`sigma_s`).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from d2lmini.d2l.alpha_beta import (
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
from d2lmini.gluon.trainer import Trainer
from d2lmini.kvstore.dist import grouped
from d2lmini.profiler.trace import Trace, serial_of

__all__ = [
    "WAYS", "Fit", "Gradient", "Link", "Prediction", "Rounds", "Scaling", "Step", "Work",
    "all_reduce_s", "fit", "rounds_of", "scaling", "step", "work_of", "works_of",
]  # fmt: skip

#: 1, 2, 4, ... 4096 processes.
SIZES = tuple(2**k for k in range(13))


class Gradient(NamedTuple):
    """One of a net's gradients: its bytes, and how many seconds after the step's begin it is
    there."""

    nbytes: int
    ready_s: float


class Work(NamedTuple):
    """What one process does in a step by itself: `compute_s` seconds forward and backward, in which
    the gradients become ready, in the order of the net's parameters; and `update_s` after all."""

    compute_s: float
    gradients: tuple[Gradient, ...]
    update_s: float = 0.0

    def later(self, seconds: float) -> Work:
        """The same, done by one that is slower by so many seconds in all."""
        by = 1 + seconds / self.compute_s
        gradients = tuple(Gradient(g.nbytes, by * g.ready_s) for g in self.gradients)
        return Work(by * self.compute_s, gradients, self.update_s)


def work_of(layers: Sequence[tuple[float, float, int]], update_s: float = 0.0) -> Work:
    """The work of layers, from a table: for each the seconds forward, the seconds backward, and the
    bytes of its gradient. Backward goes from the last to the first.

    >>> work_of([(0.1, 0.2, 1000), (0.1, 0.2, 50)])
    Work(compute_s=0.6..., gradients=(Gradient(nbytes=1000, ready_s=0.6...), \
Gradient(nbytes=50, ready_s=0.4)), update_s=0.0)
    """
    now = sum(forward_s for forward_s, _, _ in layers)
    gradients: list[Gradient] = []
    for _, backward_s, nbytes in reversed(layers):
        now += backward_s
        gradients.append(Gradient(nbytes, now))
    return Work(now, tuple(reversed(gradients)), update_s)


def works_of(trace: Trace, trainer: Trainer) -> list[Work]:
    """The work of each step in a trace of training by one process, but for the first step, whose
    begin is not seen: a step begins when the update before it is over. trainer: the Trainer of a
    net on one context. ValueError if there are fewer than two steps in the trace."""
    params = [p for p in (trainer._params[i] for i in trainer._in_net) if p.grad_req != "null"]
    weights = {serial_of(p.data()._chunk) for p in params}
    ready = {serial_of(p.grad()._chunk): 0 for p in params}
    nbytes = [p.grad()._spec.nbytes for p in params]
    found: list[Work] = []
    begin = done = updated = 0

    def close() -> None:
        if begin:
            gradients = (Gradient(n, 1e-9 * (at - begin)) for n, at in zip(nbytes, ready.values()))
            compute_s, update_s = 1e-9 * (done - begin), 1e-9 * (updated - done)
            found.append(Work(compute_s, tuple(gradients), update_s))

    for operation in trace.operations:
        if weights.intersection(operation.writes):
            updated = max(updated, operation.ended_ns)
            continue
        if updated:  # the first operation of the next step
            close()
            begin, done, updated = updated, 0, 0
        done = max(done, operation.ended_ns)
        for serial in operation.writes:
            if serial in ready:
                ready[serial] = operation.ended_ns
    if updated:
        close()
    if not found:
        raise ValueError("works_of: the trace needs two steps of training or more, updates and all")
    return found


# -- played through --------------------------------------------------------------------------------


class Step(NamedTuple):
    """A step of training as the model sees it, from 0 to `seconds`.

    compute_s   until the slowest process is through forward and backward
    sent        for each bucket: its bytes, when its exchange began, when it was over
    seconds     until the update is done; the next step can begin
    """

    compute_s: float
    sent: tuple[tuple[int, float, float], ...]
    seconds: float

    @property
    def busy_s(self) -> float:
        """How long the link was in use."""
        return sum(end - begin for _, begin, end in self.sent)

    @property
    def alone_s(self) -> float:
        """How long the exchange went on when nothing was left to compute."""
        return max(0.0, self.sent[-1][2] - self.compute_s) if self.sent else 0.0

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s, of which {self.alone_s:.3f} s for the exchange alone"


def step(
    work: Work, n: int, link: Link, way: str = "shares", *, per_node: int = 1,
    inside: Link | None = None, sigma_s: float = 0.0,
    buckets: Sequence[Sequence[int]] | None = None, overlap: bool = True,
) -> Step:  # fmt: skip
    """A step of n processes that do this work each; `way`, `per_node` and `inside` as for
    `all_reduce_s`.

    sigma_s: the work of a process takes now more, now less, with this standard deviation. All wait
    for the last of n, who comes sigma_s * sqrt(2 ln n) late, if times are normal (an upper bound).
    buckets: which gradients travel together, by their places in the work; None: as the library
    does it. overlap: False sends when all are ready.
    """
    if n > 1 and sigma_s:
        work = work.later(sigma_s * math.sqrt(2 * math.log(n)))
    sent = []
    free = 0.0
    for bucket in (buckets or _buckets(work)) if n > 1 else ():
        nbytes = sum(work.gradients[i].nbytes for i in bucket)
        ready = max(work.gradients[i].ready_s for i in bucket) if overlap else work.compute_s
        begin = max(free, ready)
        free = begin + all_reduce_s(nbytes, n, link, way, per_node, inside)
        sent.append((nbytes, begin, free))
    return Step(work.compute_s, tuple(sent), max(work.compute_s, free) + work.update_s)


def _buckets(work: Work) -> list[list[int]]:
    """As `DistKVStore` makes them: the last gradient first."""
    places = range(len(work.gradients))[::-1]
    groups = grouped([work.gradients[i].nbytes for i in places], ["float32"] * len(places))
    return [[places[i] for i in group] for group in groups]


class Prediction(NamedTuple):
    """Seconds of a step of n processes; in 90 of 100 draws of link and work it is from `low_s` to
    `high_s`. efficiency: the part of the time of one process alone in it, 1 at best."""

    n: int
    seconds: float
    low_s: float
    high_s: float
    efficiency: float


class Scaling(tuple[Prediction, ...]):
    """A prediction for each number of processes."""

    __slots__ = ()

    def at(self, n: int) -> Prediction:
        """That of n processes; KeyError if it was not asked for."""
        for each in self:
            if each.n == n:
                return each
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
    """A prediction for each number of processes in `sizes`: the median of the steps that come of
    the works (several measured ones, or one) with the link as fitted (or one that is known).
    options: those of `step`. With each process goes its part of the batch: as much work as before.

    >>> work = work_of([(0.01, 0.02, 4_000_000)] * 10)
    >>> ten_gigabit = Link(alpha_s=30e-6, beta_s=1 / 1.2e9)
    >>> print(scaling(work, ten_gigabit, (1, 8, 512), way="ring"))
    processes    a step           from             to   efficiency
            1     300.00 ms      300.00 ms      300.00 ms        100 %
            8     306.25 ms      306.25 ms      306.25 ms         98 %
          512     493.14 ms      493.14 ms      493.14 ms         61 %
    """
    known = [works] if isinstance(works, Work) else list(works)
    links = link.draws if isinstance(link, Fit) else (link,)
    count = max(DRAWS, len(links)) if len(known) > 1 else len(links)
    chance = random.Random(seed)
    drawn = [(chance.choice(known), links[i % len(links)]) for i in range(count)]
    alone_s = statistics.median(each.compute_s + each.update_s for each in known)
    found = []
    for n in sizes:
        steps = [step(work, n, link, **options).seconds for work, link in drawn]
        seconds = statistics.median(steps)
        found.append(Prediction(n, seconds, *band(steps), alone_s / seconds))
    return Scaling(found)
