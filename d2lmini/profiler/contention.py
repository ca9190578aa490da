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
whether a pushed function holds it, how the caches are shared. Its ends are as many times longer or
shorter as predictions of some ninety programs missed. Every band has at least the error of the
replay of the recording itself.

>>> from d2lmini.profiler.contention import _overlaps
>>> _overlaps([(0, 10), (5, 15)], [1.0, 1.0])      # each meets the other for half of its time
[0.5, 0.5]

The constants were fitted to the programs of `tests/benchmarks/band_programs.py` on a virtual
machine of two cores. docs/ask-a-trace.md says how often the bands were right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from d2lmini.device import devices
from d2lmini.engine.threaded import count_cores
from d2lmini.profiler.evidence import Intervals

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.engine.simulation import Simulation
    from d2lmini.profiler.replay import Conditions, Recording
    from d2lmini.profiler.tracing import Trace

#: With several workers each operation takes so much longer, and so much more next to another.
_SEVERAL_NS, _BESIDE_NS = 20e3, 110e3
#: Without a known CPU time, meeting others made an operation longer by this share at most.
_MOST_HELD = 0.5
#: How many times as long as predicted the runs took, from the shortest to the longest of nine in
#: ten programs, in the recording of several in which this was widest.
_MISSED = 0.74, 1.6
#: The share of a change of rates (links, devices) that other limits took back.
_TAKEN_BACK = 0.25
#: The least error of a prediction.
_ERROR = 0.05


@dataclass(slots=True)
class _Known:
    """What is known of an operation: whether the program pushed it, as a function; the share of its
    duration in which it computes; its duration alone; the mean number of others that it met."""

    pushed: bool
    computes: float
    alone_ns: float
    met: float = 0.0


class Bands:
    """Predicts bands for a recording."""

    def __init__(self, recording: Recording):
        self.recording = recording
        trace = recording.trace
        self._operations = trace.operations
        on_gpu = {str(gpu.ctx) for gpu in devices.gpus() if gpu.kind == "cuda"}
        self._contends = [not x.is_copy and x.place not in on_gpu and x.run_ns > 0
                          for x in trace.operations]  # fmt: skip
        self._cores = trace.cores or count_cores()
        self._several = self._lanes(recording.recorded) > 1
        self._known = self._find_known(trace)
        self._computes = [known.computes for known in self._known]
        self._length = max(1, trace.end_ns - trace.begin_ns)
        self._error = max(_ERROR, abs(recording.again_ns / self._length - 1))

    def foresee(self, conditions: Conditions) -> tuple[Simulation, float, float]:
        """The predicted run, and the band within which it lies: its low and its high end."""
        before, plain = self.recording.recorded, self.recording.simulate(conditions)
        run = self._meet(conditions, plain)
        lanes = before.workers, before.places
        if conditions.dropped or (conditions.workers, conditions.places) != lanes:
            low, high = _MISSED
            least = self._meet(conditions, plain, python=0.0).ended
            ends = [least * low, run.ended * high]
        else:
            ends = [plain.ended]
        if conditions.run_ns != before.run_ns:
            ends += [end + _TAKEN_BACK * (self._length - end) for end in ends]
        low_ns, high_ns = min(ends) * (1 - self._error), max(ends) * (1 + self._error)
        return run, min(low_ns, run.ended), max(high_ns, run.ended)

    def _meet(self, conditions: Conditions, run: Simulation, python: float = 1.0) -> Simulation:
        """The run with the durations of operations that meet others than they met; `run` has those
        of the conditions. Of a pushed function the share `python` runs beside no other Python."""
        simulate = self.recording.simulate
        if self._lanes(conditions) == 1:
            if not self._several:
                return run
            alone = [known.alone_ns for known in self._known]
            return simulate(self._with(replace(conditions, usual=True), alone))
        for _ in range(2):  # to find which operations meet
            met = _overlaps([(job.began, job.ended) for job in run.jobs], self._computes)
            took = [self._next_to(i, beside, python) for i, beside in enumerate(met)]
            run = simulate(self._with(conditions, took))
        return run

    def _with(self, conditions: Conditions, took_ns: Sequence[float]) -> Conditions:
        """The conditions with these durations; those that they have changed change in proportion,
        and operations that the program runs itself stay."""
        run_ns = [
            ns if operation.inline or not operation.run_ns else round(took * ns / operation.run_ns)
            for operation, ns, took in zip(self._operations, conditions.run_ns, took_ns)
        ]
        return replace(conditions, run_ns=run_ns)

    def _next_to(self, i: int, beside: float, python: float) -> float:
        """The duration of an operation with so many others beside it."""
        known, others = self._known[i], min(1.0, beside)
        if not known.computes or (self._several and abs(beside - known.met) < 0.05):
            return self._operations[i].run_ns
        more = python * others * known.alone_ns if known.pushed else _held_ns(beside)
        crowd = max(0.0, (beside + 1) / self._cores - 1)
        return known.alone_ns + known.computes * (more + crowd * known.alone_ns)

    def _find_known(self, trace: Trace) -> list[_Known]:
        operations, cpu = trace.operations, trace.cpu.times
        slept, found = _sleeps_of_lines(trace), []
        shortest: dict[tuple[str, float, float], float] = {}
        for x, contends in zip(operations, self._contends):
            spent, asleep = cpu.get(x.number), slept.get((x.name, x.site), 0.0)
            function = not (x.flops or x.nbytes) if spent is None else spent.pushed
            # Its CPU time and its sleep; its duration, where the CPU time is unknown.
            ns = float(x.run_ns) if spent is None else min(x.run_ns, spent.ns + asleep)
            # A function without a known CPU time may as well sleep.
            awake = contends and not (function and spent is None)
            found.append(_Known(function, max(0.0, 1 - asleep / x.run_ns) if awake else 0.0, ns))
            kind = x.name, x.nbytes, x.flops
            shortest[kind] = min(shortest.get(kind, ns), ns)
        spans = [(x.began_ns, x.ended_ns) for x in operations]
        met = _overlaps(spans, [known.computes for known in found])
        for x, known, beside in zip(operations, found, met):
            known.met = beside
            least, ns = shortest[x.name, x.nbytes, x.flops], known.alone_ns
            if not self._several or not known.computes:
                known.alone_ns = x.run_ns
            elif not (known.pushed or x.number in trace.shared):
                if x.number in cpu:
                    known.alone_ns = least / (1 + (x.run_ns - ns) / x.run_ns)
                else:
                    known.alone_ns = max(_MOST_HELD * ns, min(least, ns - _held_ns(known.met)))
        return found

    def _lanes(self, conditions: Conditions) -> int:
        """The number of workers that compute on the machine's cores."""
        places = {place for place, on in zip(conditions.places, self._contends) if on}
        return sum(conditions.workers[place] for place in places)


def _sleeps_of_lines(trace: Trace) -> dict[tuple[str, Site | None], float]:
    """How long the functions slept that a line pushed, the median: which part of its time off the
    CPU a single one waited for the interpreter lock is not known."""
    off = trace.off_cpu()
    found: dict[tuple[str, Site | None], list[int]] = defaultdict(list)
    for x in trace.operations:
        if x.number in off and trace.cpu.times[x.number].pushed:
            found[x.name, x.site].append(off[x.number].blocked)
    return {line: median(each) for line, each in found.items()}


def _held_ns(beside: float) -> float:
    """What an operation of the library takes longer with so many others beside it."""
    return _SEVERAL_NS + _BESIDE_NS * min(1.0, beside)


def _overlaps(spans: Sequence[tuple[int, int]], weights: Sequence[float]) -> list[float]:
    """For each span the mean weight of the others that overlap it."""
    intervals = Intervals((*span, weight) for span, weight in zip(spans, weights))
    return [
        max(0.0, intervals.within(begin, end) / (end - begin) - weight) if end > begin else 0.0
        for (begin, end), weight in zip(spans, weights)
    ]
