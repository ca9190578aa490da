"""How much slower do operations become next to one another? Predictions as bands.

A trace has the durations of operations next to those that they happened to meet. On other workers
or devices they meet others, with which they share memory, caches, cores and Python's global
interpreter lock. A prediction estimates how long each operation takes alone, simulates which
operations meet, and stretches these.

    alone      the duration on one worker. An operation of several workers waited for the
               interpreter lock while it was off the CPU, and came back to cold caches: its CPU time
               is longer than alone by the share of its duration that it was off the CPU. Where no
               CPU time is known, as on virtual devices, its Python took longer next to others
    meeting    an operation waits for memory and caches, for the interpreter lock if it runs Python,
               and for a core. Its Python is at most the part that its predicted time does not
               explain, and all of a function that the program pushed
    several    with more than one worker, each operation finds cold caches and wakes a thread

A trace of one worker does not tell how often an operation asks for the interpreter lock. So the
program is simulated with the least and with the most that this may cost. A trace of several workers
has that cost in its times, so its band is narrower.

>>> from d2lmini.profiler.contention import _overlaps
>>> _overlaps([(0, 10), (5, 15)], [1.0, 1.0])      # each meets the other for half of its time
[0.5, 0.5]

The constants were fitted to 46 programs on two cores (`tests/benchmarks/band_programs.py`).
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
_BESIDE = 0.22
#: The same for Python: the least, and the most.
_PYTHON = 0.4, 3.0
#: With several workers each operation takes so much longer.
_SEVERAL_NS = 110e3
#: The share by which Python was longer next to others, in an operation without a known CPU time.
_HELD_PYTHON = 0.9
#: On one worker the program's own Python takes less time than next to several, by this share.
_HELD_ISSUING = 0.4
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
        run_ns = float(operation.run_ns)
        if not self._contends(operation):
            return Alone(run_ns, run_ns, 0.0, 0.0)
        cpu = self.recording.trace.cpu.times.get(operation.number)
        computes = self._computes(operation)
        pushed = operation.footprint is None
        if not self._several or cpu is None:
            python = _python(operation, run_ns)
            if not self._several:
                return Alone(run_ns, run_ns, python, computes)
            low_ns = run_ns / (1 + min(1.0, beside) * python * _HELD_PYTHON)
            return Alone(low_ns, run_ns if pushed else low_ns, python, computes)
        worked_ns = min(run_ns, cpu.ns + self._sleeps.get(operation.number, 0))
        off = max(0.0, run_ns - worked_ns - (cpu.delayed_ns or 0)) / run_ns
        alone_ns = worked_ns if cpu.pushed else worked_ns / (1 + off)
        return Alone(alone_ns, alone_ns, _python(operation, alone_ns), computes)

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


def _python(operation: Operation, took_ns: float) -> float:
    """The share of the operation that its predicted time does not explain; 1 if the program pushed
    it."""
    if operation.footprint is None:
        return 1.0
    return max(0.0, 1 - operation.predicted_us * 1e3 / max(1.0, took_ns))


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
