"""How much slower do operations become next to one another? Predictions as bands.

A trace has the durations of operations next to those that they happened to meet. On other workers
or devices, or without a wait, they meet others, with which they share memory, caches, cores and
Python's global interpreter lock. The prediction is a run of the program with these durations:

    alone    an operation of one worker has the duration that was recorded. One of several workers
             has waited for the interpreter lock and woken a thread: alone it takes its CPU time, or
             the shortest of its kind, less by the share of its duration that it was off the CPU
    meeting  next to others it waits for the interpreter lock after each call of NumPy, and finds
             cold caches. A function that the program pushed is taken for Python, which runs beside
             no other Python. More operations than cores share the cores

What a trace does not tell makes the band: how often an operation asks for the interpreter lock,
whether a pushed function holds it, how the caches are shared. Its ends are runs in which the
operations that compute take as many times longer or shorter as predictions of 92 programs missed.
Every band has at least the error of the replay of the recording itself.

>>> from d2lmini.profiler.contention import _overlaps
>>> _overlaps([(0, 10), (5, 15)], [1.0, 1.0])      # each meets the other for half of its time
[0.5, 0.5]

The constants were fitted to the programs of `tests/benchmarks/band_programs.py` on a virtual
machine of two cores. docs/ask-a-trace.md says how often the bands were right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from d2lmini.device import devices
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.cpu_time import Intervals

if TYPE_CHECKING:
    from d2lmini.engine.simulation import Simulation
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.replay import Conditions, Recording

#: With several workers each operation takes so much longer, and so much more next to another.
_SEVERAL_NS, _BESIDE_NS = 20e3, 110e3
#: Without a known CPU time, meeting others made an operation longer by this share at most.
_MOST_HELD = 0.5
#: How many times as long as predicted the operations took, from the shortest to the longest of nine
#: in ten programs, on more workers, on fewer, and on as many.
_MORE, _FEWER, _AS_MANY = (0.7, 1.7), (0.7, 1.35), (0.8, 1.4)
#: The share of a change of rates (links, devices) that other limits took back.
_TAKEN_BACK = 0.25
#: The least error of a prediction.
_ERROR = 0.05

_PASSES = 2  # simulations that find which operations meet


class Bands:
    """Predicts bands for a recording: `of(conditions)` is the shortest and the longest duration."""

    def __init__(self, recording: Recording):
        trace = recording.trace
        operations = trace.operations
        self.recording = recording
        self._on_gpu = {str(gpu.ctx) for gpu in devices.gpus() if gpu.kind == "cuda"}
        self._cores = trace.cores or count_cores()
        self._lanes_before = self._lanes(recording.recorded)
        self._pushed = list(map(self._is_pushed, operations))
        self._asleep = self._sleeps()
        #: The share of its duration in which each operation computes.
        self._computes = list(map(self._computes_for, operations))
        spans = [(operation.began_ns, operation.ended_ns) for operation in operations]
        self._met = _overlaps(spans, self._computes)
        self._alone = self._alone_ns()
        self._length = trace.end_ns - trace.begin_ns
        again = recording.simulate(recording.recorded).ended
        self._error = max(_ERROR, abs(again / max(1, self._length) - 1))

    def of(self, conditions: Conditions) -> tuple[float, float]:
        """The shortest and the longest duration under these conditions."""
        lanes, before = self._lanes(conditions), self._lanes_before
        recorded = self.recording.recorded
        low = high = conditions
        if conditions.dropped or (conditions.workers, conditions.places) != (
            recorded.workers, recorded.places
        ):  # fmt: skip
            times = _MORE if lanes > before else _FEWER if lanes < before else _AS_MANY
            low = self._stretch(self._meet(conditions, python=0.0), times[0])
            high = self._stretch(self._meet(conditions), times[1])
        ends = [self.recording.simulate(end).ended for end in (low, high)]
        if conditions.run_ns != recorded.run_ns:
            ends += [end + _TAKEN_BACK * (self._length - end) for end in ends]
        return min(ends) * (1 - self._error), max(ends) * (1 + self._error)

    def run(self, conditions: Conditions) -> Simulation:
        """The predicted run, which lies within the band."""
        return self.recording.simulate(self._meet(conditions))

    def _stretch(self, conditions: Conditions, times: float) -> Conditions:
        """The conditions with all that computes so many times as long."""
        run_ns = [
            round(ns * (1 + (times - 1) * computes)) if not operation.inline else ns
            for operation, ns, computes in zip(
                self.recording.trace.operations, conditions.run_ns, self._computes, strict=True
            )
        ]
        beside = any(not operation.inline for operation in self.recording.trace.operations)
        issuing = conditions.issuing * (times if beside else 1.0)
        return replace(conditions, run_ns=run_ns, issuing=issuing)

    def _meet(self, conditions: Conditions, python: float = 1.0) -> Conditions:
        """The conditions with the durations of operations that meet others than they met; of a
        pushed function the share `python` runs beside no other Python."""
        several = self._lanes(conditions) > 1
        if not several and self._lanes_before == 1:
            return conditions
        now = conditions if several else replace(conditions, usual=True)
        for _ in range(_PASSES if several else 1):
            met = [0.0] * len(self._met)
            if several:
                spans = [(job.began, job.ended) for job in self.recording.simulate(now).jobs]
                met = _overlaps(spans, self._computes)
            run_ns = [
                self._meeting_ns(i, beside, python, several) * ns / recorded if recorded else 0
                for i, (beside, ns, recorded) in enumerate(
                    zip(met, conditions.run_ns, self.recording.recorded.run_ns, strict=True)
                )
            ]
            now = replace(now, run_ns=list(map(round, run_ns)))
        return now

    def _meeting_ns(self, i: int, beside: float, python: float, several: bool) -> float:
        """The duration of an operation with so many others beside it."""
        operation = self.recording.trace.operations[i]
        computes, alone = self._computes[i], self._alone[i]
        as_before = self._lanes_before > 1 and several and abs(beside - self._met[i]) < 0.05
        if operation.inline or not computes or as_before:
            return operation.run_ns
        if not several:
            return alone
        others = min(1.0, beside)
        more = python * others * alone if self._pushed[i] else self._held_ns(others)
        crowd = max(0.0, (beside + 1) / self._cores - 1)
        return alone + computes * (more + crowd * alone)

    def _held_ns(self, beside: float) -> float:
        """What an operation of the library takes longer with others beside it."""
        return _SEVERAL_NS + _BESIDE_NS * min(1.0, beside)

    def _alone_ns(self) -> list[float]:
        """The duration of each operation on one worker."""
        trace = self.recording.trace
        if self._lanes_before == 1:
            return [float(operation.run_ns) for operation in trace.operations]
        worked: list[float] = []
        shortest: dict[tuple[str, float, float], float] = defaultdict(lambda: float("inf"))
        for operation, asleep in zip(trace.operations, self._asleep, strict=True):
            cpu = trace.cpu.times.get(operation.number)
            ns = operation.run_ns if cpu is None else min(operation.run_ns, cpu.ns + asleep)
            worked.append(ns)
            kind = operation.name, operation.nbytes, operation.flops
            shortest[kind] = min(shortest[kind], ns)
        alone = []
        for i, operation in enumerate(trace.operations):
            ns = worked[i]
            if self._computes[i] and not self._pushed[i] and operation.number not in trace.shared:
                least = shortest[operation.name, operation.nbytes, operation.flops]
                if operation.number in trace.cpu.times:
                    off = (operation.run_ns - ns) / operation.run_ns
                    ns = least / (1 + off)
                else:
                    held_ns = self._held_ns(self._met[i])
                    ns = max(_MOST_HELD * ns, min(least, ns - held_ns))
            alone.append(ns)
        return alone

    def _sleeps(self) -> list[float]:
        """How long each operation slept: the median of the pushed functions of its line. (Which
        part of its time off the CPU one waited for the interpreter lock is not known.)"""
        off, of_line = self.recording.trace.off_cpu(), defaultdict(list)
        for operation, pushed in zip(self.recording.trace.operations, self._pushed, strict=True):
            if pushed and operation.number in off:
                of_line[operation.name, operation.site].append(off[operation.number].blocked)
        slept = {line: median(each) for line, each in of_line.items()}
        return [slept.get((o.name, o.site), 0.0) for o in self.recording.trace.operations]

    def _is_pushed(self, operation: Operation) -> bool:
        """True for a function that the program pushed."""
        cpu = self.recording.trace.cpu.times.get(operation.number)
        return not (operation.flops or operation.nbytes) if cpu is None else cpu.pushed

    def _computes_for(self, operation: Operation) -> float:
        i = operation.number - 1
        unknown = self._pushed[i] and operation.number not in self.recording.trace.cpu.times
        if unknown or not self._contends(operation):
            return 0.0  # a function of the program without a known CPU time may as well sleep
        return max(0.0, 1 - self._asleep[i] / operation.run_ns)

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
