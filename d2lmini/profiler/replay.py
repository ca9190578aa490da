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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any

from d2lmini.base import MXNetError
from d2lmini.context import Context, gpu
from d2lmini.engine.simulation import ProgramStep, SharedWork, SimulatedTask, Simulation
from d2lmini.profiler.contention import Bands
from d2lmini.profiler.event_graph import PAUSE, recorded_threads
from d2lmini.profiler.records import BEGAN, ENDS, Operation, Wait

if TYPE_CHECKING:
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
        self._names: dict[str, set[str]] = defaultdict(set)
        for operation in operations:
            if operation.worker and not operation.inline:
                self._names[operation.place].add(operation.worker)
        self._steps: dict[Any, dict[str, list[ProgramStep]]] = {}

    @cached_property
    def again_ns(self) -> float:
        """The duration of the recorded run in the replay: how good the replay is."""
        return self.simulate(self.recorded).ended

    @cached_property
    def _bands(self) -> Bands:
        return Bands(self)

    def foresee(self, conditions: Conditions) -> tuple[Simulation, Prediction]:
        """A run under these conditions, with the usual contention, and its predicted duration. On a
        virtual clock operations share nothing, and the prediction is exact."""
        if conditions == self.recorded or self.trace.engine_kind != "threaded":
            run = self.simulate(conditions)
            return run, Prediction(run.ended, run.ended)
        run, low_ns, high_ns = self._bands.foresee(conditions)
        return run, Prediction(low_ns, high_ns)

    def simulate(self, conditions: Conditions) -> Simulation:
        """The run under these conditions."""
        key = conditions.dropped, conditions.own_ns
        if key not in self._steps:
            self._steps[key] = _steps_of(self.trace, *key)
        workers = {}
        for place, n in conditions.workers.items():  # those of the recording first
            names = sorted(self._names[place], key=lambda name: (len(name), name))
            more = range(len(names) + 1, n + 1)
            workers[place] = [*names[:n], *(f"{place} worker {i}" for i in more)]
        run = Simulation(self._tasks(conditions), self._steps[key], workers, self._bound)
        run.run()
        return run

    def _tasks(self, conditions: Conditions) -> list[SimulatedTask]:
        """The operations as tasks of the simulation."""
        tasks: list[SimulatedTask] = []
        trace = self.trace
        for old, place, run_ns, taken, weight in zip(
            trace.operations, conditions.places, conditions.run_ns, self._hand_over_ns,
            self._weights,
        ):  # fmt: skip
            if conditions.usual and not old.inline:
                taken = min(taken, self._usual_ns)
            taken = round(conditions.own_ns(old.worker, old.began_ns - taken, old.began_ns))
            share = None
            if old.number in trace.shared:
                pieces, ns, work_ns, late = trace.shared[old.number]
                times = run_ns / old.run_ns if old.run_ns else 1.0
                alone_ns = max(0, old.run_ns - ns) * times
                share = SharedWork(alone_ns, work_ns / pieces * times, pieces, late)
            task = SimulatedTask(
                old.number, place, run_ns, taken, old.priority, old.inline, share, weight
            )
            if old.by:
                tasks[old.by - 1].children.append((old.pushed_ns - trace[old.by].began_ns, task))
            tasks.append(task)
        if conditions.order:
            for task, (needs, room) in zip(tasks, trace.order):
                task.follows([tasks[number - 1] for number in needs + room])
        return tasks


def replay_of(
    trace: Trace,
    workers: int | Mapping[str, int] | None = None,
    devices: int | None = None,
    link_gb_s: float | None = None,
    without_wait_at: Any = None,
) -> Trace:
    """What if? Predict the trace of the program under changed conditions; its `recorded` is this
    trace, its `prediction` the duration: for other workers or devices a band, of which the trace
    shows one run. Without arguments the recorded run is predicted.

    workers          threads of the CPU, or of each lane: {"cpu": 2, "gpu(0)": 1}
    devices          number of GPUs, at most as many as recorded; the i-th becomes gpu(i % devices)
    link_gb_s        GB/s of each link in each direction
    without_wait_at  leave out the waits at "train.py:12", or line 12; a wait, a row of the ledger,
                     or the operation that a wait is for; or several of these

    MXNetError where an argument names what the trace does not have. `d2lmini.profiler.replay`
    describes the method and its limits."""
    for name, value in ("workers", workers), ("devices", devices), ("link_gb_s", link_gb_s):
        if value is not None:
            trace.refuse(f"replay({name}=)")
    lanes, moved = _threads(trace, workers), _moves(trace, devices)
    new = [copy(operation) for operation in trace.operations]
    for old, operation in zip(trace.operations, new):
        operation.ctx = moved.get(operation.ctx, operation.ctx)
        lanes.setdefault(operation.place, lanes[old.place])
    recording = Recording(trace)
    conditions = replace(
        recording.recorded,
        workers=lanes,
        places=[operation.place for operation in new],
        run_ns=_durations(trace, new, link_gb_s),
        dropped=_find_dropped(trace, without_wait_at),
    )
    run, prediction = recording.foresee(conditions)

    predicted = type(trace)()
    predicted.recorded = trace
    predicted.prediction = prediction
    predicted.operations = new
    predicted.workers = lanes
    predicted.begin_ns = trace.begin_ns
    predicted.left_ns = trace.begin_ns + run.left
    predicted.end_ns = trace.begin_ns + run.ended
    _enter(predicted, run)
    return predicted


def _enter(predicted: Trace, run: Simulation) -> None:
    """Write the times and workers into the operations, and record the waits."""
    trace, begin = predicted.recorded, predicted.begin_ns
    assert trace is not None
    for operation, job in zip(predicted.operations, run.jobs, strict=True):
        operation.pushed_ns = begin + job.pushed
        operation.ready_ns = begin + job.ready
        operation.ended_ns = begin + job.ended
        if operation.began_ns:
            operation.began_ns = begin + job.began
            operation.worker = job.worker or "caller"
        if job.share is not None:
            cut_ns = max(0, operation.run_ns - round(job.share.alone))
            predicted.shared[operation.number] = trace.shared[operation.number]._replace(ns=cut_ns)
    for wait, thread, pushed, began, ended in run.waits:
        wait = wait or Wait(PAUSE, None, 0, pushed, None, thread, 0, 0)
        times = {"begin_ns": begin + began, "end_ns": begin + ended}
        predicted.waits.append(wait._replace(pushed=pushed, **times))
    predicted.waits.sort(key=ENDS)


# -- arguments -------------------------------------------------------------------------------------


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MXNetError(f"replay: {otherwise}")


def _threads(trace: Trace, workers: int | Mapping[str, int] | None) -> dict[str, int]:
    """The number of threads for each lane, as recorded or as requested."""
    _require(
        workers is None or trace.engine_kind != "naive",
        "workers: the trace is of the naive engine, which has none: it runs every operation where "
        "it is called. Record the program on the threaded engine",
    )
    threads = recorded_threads(trace)
    asked = {"cpu": workers} if isinstance(workers, int) else dict(workers or {})
    known = ", ".join(map(repr, threads))
    for place, n in asked.items():
        _require(place in threads, f"workers of {place!r}: there is no such lane, but {known}")
        good = isinstance(n, int) and n > 0
        _require(good, f"workers of {place!r} are 1 or more, got {n!r}")
    return threads | asked


def _moves(trace: Trace, devices: int | None) -> dict[Context, Context]:
    """The mapping of recorded contexts to devices, round robin."""
    if devices is None:
        return {}
    good = isinstance(devices, int) and devices > 0
    _require(good, f"devices are 1 or more, got {devices!r}")
    numbers = sorted({o.ctx.device_id for o in trace.operations if not o.ctx.is_cpu})
    _require(
        bool(numbers),
        f"devices={devices}, but no operation ran on a GPU; for the CPU ask for workers",
    )
    used = ", ".join(f"gpu({number})" for number in numbers)
    _require(
        devices <= len(numbers),
        f"devices={devices}, but the trace has {len(numbers)} ({used}), and does not say how the "
        "program would split its work for more. Record the program on as many: "
        f"`with d2lmini.virtual_gpus({devices}):` needs no GPU",
    )
    return {gpu(number): gpu(k % devices) for k, number in enumerate(numbers)}


def _find_dropped(trace: Trace, at: Any) -> frozenset[int]:
    """The waits to leave out, as positions in trace.waits."""
    if at is None:
        return frozenset()
    several = isinstance(at, Iterable) and not isinstance(at, (str, Wait))
    found: set[int] = set()
    where = {wait.site: wait.where for wait in trace.waits}
    known = "\n".join(f"    {text}" for text in sorted({*where.values()})) or "    nowhere"
    for one in at if several else [at]:
        here = {i for i, wait in enumerate(trace.waits) if _is_at(wait, where[wait.site], one)}
        _require(bool(here), f"no wait at {one!r}; the program waited at\n{known}")
        found |= here
    return frozenset(found)


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


def _durations(trace: Trace, new: list[Operation], link_gb_s: float | None) -> list[int]:
    """The duration of each operation: copies may become faster; between two devices that are mapped
    to the same device they are superfluous."""
    copies: dict[str, list[Operation]] = defaultdict(list)
    for old in trace.operations:
        if old.is_copy:
            copies[old.place].append(old)
    if link_gb_s is not None:
        _require(link_gb_s > 0, f"link_gb_s is a rate in GB/s above 0, got {link_gb_s!r}")
        _require(
            bool(copies),
            f"link_gb_s={link_gb_s}, but nothing was copied over a link; record a program that "
            "copies between devices",
        )
    found = [operation.run_ns for operation in trace.operations]
    for own in copies.values():
        ns_per_byte = fit_link(own)
        for old in own:
            i, here = old.number - 1, new[old.number - 1].ctx
            if here != old.ctx and any(
                new[k - 1].ctx == here for k in trace.true_dependencies(old.number)
            ):
                found[i] = 0
            elif link_gb_s is not None:
                overhead_ns = max(old.run_ns - old.nbytes * ns_per_byte, 0.0)
                found[i] = round(overhead_ns + old.nbytes / link_gb_s)
    return found


def fit_link(copies: Sequence[Operation]) -> float:
    """The ns that the link of these copies takes for a byte: the median slope between smaller and
    larger copies, which is robust against delayed ones (Theil-Sen). The rest of a copy's time is
    its overhead, of which copies of nearly one size tell nothing."""
    ran = sorted((copy.nbytes, copy.run_ns) for copy in copies if copy.run_ns and copy.nbytes)
    if not ran:
        return 0.0
    third = -(-len(ran) // 3)
    step = -(-third // _SAMPLES)
    small, large = ran[:third:step], ran[-third::step]
    if large[0][0] > 1.2 * small[-1][0]:
        slope = median((high - low) / (more - less) for less, low in small for more, high in large)
        if slope > 0 and median(run - slope * nbytes for nbytes, run in ran) >= 0:
            return slope
    return median(run / nbytes for nbytes, run in ran)


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

    def walk(
        name: str, events: Sequence[ThreadEvent], own: float, base_ns: int
    ) -> tuple[list[ProgramStep], list[tuple[int, float]]]:
        """The steps of a thread; and after each event the number of steps, and the own time since
        the last. The time before the first event counts from `base_ns`."""
        steps: list[ProgramStep] = []
        reached: list[tuple[int, float]] = []
        for i, event in enumerate(events):
            gap_ns = event.gap_ns if i else max(0, event.begin_ns - base_ns)
            own += own_ns(name, event.begin_ns - gap_ns, event.begin_ns)
            count = len(steps)
            if event.operation is not None:
                steps.append(ProgramStep(round(own), event.operation.number))
            elif event.at not in dropped and trace.waits[event.at].kind != PAUSE:
                awaited, on_ns = graph.awaited[event.at]
                on_ns = round(own_ns(name, event.end_ns - on_ns, event.end_ns))
                steps.append(ProgramStep(round(own), 0, awaited, on_ns, event.wait))
            if len(steps) > count:
                own = 0.0
            reached.append((len(steps), own))
        return steps, reached

    steps, reached = walk(main, mine, 0.0, trace.begin_ns)
    found = {main: steps}
    starts = {name: bisect_right(over, own[0].begin_ns) - 1 for name, own in threads.items()}
    for name, i in sorted(starts.items(), key=itemgetter(1)):
        (done, own), base_ns = (reached[i], over[i]) if i >= 0 else ((0, 0.0), trace.begin_ns)
        found[name], _ = walk(name, threads[name], own, base_ns)
        if done:
            step = steps[done - 1]
            steps[done - 1] = step._replace(starts=(*step.starts, name))
    last_ns = max([trace.begin_ns, *over])
    own = reached[-1][1] if reached else 0.0
    own += own_ns(main, last_ns, max(last_ns, trace.left_ns))
    ended = (o.ended_ns for o in trace.operations if o.ended_ns <= trace.end_ns)
    done_ns = min(max(trace.left_ns, *ended, 0), trace.end_ns)
    steps.append(ProgramStep(round(own), after=round(own_ns(main, done_ns, trace.end_ns))))
    return found


def _hand_overs(operations: Iterable[Operation]) -> dict[int, int]:
    """For every operation that a worker ran: the nanoseconds of its hand-over."""
    free: dict[str, int] = {}  # the time since which each worker is free
    taken: dict[int, int] = {}
    ran = (operation for operation in operations if operation.began_ns and not operation.inline)
    for operation in sorted(ran, key=BEGAN):
        could = max(operation.ready_ns, free.get(operation.worker, 0))
        taken[operation.number] = max(0, operation.began_ns - could)
        free[operation.worker] = operation.ended_ns
    return taken


def _bound_of(trace: Trace) -> tuple[list[float], float | None]:
    """The weight of each operation, its bytes, to which the bound applies; and the largest pending
    weight when a paused push continued. None if no push paused."""
    weights = [operation.nbytes or 1.0 for operation in trace.operations]
    bounds = []
    pushed = [operation.pushed_ns for operation in trace.operations]
    came = [0.0, *accumulate(weights)]
    over = sorted(zip((o.ended_ns for o in trace.operations), weights, strict=True))
    went = [0.0, *accumulate(weight for _, weight in over)]
    for pause in trace.waits:
        if pause.kind == PAUSE:  # the paused operation is pushed right after, and counts
            k = min(bisect_right(pushed, pause.end_ns) + 1, len(weights))
            bounds.append(came[k] - went[bisect_right(over, pause.end_ns, key=itemgetter(0))])
    return weights, max(bounds, default=None)
