"""How much slower do operations become next to one another? Predictions as bands.

A trace has the durations of operations next to those that they happened to meet. On other workers
or devices they meet others, with which they share memory, caches, cores and Python's global
interpreter lock. A prediction simulates which operations meet, and stretches these; for one worker,
it estimates how long each takes alone.

    alone      the duration on one worker. An operation of several workers waited for the
               interpreter lock while it was off the CPU, and came back to cold caches: its CPU time
               is longer than alone by the share of its duration that it was off the CPU. Where no
               CPU time is known, as on virtual devices, its Python took longer next to others
    meeting    an operation waits for memory and caches, for the interpreter lock if it runs Python,
               and for a core. Its Python is at most the part that its predicted time does not
               explain, and all of a function that the program pushed
    several    with two workers instead of one, each operation finds cold caches and wakes a thread

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
from typing import TYPE_CHECKING

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
#: A prediction may be wrong by this factor for reasons of which the model knows nothing.
_NOISE = 1.4

_PASSES = 2  # simulations that find which operations meet


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
        #: The share of its duration in which each operation computes.
        self._computes = list(map(self._computes_for, operations))
        spans = [(operation.began_ns, operation.ended_ns) for operation in operations]
        self._met = _overlaps(spans, self._computes)
        self._alone = list(map(self._alone_ns, operations, self._computes, self._met))
        self._python = list(map(_python, operations, self._alone))
        worked_ns = sum(
            operation.run_ns * computes
            for operation, computes in zip(operations, self._computes, strict=True)
            if not operation.inline
        )
        self._busy = min(1.0, worked_ns / max(1, trace.end_ns - trace.begin_ns))

    def of(self, conditions: Conditions) -> tuple[float, float]:
        """The shortest and the longest duration under these conditions."""
        least, most = _PYTHON
        low = self._err(self._meet(conditions, least), 1 / _NOISE)
        high = self._err(self._meet(conditions, most), _NOISE)
        ends = [self.recording.simulate(end).ended for end in (low, high)]
        return min(ends), max(ends)

    def run(self, conditions: Conditions) -> Simulation:
        """A run within the band."""
        return self.recording.simulate(self._meet(conditions, sum(_PYTHON) / 2))

    def _err(self, conditions: Conditions, times: float) -> Conditions:
        """The conditions with all that computes so many times as long. A function of which it is
        not known whether it computes may take less time alone, not more."""
        run_ns = [
            round(ns * (1 + (times - 1) * (computes if times > 1 or computes else 1.0)))
            if self._contends(operation)
            else ns
            for operation, ns, computes in zip(
                self.recording.trace.operations, conditions.run_ns, self._computes, strict=True
            )
        ]
        return replace(conditions, run_ns=run_ns, issuing=conditions.issuing * times)

    def _meet(self, conditions: Conditions, python: float) -> Conditions:
        """The conditions with the durations of operations that meet others; Python takes `python`
        times longer then."""
        if self._lanes(conditions) == 1:
            if not self._several:
                return conditions
            recorded = self.recording.recorded.run_ns
            run_ns = [
                round(ns * new / old) if old else 0
                for ns, new, old in zip(self._alone, conditions.run_ns, recorded, strict=True)
            ]
            issuing = conditions.issuing * (1 - _HELD_ISSUING * self._busy)
            return replace(conditions, run_ns=run_ns, issuing=issuing, usual=True)
        before = self._slower(self._met, python) if self._several else [1.0] * len(self._met)
        now = conditions
        for _ in range(_PASSES):
            spans = [(job.began, job.ended) for job in self.recording.simulate(now).jobs]
            after = self._slower(_overlaps(spans, self._computes), python)
            run_ns = [
                round(ns * new / old + self._fixed_ns(operation, computes))
                for operation, computes, ns, new, old in zip(
                    self.recording.trace.operations, self._computes, conditions.run_ns, after,
                    before, strict=True,
                )
            ]  # fmt: skip
            now = replace(now, run_ns=run_ns)
        return now

    def _slower(self, met: Sequence[float], python: float) -> list[float]:
        """How many times longer each operation takes with so many others beside it."""
        return [
            1
            + computes
            * (
                min(1.0, beside) * (_BESIDE + python * share)
                + max(0.0, (beside + 1) / self._cores - 1)
            )
            for beside, computes, share in zip(met, self._computes, self._python, strict=True)
        ]

    def _fixed_ns(self, operation: Operation, computes: float) -> float:
        """What one of several workers adds, unless the recording has it."""
        return 0.0 if self._several or operation.inline else _SEVERAL_NS * computes

    def _alone_ns(self, operation: Operation, computes: float, beside: float) -> float:
        """The duration on one worker."""
        run_ns = float(operation.run_ns)
        if not self._several or not computes:
            return run_ns
        cpu = self.recording.trace.cpu.times.get(operation.number)
        if cpu is None:
            return run_ns / (1 + min(1.0, beside) * _python(operation, run_ns) * _HELD_PYTHON)
        worked_ns = min(run_ns, cpu.ns + self._sleeps.get(operation.number, 0))
        off = max(0.0, run_ns - worked_ns - (cpu.delayed_ns or 0)) / run_ns
        return worked_ns if cpu.pushed else worked_ns / (1 + off)

    def _computes_for(self, operation: Operation) -> float:
        if not self._contends(operation):
            return 0.0
        if operation.footprint is None and operation.number not in self.recording.trace.cpu.times:
            return 0.0  # a function of the program without a known CPU time; it may as well sleep
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
