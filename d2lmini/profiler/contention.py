"""How much slower do operations become next to one another? Predictions as bands.

A trace has the durations of operations next to those that they happened to meet. On other workers
or devices they meet others, with which they share memory, caches, cores and Python's global
interpreter lock. A prediction estimates how long each operation takes alone, simulates which
operations meet, and stretches these.

    alone      the duration on one worker. Of several workers: the CPU time, or where this is not
               known the duration, less what meeting others has cost
    meeting    an operation waits for a core, for memory and caches, and for the interpreter lock if
               it runs Python. Its Python is at most the part that its predicted time does not
               explain, and all of a function that the program pushed
    several    with more than one worker, each operation finds cold caches and wakes a thread

A trace does not tell how often an operation asks for the interpreter lock. So the prediction is a
band: the program is simulated with the least and with the most that this may cost. A trace of
several workers has the cost in its times, so its band is narrower.

>>> from d2lmini.profiler.contention import _overlaps
>>> _overlaps([(0, 10), (5, 15)], [1.0, 1.0])      # each meets the other for half of its time
[0.5, 0.5]

The constants were fitted to half of the programs in `tests/benchmarks/bands.py`, on two cores.
docs/ask-a-trace.md says how often the bands were right for other programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.device import devices
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.cpu_time import Intervals

if TYPE_CHECKING:
    from d2lmini.engine.simulation import Simulation
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.replay import Conditions, Recording

#: Next to another operation, an operation takes this much longer, as a share of its duration.
_BESIDE = 0.34
#: The same for Python: the least, and the most.
_PYTHON = 0.4, 2.6
#: With several workers each operation takes so much longer.
_SEVERAL_NS = 78e3
#: What meeting others adds to a CPU time: a fixed part, and a share if it runs Python.
_HELD_NS, _HELD_PYTHON = 22e3, 0.45
#: While several workers compute, the program's own Python takes this share of its time longer.
_HELD_ISSUING = 0.2
#: An operation alone takes at least this share of its CPU time.
_LEAST_ALONE = 0.5
#: A prediction is wrong by this factor for reasons of which the model knows nothing.
_NOISE = 1.25

_PASSES = 2  # simulations that find which operations meet


class Alone(NamedTuple):
    """An operation as if it ran alone.

    low_ns, high_ns  the duration; equal, unless it is not known whether the operation sleeps
    python    the share of its work that may need the interpreter lock
    computes  the share of its duration in which it computes
    """

    low_ns: float
    high_ns: float
    python: float
    computes: float


class Bands:
    """Predicts bands for a recording: `of(conditions)` is the shortest and the longest duration."""

    def __init__(self, recording: Recording):
        trace = recording.trace
        operations = trace.operations
        self.recording = recording
        self._on_gpu = {str(gpu.ctx) for gpu in devices.gpus() if gpu.kind == "cuda"}
        self._cores = trace.cores or count_cores()
        self._several = self._lanes(recording.recorded) > 1
        off = trace.off_cpu()
        self._sleeps = {
            operation.number: off[operation.number].blocked
            for operation in operations
            if operation.number in off and trace.cpu.times[operation.number].pushed
        }
        spans = [(operation.began_ns, operation.ended_ns) for operation in operations]
        met = _overlaps(spans, [self._computes(operation) for operation in operations])
        self._alone = [
            self._alone_of(operation, min(1.0, beside))
            for operation, beside in zip(operations, met, strict=True)
        ]
        worked_ns = sum(
            operation.run_ns * alone.computes
            for operation, alone in zip(operations, self._alone, strict=True)
            if not operation.inline
        )
        self._busy = min(1.0, worked_ns / max(1, trace.end_ns - trace.begin_ns))

    def of(self, conditions: Conditions) -> tuple[float, float]:
        """The shortest and the longest duration under these conditions."""
        simulate = self.recording.simulate
        ends = [simulate(self._meet(conditions, most)).ended for most in (False, True)]
        return min(ends) / _NOISE, max(ends) * _NOISE

    def run(self, conditions: Conditions) -> Simulation:
        """A run within the band: with durations between the least and the most."""
        least, most = (self._meet(conditions, end) for end in (False, True))
        run_ns = [round((low + high) / 2) for low, high in zip(least.run_ns, most.run_ns)]
        return self.recording.simulate(replace(least, run_ns=run_ns))

    def _meet(self, conditions: Conditions, most: bool) -> Conditions:
        """The conditions with the durations of operations that meet others, with the least or the
        most contention."""
        recording = self.recording
        base = [
            (alone.high_ns if most else alone.low_ns) * (new / old if old else 1.0)
            for alone, new, old in zip(
                self._alone, conditions.run_ns, recording.recorded.run_ns, strict=True
            )
        ]
        now = replace(conditions, run_ns=list(map(round, base)))
        if self._lanes(conditions) == 1:
            if not self._several:
                return now
            issuing = conditions.issuing * (1 - _HELD_ISSUING * self._busy)
            return replace(now, issuing=issuing, usual=True)
        for _ in range(_PASSES):
            spans = [(job.began, job.ended) for job in recording.simulate(now).jobs]
            met = _overlaps(spans, [alone.computes for alone in self._alone])
            run_ns = [
                self._stretch(operation, alone, ns, beside, _PYTHON[most])
                for operation, alone, ns, beside in zip(
                    recording.trace.operations, self._alone, base, met, strict=True
                )
            ]
            now = replace(now, run_ns=run_ns)
        return now

    def _stretch(
        self, operation: Operation, alone: Alone, ns: float, beside: float, python: float
    ) -> int:
        """The duration of an operation with so many others beside it."""
        slower = min(1.0, beside) * (_BESIDE + python * alone.python)
        slower += max(0.0, (beside + 1) / self._cores - 1)
        fixed_ns = _SEVERAL_NS if ns and self._contends(operation) and not operation.inline else 0
        return round(ns * (1 + alone.computes * slower) + fixed_ns)

    def _alone_of(self, operation: Operation, beside: float) -> Alone:
        run_ns, cpu = float(operation.run_ns), self.recording.trace.cpu.times.get(operation.number)
        if not self._contends(operation):
            return Alone(run_ns, run_ns, 0.0, 0.0)
        computes = self._computes(operation)
        sleeps_ns = self._sleeps.get(operation.number, 0)
        took_ns = run_ns
        if self._several and cpu is not None:
            took_ns = min(run_ns, cpu.ns + sleeps_ns)
        pushed = operation.footprint is None
        python = 1.0 if pushed else max(0.0, 1 - operation.predicted_us * 1e3 / max(1.0, took_ns))
        if not self._several:
            return Alone(run_ns, run_ns, python, computes)
        beside *= computes
        low_ns = max(took_ns - beside * _HELD_NS, took_ns * _LEAST_ALONE)
        low_ns /= 1 + beside * python * _HELD_PYTHON
        return Alone(low_ns, took_ns if pushed and cpu is None else low_ns, python, computes)

    def _computes(self, operation: Operation) -> float:
        """The share of its duration in which it computes on the machine's cores."""
        if not self._contends(operation):
            return 0.0
        return 1 - self._sleeps.get(operation.number, 0) / operation.run_ns

    def _contends(self, operation: Operation) -> bool:
        """True if it runs on the machine's cores."""
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
