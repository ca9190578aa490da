"""Traces: when operations were issued, what delayed them, where they ran, where the program waited.

    with d2lmini.profile() as trace:
        train(net)
    print(trace)

A trace listens to the engine (`instrument`). Under the engine's lock it only stores times and
names. Dependencies are derived afterwards from what each operation read and wrote, by the engine's
own rule: readers together, a writer alone.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((1, 2))
...     b = a * 2
...     a += 1
...     c = a + b
>>> for x in trace.operations:
...     print(x, trace.true_dependencies(x.number), trace.anti_dependencies(x.number))
1 _ones () ()
2 _mul_scalar (1,) ()
3 _plus_scalar (1,) (2,)
4 broadcast_add (2, 3) ()

The third operation needs the result of the first, and must wait until the second has read it.
"""

from __future__ import annotations

import time
import weakref
from collections import defaultdict
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any

from d2lmini import engine
from d2lmini.base import MXNetError, callsite, instrument
from d2lmini.base.scopes import Scope, Undo
from d2lmini.device import roles, storage
from d2lmini.engine import worker_pools
from d2lmini.engine.core import Task
from d2lmini.engine.order import Before, order_of
from d2lmini.engine.scheduler import find_lane_time, thread_state
from d2lmini.engine.threaded import count_cores
from d2lmini.ops.core import modes
from d2lmini.profiler.account import account_of
from d2lmini.profiler.draw import bundle, graph_of, timeline_of
from d2lmini.profiler.event_graph import CriticalPath, EventGraph, bounds_of, explain_pair
from d2lmini.profiler.evidence import LONG_US, CpuTimes, OffCpu
from d2lmini.profiler.memory import ChangeList
from d2lmini.profiler.records import (
    Copy,
    Notice,
    Operation,
    Recorder,
    SplitRecord,
    serial_of,
    this_thread,
)
from d2lmini.profiler.replay import replay_of
from d2lmini.profiler.summary import summary_of, timetable
from d2lmini.profiler.trace_file import read_trace, save_trace
from d2lmini.profiler.waits import WaitList

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.context import Context
    from d2lmini.profiler.replay import Prediction

#: The kind of the wait at the end of a trace, which does not belong to the program.
CLOSING = "end of profile"


class Trace(Recorder):
    """The events within the scope of a `profile()`.

    operations  in push order; the first has number 1
    waits       of the program's threads, in the order of their ends; waits() is a table by line
    memory      changes, in order; memory() is a report of owners and sizes
    notices     what the program's threads tell each other: one that joins another knows that the
                waits of the other are over, as if it had waited itself
    copies      the NumPy arrays that the program got
    begin_ns, end_ns    of the scope, including the final wait for everything
    thread      the thread that profiles
    workers     threads that serve each lane: {"cpu": 2, "gpu(0)": 1, "gpu(0) in": 1, ...}
    left_ns     the time at which the program reached the scope's end, where it only waits
    shared      the split parts of operations, by their numbers
    recorded    of a predicted trace: the trace it was predicted from; else None
    cores       of the recording process; 0: unknown
    engine_kind of the engine: "threaded", "naive" or "stepped"; "": no engine of this library
    recording   for each operation, was it issued within `autograd.record`?
    roles       serial numbers of Vars whose memory has a role in training (`device.roles`)
    older       bytes of such memory from before the trace, by context and role
    lacks       of a trace of another library: what its file does not show, each with the reason
    prediction  of a predicted trace: its duration, from low_ns to high_ns; else None
    cpu         the CPU times of operations on cores of this machine, and what the program's threads
                did while they did not compute; see off_cpu(). Empty on a virtual clock

    trace[number] is an operation. A trace keeps no array alive.
    """

    operations: list[Operation]
    begin_ns = end_ns = left_ns = cores = 0
    thread = engine_kind = ""
    recorded: Trace | None = None
    prediction: Prediction | None = None
    _closing = _timing = False

    def __init__(self) -> None:
        super().__init__()
        self.operations = self._pushed = []
        self._waits = WaitList(self)
        self.memory: ChangeList = ChangeList(self)
        self.notices: list[Notice] = []
        self.copies: list[Copy] = []
        self.workers: dict[str, int] = {}
        self.shared: dict[int, SplitRecord] = {}
        self.recording = bytearray()
        self.roles: dict[int, str] = {}
        self.older: dict[str, dict[str, int]] = {}
        self.lacks: dict[str, str] = {}
        self.cpu: CpuTimes = CpuTimes()
        self._gpu_begins: dict[Operation | None, Any] = {}
        self._on_gpus: dict[Any, list[Any]] = defaultdict(list)  # by device
        self._order: list[Before] = []
        self._events: tuple[Any, EventGraph | None] = None, None  # (what it was built of, graph)

    def begin(self) -> None:
        """Record the machine's configuration and start to listen."""
        self.workers = _count_workers()
        self.cores = count_cores()
        self.engine_kind = engine.current.kind
        for var, role in roles.known():
            self.roles[serial_of(var)] = role
            if var.data is not None:
                older = self.older.setdefault(str(var.pool.ctx), {})
                older[role] = older.get(role, 0) + var.nbytes
        self.thread = this_thread()
        self._timing = engine.current.clock is time.perf_counter_ns
        if self._timing:
            self.cpu.begin()
        self.begin_ns = engine.current.clock()
        if self._timing:
            self.cpu.note(self.begin_ns)
        instrument.add(self)

    def finish(self) -> None:
        """Stop listening."""
        instrument.remove(self)
        self.end_ns = engine.current.clock()
        self.left_ns = self.left_ns or self.end_ns  # Ctrl-C: without the final wait
        if self._timing:
            self.cpu.finish(self)
        for device, found in self._on_gpus.items():
            with suppress(Exception):  # of a failed GPU; its operations keep the host's times
                _set_gpu_times(device, found)
        self._on_gpus.clear()

    # -- events of the engine ----------------------------------------------------------------------

    @staticmethod
    def _clock() -> int:  # type: ignore[override]
        """The clock of the current engine: within `engine.stepped()` it is virtual."""
        return engine.current.clock()

    def push(self, task: Task) -> None:
        super().push(task)
        self.recording.append(modes.recording)
        if self._timing and thread_state.task is None:
            self.cpu.note(self.operations[-1].pushed_ns)

    def role(self, var: Any, role: str) -> None:
        self.roles[serial_of(var)] = role

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Any, begin_ns: int, end_ns: int,
    ) -> None:  # fmt: skip
        super().small(name, ctx, reads, writes, site, predicted_us, footprint, begin_ns, end_ns)
        self.recording.append(modes.recording)
        for var in writes:
            self.memory.add(end_ns, ctx, var.nbytes, 0, var.serial, None, var.pool.live)
        if self._timing:
            self.cpu.note(end_ns)

    def start(self, task: Task, worker: str) -> None:
        super().start(task, worker)
        operation = self._open.get(task)
        if self._timing and operation is not None and _computes_here(task):
            cpu, number = self.cpu, operation.number
            if worker != "caller":  # else the push was noted
                cpu.note(operation.began_ns, task.predicted_us >= LONG_US).works = True
            if not task.defers:
                cpu.pushed.add(number)
            if not task.ctx.is_cpu and (lane_time := find_lane_time(task)) is not None:
                cpu.device_ns[number] = round(1e3 * (lane_time(task) or 0.0))

    def end(self, task: Task, failure: Any) -> None:
        operation = self._open.get(task)
        super().end(task, failure)
        if self._timing and operation is not None and operation.began_ns and _computes_here(task):
            self.cpu.note(operation.ended_ns, task.predicted_us >= LONG_US)

    def issue(self, task: Task, lane: Any) -> None:
        """Called before the work of an operation is put on a lane's stream."""
        operation = self._open.get(task)
        if operation is not None:
            with suppress(Exception):  # of a failed GPU; the operation itself reports the error
                self._gpu_begins[operation] = lane.timestamp()

    def issued(self, task: Task, lane: Any) -> None:
        """Called after the work of an operation is on the stream."""
        operation = self._open.get(task)
        if operation in self._gpu_begins:
            begin = self._gpu_begins.pop(operation)
            with suppress(Exception):
                self._on_gpus[lane.device].append((operation, begin, lane.timestamp()))

    def share(
        self, task: Task, pieces: int, begin_ns: int, own: int, over_ns: int, late: bool
    ) -> None:
        operation, ns = self._open.get(task), engine.current.clock() - begin_ns
        if operation is not None:  # which may be split several times
            known = self.shared.get(operation.number, SplitRecord(0, 0, 0, False))
            work_ns = (over_ns - begin_ns) * pieces // own if own else ns
            self.shared[operation.number] = SplitRecord(
                max(known.pieces, pieces), known.ns + ns, known.work_ns + work_ns,
                late or known.late,
            )  # fmt: skip

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if self._timing:
            self.cpu.note(end_ns)
        if not self._closing:
            serial = None if target is None else serial_of(target)
            call = callsite.called_function(4)  # skip `emit`, `Engine._wait` and its caller
            self._waits.pending.append((
                kind, serial, site, call, modes.recording, this_thread(), begin_ns, end_ns,
                len(self.operations),
            ))  # fmt: skip

    def tell(self, token: int) -> None:
        self.told(token, "tell")

    def told(self, token: int, kind: str) -> None:
        waits = len(self._waits) + len(self._waits.pending)
        made = self._running_number(), self.count, waits, callsite.find()
        self.notices.append(Notice(token, kind, this_thread(), *made))

    def _running_number(self) -> int:
        """The number of the operation that this thread runs; 0: none."""
        operation = self._open.get(thread_state.task)
        return 0 if operation is None else operation.number

    def copied(self, array: Any) -> None:
        site, nbytes = callsite.find(), array.nbytes
        self.copies.append(Copy(self._clock(), nbytes, site))
        weakref.finalize(array, self._given_back, nbytes, site).atexit = False

    def _given_back(self, nbytes: int, site: Site | None) -> None:
        self.copies.append(Copy(self._clock(), -nbytes, site))

    def alloc(self, ctx: Any, nbytes: int, var: Any) -> None:
        site = None
        if thread_state.task is None and not hasattr(var, "serial"):
            site = callsite.find()  # no operation: the program fills the array itself
        made = self._running_number(), serial_of(var), site
        self.memory.add(self._clock(), ctx, nbytes, *made, var.pool.live)

    def free(self, ctx: Any, nbytes: int, serial: int) -> None:
        self.memory.add(self._clock(), ctx, -nbytes, 0, serial)

    @property
    def seconds(self) -> float:
        """The time of the run, from the begin of the trace to its end."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def waits(self) -> WaitList:
        """The waits of the program's threads."""
        self._waits.catch_up()
        return self._waits

    # -- dependencies ------------------------------------------------------------------------------

    def __getitem__(self, number: int) -> Operation:
        """The operation of that number, counted from 1."""
        if not 0 < number <= len(self.operations):
            raise IndexError(f"operation {number}: there are 1 to {len(self.operations)}")
        return self.operations[number - 1]

    def true_dependencies(self, number: int) -> tuple[int, ...]:
        """The earlier operations that wrote what operation `number` reads."""
        return self.order[number - 1][0]

    def anti_dependencies(self, number: int) -> tuple[int, ...]:
        """The operations that precede operation `number` only because it writes where they read or
        wrote; another name for the result would remove them."""
        return self.order[number - 1][1]

    def ordered(self, a: int, b: int) -> bool:
        """True if one of the two operations must end before the other starts."""
        return bool(self.events.path(min(a, b), max(a, b)))

    @property
    def order(self) -> list[Before]:
        """For every operation its true dependencies and its anti-dependencies."""
        if len(self._order) != len(self.operations):
            self._order = order_of(self.operations)
        return self._order

    @property
    def events(self) -> EventGraph:
        """The moments of the run and what had to come before each; see `profiler.event_graph`."""
        built_of = len(self.operations), len(self.waits), self.end_ns
        known, graph = self._events
        if graph is None or known != built_of or not self.end_ns:
            graph = EventGraph(self)
            self._events = built_of, graph
        return graph

    # -- analyses ----------------------------------------------------------------------------------

    summary = summary_of
    timeline, graph = timeline_of, graph_of
    account, bounds, replay = account_of, bounds_of, replay_of
    explain = explain_pair
    save = save_trace

    def off_cpu(self) -> dict[int, OffCpu]:
        """For each operation whose CPU time is known, by its number: how long it did not compute,
        by cause; see `profiler.evidence`."""
        return self.cpu.off_cpu(self.operations)

    def critical_path(self) -> CriticalPath:
        """The longest chain of operations, pushes and waits; prints as a table."""
        return CriticalPath(self)

    def refuse(self, question: str) -> None:
        """MXNetError with the reason if the trace lacks what the question needs."""
        if question in self.lacks:
            raise MXNetError(f"{question}: the trace cannot tell: {self.lacks[question]}")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        return bundle(self)

    def __str__(self) -> str:
        return timetable(self)

    def __repr__(self) -> str:
        ms = (self.end_ns - self.begin_ns) / 1e6
        text = f"trace of {len(self.operations)} operations in"
        if self.recorded is None:
            return f"<{text} {ms:.1f} ms>"
        before, band = 1e3 * self.recorded.seconds, self.prediction
        if band is not None and band.low_ns < band.high_ns:
            text += f" {ms:.2f} ms,"
        return f"<predicted {text} {band}; recorded were {before:.1f} ms>"


def _computes_here(task: Task) -> bool:
    """True if the thread that runs the task computes it; else it issues work of a device."""
    return task.ctx.is_cpu or (task.ctx, task.lane) not in engine.current.runners


def _count_workers() -> dict[str, int]:
    """The number of threads that serve each lane."""
    found = {"cpu": engine.current.workers}
    for (ctx, lane), threads in worker_pools.threads.items():
        found[str(ctx) if lane == "compute" else f"{ctx} {lane}"] = threads
    return found


def _set_gpu_times(device: Any, found: list[tuple[Operation, Any, Any]]) -> None:
    """Give the operations of a GPU the times of their begins and ends there.

    For the engine, an operation on a GPU is complete when its work is on a stream. So a trace puts
    a CUDA event before and after the work, and the GPU records the time at which the stream reaches
    it. CUDA gives the time between two events, but not in the host's clock. So at the end of a
    trace, when all work is done, one more event per GPU is recorded and waited for, and the times
    of the others are computed backward from it. The result is accurate to some ten microseconds.
    """

    def count_back() -> list[tuple[int, int]]:
        now = device.lane_here().timestamp()
        for event in (now, *(end for _, _, end in found)):
            event.synchronize()
        now_ns, ms_between = engine.current.clock(), device.xp.cuda.get_elapsed_time
        return [
            (now_ns - int(ms_between(begin, now) * 1e6), now_ns - int(ms_between(end, now) * 1e6))
            for _, begin, end in found
        ]

    times = device.ask(count_back, "profile")
    for (operation, _, _), (began_ns, ended_ns) in zip(found, times):
        # The work cannot have started before it was issued.
        operation.began_ns = max(began_ns, operation.began_ns)
        operation.ended_ns = max(ended_ns, operation.began_ns)


class Profile(Scope):
    """The scope of `profile()`."""

    def __init__(self) -> None:
        self.trace = Trace()

    def _begin(self, undo: Undo) -> Trace:
        engine.waitall()
        undo.append(self.trace.finish)
        self.trace.begin()
        return self.trace

    def close(self) -> None:
        trace = self.trace
        trace._closing = True
        trace.left_ns = engine.current.clock()
        engine.current.wait_idle(CLOSING)
        storage.settle()

    def left(self, kind: type[BaseException] | None) -> None:
        if kind is None:
            engine.waitall()


def load(path: str | PathLike[str]) -> Trace:
    """Read a trace that `Trace.save` wrote (MXNet's `profiler.dump` too), or one of PyTorch's or
    JAX's profiler (the file, or its log directory); JSON, compressed or not. MXNetError, with the
    place in the file, if it is none of these or damaged; OSError if it cannot be read."""
    return read_trace(path, Trace())


def profile() -> Profile:
    """Record the engine's activity within the scope. The scope waits for an idle engine at its
    start and end; the final wait does not count as the program's, and Ctrl-C skips it. Errors of
    operations are raised at the end, if the scope itself raised none. Within `engine.stepped()`
    times are those of the virtual clock. Operations of a GPU have the times of the GPU's work, not
    of the host.

    What it costs, measured in turns with and without: an empty task 7 us, an operation on tiny
    arrays 5 us (7 us in place of 2, since it reports all its events in one), a wait 2 us, the call
    of a small hybridized net 12 us (26 in place of 14). A product of 0.45 ms that is waited for
    takes 40 to 50 us longer, 10 %: the code of its eight events is no longer in the caches after
    the product. The bars of a timeline are as short as without a trace; the gaps between them grow.
    """
    return Profile()
