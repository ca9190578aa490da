"""What if? Re-run a recorded program on a virtual clock with changed conditions.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.replay(workers=4), trace.replay(without_wait_at="train.py:12"))

The program's threads issue the same operations in the same order, with the host's own time between
them as recorded. Waits get new durations: a wait ends when the awaited operation is done.
Operations have their recorded durations and hand-overs and run by the engine's rules
(`engine.simulation`), after their dependencies. Conditions:

    workers, devices   the lanes; copies between contexts mapped to one device take no time
    link_gb_s          the part of a copy's time that is proportional to its bytes
    large operations   idle workers take pieces of operations that were split in the trace
    inline operations  stay on the calling thread unless their inputs are pending; then a worker's
    back-pressure      if a push had to pause: the bound is the largest pending sum at a resumption

Within `engine.stepped()` the prediction is exact: more workers there behave as predicted.

Elsewhere operations that run side by side share memory, caches, cores and the interpreter. So a
prediction is a band, from low to high (`contention`).

Not in the trace, so not predicted: a different split of batches for other devices; waits outside
the engine, as for the end of a thread, which keep their recorded length; Python that runs on
another engine than the threaded one, so that `workers` of a trace of the naive engine are refused.

`Recording` is the part that all replays of a trace share: `account` replays it under many
`Conditions`, and uses only the length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from operator import itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import MXNetError
from d2lmini.context import Context, gpu
from d2lmini.engine.simulation import ProgramStep, SharedWork, SimulatedTask, Simulation
from d2lmini.profiler.event_graph import PAUSE, recorded_threads
from d2lmini.profiler.records import Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.contention import Bands
    from d2lmini.profiler.event_graph import ThreadEvent
    from d2lmini.profiler.tracing import Trace


#: Number of small copies that are compared with as many large copies.
_SAMPLES = 60
#: How much of a thread's own time from begin to end it takes: name, begin, end -> ns.
OwnTime = Callable[[str, int, int], float]


def as_recorded(thread: str, begin_ns: int, end_ns: int) -> float:
    """All of it."""
    return end_ns - begin_ns


@dataclass(frozen=True)
class Prediction:
    """A predicted duration: between `low_ns` and `high_ns`, which are equal if one number is all
    that the prediction has. On the virtual clock this number is exact."""

    low_ns: float
    high_ns: float

    @property
    def ns(self) -> float:
        """The middle."""
        return (self.low_ns + self.high_ns) / 2

    def less_than(self, ns: float) -> Prediction:
        """How much shorter than `ns` it is, at least 0."""
        return Prediction(max(0.0, ns - self.high_ns), max(0.0, ns - self.low_ns))

    def __str__(self) -> str:
        low, high = f"{self.low_ns / 1e6:.2f}", f"{self.high_ns / 1e6:.2f}"
        return f"{low} ms" if low == high else f"{low} to {high} ms"


@dataclass(frozen=True)
class Conditions:
    """What a replay may change.

    workers     number of workers, by place
    places, run_ns    of each operation
    dropped     positions in trace.waits of waits to leave out
    own_ns      what is left of the own time of threads, of hand-overs to workers too
    order       False: no operation comes after another
    usual       True: no hand-over takes longer than the median of those recorded
    """

    workers: Mapping[str, int]
    places: Sequence[str]
    run_ns: Sequence[float]
    dropped: Collection[int] = frozenset()
    own_ns: OwnTime = as_recorded
    order: bool = True
    usual: bool = False


class Recording:
    """What all replays of a trace share. `recorded` are the conditions of the recording."""

    def __init__(self, trace: Trace):
        self.trace = trace
        operations = trace.operations
        self.recorded = Conditions(
            recorded_threads(trace),
            [operation.place for operation in operations],
            [operation.run_ns for operation in operations],
        )
        taken = _hand_overs(operations)
        self._usual_ns = round(median(taken.values())) if taken else 0
        self._hand_over_ns = [
            max(0, o.began_ns - o.pushed_ns) if o.inline else taken.get(o.number, self._usual_ns)
            for o in operations
        ]
        self._weights, self._bound = _bound_of(trace)
        self._names: dict[str, dict[str, None]] = defaultdict(dict)
        for operation, place in zip(operations, self.recorded.places):
            if operation.worker and not operation.inline:
                self._names[place][operation.worker] = None
        self._steps: dict[Any, dict[str, list[ProgramStep]]] = {}

    @cached_property
    def _bands(self) -> Bands:
        from d2lmini.profiler.contention import Bands

        return Bands(self)

    def foresee(self, conditions: Conditions) -> tuple[Simulation, Prediction]:
        """A run under these conditions, with the usual contention, and its predicted duration. On a
        virtual clock operations share nothing, and the prediction is exact."""
        if conditions == self.recorded or self.trace.engine_kind != "threaded":
            run = self.simulate(conditions)
            return run, Prediction(run.ended, run.ended)
        low, high = self._bands.of(conditions)
        run = self._bands.run(conditions)
        return run, Prediction(min(low, run.ended), max(high, run.ended))

    def simulate(self, conditions: Conditions) -> Simulation:
        """The run under these conditions."""
        key = conditions.dropped, conditions.own_ns
        if key not in self._steps:
            self._steps[key] = _steps_of(self.trace, *key)
        workers = {place: self._names_of(place, n) for place, n in conditions.workers.items()}
        run = Simulation(self._tasks(conditions), self._steps[key], workers, self._bound)
        run.run()
        return run

    def _names_of(self, place: str, n: int) -> list[str]:
        """The names of `n` workers, those of the recording first."""
        known = sorted(self._names.get(place, ()), key=lambda name: (len(name), name))
        return known[:n] + [f"{place} worker {i}" for i in range(len(known) + 1, n + 1)]

    def _tasks(self, conditions: Conditions) -> list[SimulatedTask]:
        """The operations as tasks of the simulation."""
        tasks: list[SimulatedTask] = []
        trace = self.trace
        for i, old in enumerate(trace.operations):
            taken = self._hand_over_ns[i]
            if conditions.usual and not old.inline:
                taken = min(taken, self._usual_ns)
            taken = round(conditions.own_ns(old.worker, old.began_ns - taken, old.began_ns))
            run_ns = conditions.run_ns[i]
            task = SimulatedTask(
                old.number, conditions.places[i], run_ns, taken, old.priority, old.inline
            )
            task.weight = self._weights[i]
            if old.number in trace.shared:
                pieces, ns, work_ns, late = trace.shared[old.number]
                times = run_ns / old.run_ns if old.run_ns else 1.0
                alone_ns = max(0, old.run_ns - ns) * times
                task.share = SharedWork(alone_ns, work_ns / pieces * times, pieces, late)
            if old.by:
                tasks[old.by - 1].children.append((old.pushed_ns - trace[old.by].began_ns, task))
            tasks.append(task)
        if conditions.order:
            for task, (needs, room) in zip(tasks, trace.order):
                task.follows([tasks[number - 1] for number in needs + room])
        return tasks


def replay(
    trace: Trace,
    workers: int | Mapping[str, int] | None = None,
    devices: int | None = None,
    link_gb_s: float | None = None,
    without_wait_at: Any = None,
) -> Trace:
    """The predicted trace; see `Trace.replay` for the arguments."""
    asked = {"workers": workers, "devices": devices, "link_gb_s": link_gb_s}
    for name, value in asked.items():
        if value is not None:
            trace.refuse(f"replay({name}=)")
    threads = _threads(trace, workers)
    place_of = _places(trace, devices)
    dropped = _find_dropped(trace, without_wait_at)
    new = [copy(operation) for operation in trace.operations]
    for operation in new:
        operation.ctx = place_of.get(operation.ctx, operation.ctx)
    lanes = dict(threads)
    for old, operation in zip(trace.operations, new, strict=True):
        lanes.setdefault(operation.place, threads[old.place])
    recording = Recording(trace)
    conditions = replace(
        recording.recorded,
        workers=lanes,
        places=[operation.place for operation in new],
        run_ns=_durations(trace, new, link_gb_s),
        dropped=frozenset(dropped),
    )
    run, prediction = recording.foresee(conditions)

    predicted = type(trace)()
    predicted.recorded = trace
    predicted.prediction = prediction
    predicted.operations = new
    predicted.workers = lanes
    predicted.blas_threads = trace.blas_threads
    predicted.begin_ns = trace.begin_ns
    predicted.left_ns = trace.begin_ns + run.left
    predicted.end_ns = trace.begin_ns + run.ended
    _enter_times(predicted, run.jobs)
    _enter_waits(predicted, run)
    return predicted


# -- arguments -------------------------------------------------------------------------------------


def _threads(trace: Trace, workers: int | Mapping[str, int] | None) -> dict[str, int]:
    """The number of threads for each lane, as recorded or as requested."""
    if workers is not None and trace.engine_kind == "naive":
        raise MXNetError(
            "replay: workers: the trace is of the naive engine, which has none: it runs every "
            "operation where it is called. Record the program on the threaded engine"
        )
    threads = recorded_threads(trace)
    asked = {"cpu": workers} if isinstance(workers, int) else dict(workers or {})
    for place, n in asked.items():
        if place not in threads:
            known = ", ".join(map(repr, threads))
            raise MXNetError(f"replay: workers of {place!r}: there is no such lane, but {known}")
        if not isinstance(n, int) or n < 1:
            raise MXNetError(f"replay: workers of {place!r} are 1 or more, got {n!r}")
    return {**threads, **asked}


def _places(trace: Trace, devices: int | None) -> dict[Context, Context]:
    """The mapping of recorded contexts to devices, round robin."""
    if devices is None:
        return {}
    if not isinstance(devices, int) or devices < 1:
        raise MXNetError(f"replay: devices are 1 or more, got {devices!r}")
    numbers = sorted({e.ctx.device_id for e in trace.operations if not e.ctx.is_cpu})
    if not numbers:
        raise MXNetError(
            f"replay: devices={devices}, but no operation ran on a GPU; for the CPU ask for workers"
        )
    if devices > len(numbers):
        used = ", ".join(f"gpu({number})" for number in numbers)
        raise MXNetError(
            f"replay: devices={devices}, but the trace has {len(numbers)} ({used}), and does not "
            "say how the program would split its work for more. Record the program on as many: "
            f"`with d2lmini.virtual_gpus({devices}):` needs no GPU"
        )
    return {gpu(number): gpu(k % devices) for k, number in enumerate(numbers)}


def _find_dropped(trace: Trace, at: Any) -> set[int]:
    """The waits to leave out, as positions in trace.waits."""
    if at is None:
        return set()
    several = isinstance(at, Iterable) and not isinstance(at, (str, Wait))
    found: set[int] = set()
    where = {wait.site: wait.where for wait in trace.waits}
    for one in at if several else [at]:
        here = {i for i, wait in enumerate(trace.waits) if _is_at(wait, where[wait.site], one)}
        if not here:
            known = "\n".join(f"    {text}" for text in sorted({*where.values()})) or "    nowhere"
            raise MXNetError(f"replay: no wait at {one!r}; the program waited at\n{known}")
        found |= here
    return found


def _is_at(wait: Wait, where: str, at: Any) -> bool:
    """True if `at` is a line of the wait "src/train.py:12: l.asnumpy()": 12, "train.py:12", or all
    of it, as far as a ledger prints it; or the wait, a row that has it, or the operation that it is
    for."""
    place = where.partition(": ")[0]
    if isinstance(at, int):
        return place.endswith((f":{at}", f"line {at}"))
    if isinstance(at, str):
        line = at.partition(": ")[0]
        cut = at.endswith("…") and where.startswith(at[:-1])
        return cut or place == line or place.replace("\\", "/").endswith("/" + line)
    if isinstance(at, Operation):
        return wait.operation == at.number
    return wait == at or wait in getattr(at, "waits", ())


# -- inputs of the simulation ----------------------------------------------------------------------


def _steps_of(
    trace: Trace, dropped: Collection[int], own_ns: OwnTime
) -> dict[str, list[ProgramStep]]:
    """The steps of each thread of the program, by name, without the operations that others issued.

    A trace does not record which thread started another. A thread is assumed to start at its
    recorded delay after what the first thread had done last. The first thread ends with a wait for
    everything.
    """
    graph = trace.events
    threads = dict(graph.threads)
    main = min(threads, key=lambda name: threads[name][0].begin_ns, default="main")
    mine = threads.pop(main, [])
    over = [event.end_ns for event in mine]
    started: dict[int, list[str]] = defaultdict(list)  # after which event of the first thread
    for name, events in threads.items():
        started[bisect_right(over, events[0].begin_ns) - 1].append(name)

    def walk(
        name: str, events: Sequence[ThreadEvent], own: float, base_ns: int
    ) -> Iterator[tuple[ProgramStep | None, float]]:
        """For each event of a thread its step, if it is one, and the own time since the last step;
        the time before the first counts from `base_ns`."""
        for i, event in enumerate(events):
            gap_ns = event.gap_ns if i else max(0, event.begin_ns - base_ns)
            own += own_ns(name, event.begin_ns - gap_ns, event.begin_ns)
            step = None
            if event.operation is not None:
                step = ProgramStep(round(own), event.operation.number)
            elif event.at not in dropped and trace.waits[event.at].kind != PAUSE:
                awaited, on_ns = graph.awaited[event.at]
                on_ns = round(own_ns(name, event.end_ns - on_ns, event.end_ns))
                step = ProgramStep(round(own), 0, awaited, on_ns, event.wait)
            if step is not None:
                own = 0
            yield step, own

    found: dict[str, list[ProgramStep]] = {main: []}
    steps, own = found[main], 0.0
    walked = chain([(None, own)], walk(main, mine, own, trace.begin_ns))
    for i, (step, now) in enumerate(walked, start=-1):
        own = now
        if step is not None:
            steps.append(step)
        for name in started[i]:
            base_ns = over[i] if i >= 0 else trace.begin_ns
            found[name] = [step for step, _ in walk(name, threads[name], own, base_ns) if step]
            if steps:
                steps[-1] = steps[-1]._replace(starts=(*steps[-1].starts, name))
    last_ns = max([trace.begin_ns, *over])
    own += own_ns(main, last_ns, max(last_ns, trace.left_ns))
    ended = (o.ended_ns for o in trace.operations if o.ended_ns <= trace.end_ns)
    done_ns = min(max(trace.left_ns, *ended, 0), trace.end_ns)
    steps.append(ProgramStep(round(own), after=round(own_ns(main, done_ns, trace.end_ns))))
    return found


def _durations(trace: Trace, new: list[Operation], link_gb_s: float | None) -> list[int]:
    """The duration of each operation: copies may become faster, or superfluous."""
    if link_gb_s is not None and not link_gb_s > 0:
        raise MXNetError(f"replay: link_gb_s is a rate in GB/s above 0, got {link_gb_s!r}")
    on_link: dict[str, list[Operation]] = defaultdict(list)
    for old in trace.operations:
        if old.is_copy:
            on_link[old.place].append(old)
    if link_gb_s is not None and not on_link:
        raise MXNetError(
            f"replay: link_gb_s={link_gb_s}, but nothing was copied over a link; record a program "
            "that copies between devices"
        )
    links = {place: fit_link(copies) for place, copies in on_link.items()} if link_gb_s else {}
    found = []
    for old in trace.operations:
        ns = old.run_ns
        if old.is_copy and _stays(trace, new, old.number):
            ns = 0
        elif link_gb_s is not None and old.is_copy:
            ns = links[old.place].at(ns, old.nbytes, link_gb_s)
        found.append(ns)
    return found


class LinkRate(NamedTuple):
    """A copy of n bytes takes overhead_ns + n * ns_per_byte."""

    overhead_ns: float
    ns_per_byte: float

    def at(self, run_ns: int, nbytes: float, gb_s: float) -> int:
        """The duration, on a link of `gb_s`, of a copy that took `run_ns` here."""
        overhead = max(run_ns - nbytes * self.ns_per_byte, 0.0)
        return round(overhead + nbytes / gb_s)


def fit_link(copies: Sequence[Operation]) -> LinkRate:
    """Fit the link of these copies: the median slope between smaller and larger copies, which is
    robust against delayed ones (Theil-Sen), and the median remainder as overhead. Copies of nearly
    one size determine no overhead."""
    ran = sorted((copy.nbytes, copy.run_ns) for copy in copies if copy.run_ns and copy.nbytes)
    if not ran:
        return LinkRate(0.0, 0.0)
    third = -(-len(ran) // 3)
    step = -(-third // _SAMPLES)
    small, large = ran[:third:step], ran[-third::step]
    if large[0][0] > 1.2 * small[-1][0]:
        slope = median((high - low) / (more - less) for less, low in small for more, high in large)
        overhead = median(run - slope * nbytes for nbytes, run in ran)
        if slope > 0 and overhead >= 0:
            return LinkRate(overhead, slope)
    return LinkRate(0.0, median(run / nbytes for nbytes, run in ran))


def _stays(trace: Trace, new: list[Operation], number: int) -> bool:
    """True if the two devices of a copy are mapped to the same device."""
    here = new[number - 1].ctx
    return here != trace.operations[number - 1].ctx and any(
        new[before - 1].ctx == here for before in trace.needs(number)
    )


def _hand_overs(operations: Iterable[Operation]) -> dict[int, int]:
    """For every operation that a worker ran: the nanoseconds of its hand-over."""
    free: dict[str, int] = {}  # the time since which each worker is free
    taken: dict[int, int] = {}
    ran = (operation for operation in operations if operation.began_ns and not operation.inline)
    for operation in sorted(ran, key=lambda operation: operation.began_ns):
        could = max(operation.ready_ns, free.get(operation.worker, 0))
        taken[operation.number] = max(0, operation.began_ns - could)
        free[operation.worker] = operation.ended_ns
    return taken


def _bound_of(trace: Trace) -> tuple[list[float], float | None]:
    """The weight of each operation, its bytes, to which the bound applies; and the largest pending
    weight when a paused push continued. None if no push paused."""
    weights = [operation.nbytes or 1.0 for operation in trace.operations]
    bound = None
    pauses = [wait for wait in trace.waits if wait.kind == PAUSE]
    if pauses:
        pushed = [operation.pushed_ns for operation in trace.operations]
        came = [0.0, *accumulate(weights)]
        over = sorted(zip((o.ended_ns for o in trace.operations), weights, strict=True))
        went = [0.0, *accumulate(weight for _, weight in over)]
        # The paused operation is pushed right after, and counts.
        bound = max(
            came[min(bisect_right(pushed, pause.end_ns) + 1, len(weights))]
            - went[bisect_right(over, pause.end_ns, key=itemgetter(0))]
            for pause in pauses
        )
    return weights, bound


# -- results of the simulation ---------------------------------------------------------------------


def _enter_times(predicted: Trace, jobs: Sequence[SimulatedTask]) -> None:
    """Write times and workers into the operations."""
    trace, begin = predicted.recorded, predicted.begin_ns
    assert trace is not None
    for operation, job in zip(predicted.operations, jobs, strict=True):
        ran = operation.began_ns != 0
        operation.pushed_ns = begin + job.pushed
        operation.ready_ns = begin + job.ready
        operation.began_ns = begin + job.began if ran else 0
        operation.ended_ns = begin + job.ended
        if job.share is not None:
            cut_ns = max(0, operation.run_ns - round(job.share.alone))
            predicted.shared[operation.number] = trace.shared[operation.number]._replace(ns=cut_ns)
        if ran:
            operation.worker = job.worker or "caller"


def _enter_waits(predicted: Trace, run: Simulation) -> None:
    """Record the predicted waits."""
    begin = predicted.begin_ns
    for wait, thread, pushed, began, ended in run.waits:
        if wait is None:
            wait = Wait(PAUSE, None, 0, pushed, None, thread, 0, 0)
        predicted.waits.append(
            wait._replace(pushed=pushed, begin_ns=begin + began, end_ns=begin + ended)
        )
    predicted.waits.sort(key=lambda wait: wait.end_ns)
