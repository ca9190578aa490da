"""How much slower do operations become next to one another? Predictions as bands.

A trace has the durations of operations next to those that they happened to meet. On other workers
or devices they meet others, with which they share memory, caches, cores and Python's global
interpreter lock. So such a prediction is a band: the program is simulated with the least and with
the most contention that agrees with

    the machine          `measure`: work of three kinds on two threads at once
    the operation        its FLOPs and bytes over its duration, beside the machine's peaks. What
                         these do not explain may be Python, which holds the interpreter lock
    its CPU time         time off the CPU is no work; it is gone when an operation runs alone
    equal operations     those of the same name, place and predicted time: the fast ones have met
                         little contention

The first simulations find which operations meet, the next ones stretch them accordingly. If more
operations compute than there are cores, they share the cores.

    >>> from d2lmini.profiler.contention import measure
    >>> print(measure())                                            # doctest: +SKIP
    next to      arithmetic    memory    python
    arithmetic       x 1.05    x 1.02    x 1.02
    memory           x 1.13    x 1.20    x 1.18
    python           x 1.00    x 1.02    x 2.00

The shares and times in `LEAST` and `MOST` come from no measurement: they were fitted to half of the
programs in `tests/benchmarks/bands.py`, on two cores. docs/ask-a-trace.md says how often the bands
were right for the other half.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.device import blas, devices
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.cpu_time import Intervals
from d2lmini.profiler.peaks import peak

if TYPE_CHECKING:
    from d2lmini.engine.simulation import Simulation
    from d2lmini.profiler.cpu_time import CpuTime
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.replay import Conditions, Recording

#: The kinds of work that are measured next to one another.
KINDS = ("arithmetic", "memory", "python")

_MEASURED_S = 0.03  # for each pair of kinds; longer than Python's switch interval
_PASSES = 3  # simulations that find which operations meet


class Slowdown(NamedTuple):
    """One end of what contention may do to an operation.

    python      share of the work that no peak explains which holds the interpreter lock
    switch_ns   to get the lock back, if another operation runs beside
    near        what sharing caches adds, as a share of the duration
    cold        what a second worker adds even if nothing runs beside: caches are cold, threads
                asleep
    issuing     the same for the program's own Python, while workers compute
    """

    python: float
    switch_ns: float
    near: float
    cold: float
    issuing: float


#: With other workers than recorded.
LEAST = Slowdown(0.2, 50e3, 0.03, 0.0, 0.0)
MOST = Slowdown(0.95, 200e3, 0.0, 0.35, 0.6)
#: Contained in recorded durations.
HELD_LEAST = Slowdown(0.0, 0.0, 0.0, 0.0, 0.0)
HELD_MOST = Slowdown(0.2, 140e3, 0.0, 0.35, 0.6)
#: An operation alone takes at least this share of its recorded duration; of its CPU time.
_OF_RUN, _OF_CPU = 0.2, 0.45
#: It takes this share of the quartile, and this many times the median, of five equal operations.
_OF_QUARTILE, _OF_MEDIAN = 0.3, 1.4
#: Several workers take at most so many times as long as one, and so much more for an operation.
_WORST, _WORST_NS = 1.4, 80e3
#: Two runs of one program differ by so much.
_NOISE = 0.12


class Contention(NamedTuple):
    """The result of `measure`. `slower`: (kind, other kind) -> how many times longer work takes
    next to work of the other kind."""

    slower: dict[tuple[str, str], float]

    def __str__(self) -> str:
        rows = ["next to   " + "".join(f"{kind:>12}" for kind in KINDS)]
        for kind in KINDS:
            factors = (f"{f'x {self.slower[kind, other]:.2f}':>12}" for other in KINDS)
            rows.append(f"{kind:<10}" + "".join(factors))
        return "\n".join(rows)


@cache
def measure() -> Contention:
    """What work on one thread does to work on another, on this machine. Waits until the engine is
    idle first; takes about half a second, then the result is cached for the process.

    Threads are compared by their CPU time, since other programs may use the machine. Of two threads
    that run Python, the interpreter lock lets one run at a time, so each takes twice as long; where
    Python has no such lock, they are compared as the others."""
    engine.current.wait_idle("contention.measure")
    with blas.alone():
        mine, others = _works(), _works()
        alone = {kind: _time(mine[kind]) for kind in KINDS}
        slower = {}
        for kind in KINDS:
            for other in KINDS:
                slower[kind, other] = max(1.0, _time(mine[kind], others[other]) / alone[kind])
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        slower["python", "python"] = 2.0
    return Contention(slower)


def _works() -> dict[str, Callable[[], object]]:
    """Work of each kind, of a tenth of a millisecond to one."""
    a = np.ones((256, 256), np.float32)
    product = np.empty_like(a)
    source = np.ones((16, 1 << 20), np.float32)
    target = np.ones_like(source)
    turns = cycle(range(16))

    def copy() -> None:
        place = next(turns)
        np.copyto(target[place], source[place])

    return {
        "arithmetic": lambda: np.matmul(a, a, out=product),
        "memory": copy,
        "python": lambda: sum(k * k for k in range(3000)),
    }


def _time(work: Callable[[], object], other: Callable[[], object] | None = None) -> float:
    """Seconds of CPU time of `work`, the median, while another thread does the other work."""
    over = threading.Event()

    def keep_on() -> None:
        while other is not None and not over.is_set():
            other()

    beside = threading.Thread(target=keep_on)
    beside.start()
    took_s: list[float] = []
    try:
        end_s = time.perf_counter() + _MEASURED_S
        while not took_s or time.perf_counter() < end_s:
            before_s = time.thread_time()
            work()
            took_s.append(time.thread_time() - before_s)
    finally:
        over.set()
        beside.join()
    return median(took_s)


# -- operations alone ------------------------------------------------------------------------------


class Alone(NamedTuple):
    """An operation as if it ran alone: from `low_ns` to `high_ns`; its kind; the share of its work
    that the machine's peaks explain, and the share of its duration in which it computes."""

    low_ns: float
    high_ns: float
    kind: str
    explained: float
    computes: float


class Bands:
    """Predicts bands for a recording: `of(conditions)` is the shortest and the longest duration."""

    def __init__(self, recording: Recording):
        trace = recording.trace
        self.recording = recording
        self._slower, self._peak = measure().slower, peak(1)
        self._on_gpu = {str(gpu.ctx) for gpu in devices.gpus() if gpu.kind == "cuda"}
        self._several = self._lanes(recording.recorded) > 1
        self._cores = trace.cores or count_cores()
        operations = trace.operations
        equal: dict[tuple[str, str, float], list[int]] = {}
        for operation in operations:
            equal.setdefault(_key(operation), []).append(operation.run_ns)
        usual = {
            key: (_OF_QUARTILE * quantiles(runs, n=4)[0], _OF_MEDIAN * median(runs))
            for key, runs in equal.items()
            if len(runs) >= 5
        }
        spans = [(operation.began_ns, operation.ended_ns) for operation in operations]
        met = _overlaps(spans, [float(self._contends(operation)) for operation in operations])
        off = trace.off_cpu()
        self._alone = []
        for operation, beside in zip(operations, met, strict=True):
            cpu = trace.cpu.times.get(operation.number)
            parts = off.get(operation.number)
            sleeps_ns = parts.blocked if parts and cpu and cpu.pushed else 0
            self._alone.append(
                self._alone_of(
                    operation, min(1.0, beside), cpu, sleeps_ns, usual.get(_key(operation))
                )
            )
        worked_ns = sum(
            operation.run_ns * alone.computes
            for operation, alone in zip(operations, self._alone, strict=True)
            if not operation.inline
        )
        self._busy = min(1.0, worked_ns / max(1, trace.end_ns - trace.begin_ns))
        self._worst_ns = _WORST_NS * sum(self._contends(e) and not e.inline for e in operations)

    def of(self, conditions: Conditions) -> tuple[float, float]:
        """The shortest and the longest duration under these conditions."""
        simulate, trace = self.recording.simulate, self.recording.trace
        ends = [simulate(self._meet(conditions, most)).ended for most in (False, True)]
        low, high = min(ends), max(ends)
        recorded_ns = trace.end_ns - trace.begin_ns
        lanes, before = self._lanes(conditions), self._lanes(self.recording.recorded)
        if lanes > before:
            high = min(high, recorded_ns * _WORST + self._worst_ns)
        elif lanes < before:
            low = max(low, (recorded_ns - self._worst_ns) / _WORST)
        return min(low, high) * (1 - _NOISE), max(low, high) * (1 + _NOISE)

    def run(self, conditions: Conditions) -> Simulation:
        """A run within the band: with durations between the least and the most."""
        least, most = (self._meet(conditions, end) for end in (False, True))
        run_ns = [round((low + high) / 2) for low, high in zip(least.run_ns, most.run_ns)]
        issuing = (least.issuing + most.issuing) / 2
        return self.recording.simulate(replace(conditions, run_ns=run_ns, issuing=issuing))

    def _meet(self, conditions: Conditions, most: bool) -> Conditions:
        """The conditions with the durations of operations that meet others, with the least or the
        most contention."""
        recording, slowdown = self.recording, MOST if most else LEAST
        base = [
            (each.high_ns if most else each.low_ns) * (new / old if old else 1.0)
            for each, new, old in zip(
                self._alone, conditions.run_ns, recording.recorded.run_ns, strict=True
            )
        ]
        several = self._lanes(conditions) > 1
        issuing = conditions.issuing
        if most and several:
            issuing *= 1 + MOST.issuing * self._busy
        elif not most and self._several:
            issuing /= 1 + HELD_MOST.issuing * self._busy
        now = replace(conditions, run_ns=list(map(round, base)), issuing=issuing)
        for _ in range(_PASSES):
            run = recording.simulate(now)
            spans = [(job.began, job.ended) for job in run.jobs]
            met = _overlaps(spans, [each.computes for each in self._alone])
            stretched = [
                round(self._stretch(each, ns, beside, slowdown, several))
                for each, ns, beside in zip(self._alone, base, met, strict=True)
            ]
            now = replace(now, run_ns=stretched)
        return now

    def _stretch(
        self, alone: Alone, ns: float, beside: float, slowdown: Slowdown, several: bool
    ) -> float:
        """The duration of an operation with so many others beside it."""
        if not alone.computes or not ns:
            return ns
        share = min(1.0, beside) * alone.computes
        times = 1 + share * (self._factor(alone, slowdown) - 1)
        times *= 1 + alone.computes * max(0.0, (beside + 1) / self._cores - 1)
        if several:
            times *= 1 + slowdown.cold * alone.computes
        return ns * times + slowdown.switch_ns * min(1.0, beside)

    def _factor(self, alone: Alone, slowdown: Slowdown) -> float:
        """How many times longer an operation takes next to one of its kind."""
        return (
            1
            + slowdown.near
            + alone.explained * (self._slower[alone.kind, alone.kind] - 1)
            + (1 - alone.explained) * slowdown.python * (self._slower["python", "python"] - 1)
        )

    def _alone_of(
        self, operation: Operation, beside: float, cpu: CpuTime | None, sleeps_ns: int,
        usual: tuple[float, float] | None,
    ) -> Alone:  # fmt: skip
        run = float(operation.run_ns)
        if not self._contends(operation):
            return Alone(run, run, "python", 0.0, 0.0)
        kind, explained = "python", 0.0
        if cpu is None or not cpu.pushed:
            arithmetic_ns = operation.flops / self._peak.gflops_per_s
            memory_ns = operation.nbytes / self._peak.gb_per_s
            kind = "arithmetic" if arithmetic_ns > memory_ns else "memory"
            explained = min(1.0, max(arithmetic_ns, memory_ns) / run)
        low = high = run
        if beside > 0.02:
            least, most = (
                1 + beside * (self._factor(Alone(run, run, kind, explained, 1.0), held) - 1)
                for held in (HELD_LEAST, HELD_MOST)
            )
            high = max(run - beside * HELD_LEAST.switch_ns, run / 2) / least
            low = max(run - beside * HELD_MOST.switch_ns, run * _OF_RUN) / most
            if cpu is not None:
                worked = min(run, cpu.ns + sleeps_ns)
                high = min(high, worked)
                low = min(high, max(low, worked * _OF_CPU))
            if usual is not None:
                low = min(high, max(low, usual[0]))
                high = max(low, min(high, usual[1]))
        if self._several and not operation.inline:
            low = max(min(low, sleeps_ns), low / (1 + HELD_MOST.cold))
        computes = max(0.0, 1 - sleeps_ns / max(low, 1.0))
        if cpu is None and operation.footprint is None:
            computes = 0.0  # a function that the program pushed to a device; it may as well sleep
        return Alone(low, high, kind, explained, computes)

    def _contends(self, operation: Operation) -> bool:
        """True if it computes on the machine's cores."""
        on_cores = not operation.is_copy and operation.place not in self._on_gpu
        return on_cores and operation.run_ns > 0

    def _lanes(self, conditions: Conditions) -> int:
        """The number of workers that compute on the machine's cores."""
        places = {
            place
            for place, operation in zip(
                conditions.places, self.recording.trace.operations, strict=True
            )
            if self._contends(operation)
        }
        return sum(conditions.workers[place] for place in places)


def _key(operation: Operation) -> tuple[str, str, float]:
    return operation.name, operation.place, round(operation.predicted_us, 1)


def _overlaps(spans: Sequence[tuple[int, int]], weights: Sequence[float]) -> list[float]:
    """For each span the mean weight of the others that overlap it."""
    intervals = Intervals(
        (begin, end, weight)
        for (begin, end), weight in zip(spans, weights, strict=True)
        if weight and end > begin
    )
    return [
        max(0.0, intervals.within(begin, end) / (end - begin) - weight) if end > begin else 0.0
        for (begin, end), weight in zip(spans, weights, strict=True)
    ]
