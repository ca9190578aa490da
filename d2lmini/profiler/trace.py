"""Traces: what was issued when, what it had to wait for, who ran it, and where the program waited.

    with d2lmini.profile() as trace:
        train(net)
    print(trace)

A trace listens to the engine (`instrument`). Under the engine's lock it takes the time and the
names and leaves; what comes after what is found out afterwards, from what each operation read and
wrote, by the engine's own rule: readers together, a writer alone.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((1, 2))
...     b = a * 2
...     a += 1
...     c = a + b
>>> for each in trace.operations:
...     print(each, trace.needs(each.number), trace.makes_room(each.number))
1 _ones () ()
2 _mul_scalar (1,) ()
3 _plus_scalar (1,) (2,)
4 broadcast_add (2, 3) ()

The third needs what the first made, and has to wait until the second has read it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from d2lmini import callsite, engine, instrument
from d2lmini.device import blas, storage
from d2lmini.engine import lanes
from d2lmini.engine.core import Task
from d2lmini.engine.road import here
from d2lmini.ops.core import modes
from d2lmini.profiler.gpu import GpuTimes, NvtxRanges
from d2lmini.profiler.memory import ChangeList
from d2lmini.profiler.order import Before, ancestors, order_of
from d2lmini.profiler.recorder import Recorder, serial_of
from d2lmini.profiler.records import Cut, Operation
from d2lmini.profiler.threads import this_thread
from d2lmini.profiler.waits import WaitList

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.context import Context
    from d2lmini.draw.picture import Picture
    from d2lmini.profiler.account import Account
    from d2lmini.profiler.critical_path import CriticalPath
    from d2lmini.profiler.diff import Diff
    from d2lmini.profiler.roofline import Roofline
    from d2lmini.profiler.summary import Summary

#: The wait at the end of a trace, which is none of the program's.
CLOSING = "end of profile"


class Trace(Recorder):
    """What happened in the scope of a `profile()`.

    operations  in the order they were pushed; number 1 is the first
    waits       of the program's threads, in the order they ended; waits() is a table by line
    memory      changes, in the order they happened; memory() is a report of who held how much
    begin_ns, end_ns    of the scope, the wait for everything at its end included
    workers     threads that serve each lane: {"cpu": 2, "gpu(0)": 1, "gpu(0) in": 1, ...}
    blas_threads        of a product of matrices that BLAS shares out itself
    left_ns     when the program came to the scope's end, and only waited from then on
    shared      what was cut of operations, by their numbers
    recorded    of a predicted trace: the one it was predicted from; else None

    Indexed by a number it gives that operation. It keeps no array alive.
    """

    operations: list[Operation]

    def __init__(self) -> None:
        super().__init__()
        self.operations = self._pushed = []
        self._waits = WaitList(self)
        self._memory = ChangeList(self)
        self.begin_ns = self.end_ns = 0
        self.workers: dict[str, int] = {}
        self.blas_threads = 0
        self.left_ns = 0
        self.shared: dict[int, Cut] = {}
        self.recorded: Trace | None = None
        self._joined: dict[int, tuple[int, ...]] = {}  # Vars that meetings came to read
        self._order: list[Before] = []
        self._ancestors: dict[int, set[int]] = {}
        self._closing = False
        self._gpu_times = GpuTimes()

    def begin(self) -> None:
        """Take down what the machine is like, and listen from now on."""
        self.workers = _served()
        self.blas_threads = blas.threads()
        self.begin_ns = engine.current.clock()
        instrument.add(self)

    def finish(self) -> None:
        """Listen no more."""
        instrument.remove(self)
        self.end_ns = engine.current.clock()
        self._gpu_times.resolve()
        self._resolve_waits()

    # -- what the engine tells ---------------------------------------------------------------------

    @staticmethod
    def _clock() -> int:  # type: ignore[override]
        """The clock of the engine in use: within `engine.stepped()` it is virtual."""
        return engine.current.clock()

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Any, begin_ns: int, end_ns: int,
    ) -> None:  # fmt: skip
        super().small(name, ctx, reads, writes, site, predicted_us, footprint, begin_ns, end_ns)
        for var in writes:
            pool = var.pool
            self._memory.told += (
                end_ns, ctx, var.nbytes, 0, var.serial, None, pool.live, pool.cached
            )  # fmt: skip

    def _join(self, operation: Operation, later: tuple[int, ...]) -> None:
        self._joined[operation.number] = later

    def issue(self, task: Task, lane: Any) -> None:
        each = self._open.get(task)
        if each is not None:
            self._gpu_times.issue(each, lane)

    def issued(self, task: Task, lane: Any) -> None:
        each = self._open.get(task)
        if each is not None:
            self._gpu_times.issued(each, lane)

    def share(
        self, task: Task, pieces: int, begin_ns: int, own: int, over_ns: int, late: bool
    ) -> None:
        each = self._open.get(task)
        if each is not None:
            ns = engine.current.clock() - begin_ns
            work_ns = (over_ns - begin_ns) * pieces // own if own else ns
            most, before, worked, ever = self.shared.get(each.number, Cut(0, 0, 0, False))
            cut = Cut(max(most, pieces), before + ns, worked + work_ns, late or ever)
            self.shared[each.number] = cut

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if not self._closing:
            serial = None if target is None else serial_of(target)
            call = callsite.called(4)  # past `emit`, `Waits._wait` and who calls that
            self._waits.told += (
                kind, serial, site, call, modes.recording, this_thread(), begin_ns, end_ns,
                len(self.operations),
            )  # fmt: skip

    def alloc(self, ctx: Any, nbytes: int, var: Any) -> None:
        each = self._open.get(here.task)
        number, site = 0 if each is None else each.number, None
        if here.task is None and not hasattr(var, "serial"):
            site = callsite.find()  # no operation: the program fills it itself
        pool, now = var.pool, engine.current.clock()
        self._memory.told += (
            now, ctx, nbytes, number, serial_of(var), site, pool.live, pool.cached
        )  # fmt: skip

    def free(self, ctx: Any, nbytes: int, serial: int) -> None:
        self._memory.told += (engine.current.clock(), ctx, -nbytes, 0, serial, None, 0, 0)

    @property
    def waits(self) -> WaitList:
        """Where the program's threads waited."""
        self._waits.catch_up()
        return self._waits

    @property
    def memory(self) -> ChangeList:
        """When memory was taken and given back."""
        self._memory.catch_up()
        return self._memory

    # -- what comes after what ---------------------------------------------------------------------

    def __getitem__(self, number: int) -> Operation:
        """The operation of that number, from 1 on."""
        if not 0 < number <= len(self.operations):
            raise IndexError(f"operation {number}: there are 1 to {len(self.operations)}")
        return self.operations[number - 1]

    def needs(self, number: int) -> tuple[int, ...]:
        """The operations whose results operation `number` uses. Earlier ones; of a meeting of
        devices (SyncBatchNorm) also some that were pushed after it, as it waits for all parts."""
        return self.order[number - 1][0]

    def makes_room(self, number: int) -> tuple[int, ...]:
        """The operations that operation `number` comes after only because it writes where they
        read or wrote."""
        return self.order[number - 1][1]

    def ordered(self, a: int, b: int) -> bool:
        """Must one of the operations of these numbers be over before the other begins?"""
        return a in self._before(b) or b in self._before(a)

    @property
    def order(self) -> list[Before]:
        """Of every operation, what it needs and for whom it makes room, by the engine's rule."""
        if len(self._order) != len(self.operations):
            self._order = order_of(self.operations, self._joined)
            self._ancestors.clear()
        return self._order

    def _before(self, number: int) -> set[int]:
        known = self.order  # which forgets the ancestors where operations have come
        if number not in self._ancestors:
            self._ancestors[number] = ancestors(known, number)
        return self._ancestors[number]

    # -- what can be made of it --------------------------------------------------------------------

    def timeline(
        self,
        title: str = "",
        length_s: float | None = None,
        label: Callable[[Operation], str] = lambda operation: str(operation.number),
        accent: Callable[[Operation], bool] = lambda operation: False,
    ) -> Picture:
        """Who ran what, and when: a row for each worker of each place, above them the waits of the
        program. `label` says what is written into a bar that has room, `accent` which are drawn in
        another colour, `length_s` how long the axis is. ValueError if nothing ran."""
        from d2lmini.profiler.draw import timeline_of

        return timeline_of(self, title, length_s, label, accent)

    def graph(self, first: int = 1, last: int | None = None, lines: bool = True) -> Picture:
        """What comes after what, as a picture that prints as text: operations number `first` to
        `last`, with the line that issued each if `lines`. ValueError for none, or for too many."""
        from d2lmini.profiler.graph import graph_of

        return graph_of(self, first, last, lines)

    def summary(self, sort_by: str = "total") -> Summary:
        """How often each operation ran at each place, how long, and at which rates; `sort_by`
        total, mean, count or name."""
        from d2lmini.profiler.summary import summary_of

        return summary_of(self, sort_by)

    def account(self, cores: int | None = None) -> Account:
        """Where the time went: its parts by cause sum to the wall time; see `profiler.account`."""
        from d2lmini.profiler.account import account_of

        return account_of(self, cores)

    def critical_path(self) -> CriticalPath:
        """The chain of operations, pushes and waits that took longest; prints as a table."""
        from d2lmini.profiler.critical_path import CriticalPath

        return CriticalPath(self)

    def roofline(self) -> Roofline:
        """What each kind of operation reached of the machine's own peaks; prints as a table."""
        from d2lmini.profiler.roofline import roofline_of

        return roofline_of(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON that ui.perfetto.dev and chrome://tracing show."""
        from d2lmini.profiler.chrome import save

        save(self, path)

    def to_html(self, title: str = "Trace") -> str:
        """A page that stands alone: timeline, summary and waits, to be read without a script."""
        from d2lmini.profiler.html import page

        return page(self, title)

    def replay(
        self,
        workers: int | Mapping[str, int] | None = None,
        devices: int | None = None,
        link_gb_s: float | None = None,
        without_wait_at: str | int | Iterable[str | int] | None = None,
        priorities: Callable[[Operation], int] | None = None,
    ) -> Trace:
        """What if? The trace that the program would have left, predicted, with something changed;
        `recorded` of it is this one. Without arguments it predicts what was recorded.

        workers          threads of the CPU, or of each lane: {"cpu": 2, "gpu(0)": 1}
        devices          that many GPUs: gpu(i) becomes gpu(i % devices)
        link_gb_s        GB/s that each link moves in each direction
        without_wait_at  leave out the waits at "train.py:12", or line 12, or several lines
        priorities       operation -> its priority; higher ones run first

        MXNetError where these name what the trace does not have. How it predicts, and what it
        cannot foresee, says `d2lmini.profiler.replay`."""
        from d2lmini.profiler.replay import replay

        return replay(self, workers, devices, link_gb_s, without_wait_at, priorities)

    def diff(self, other: Trace) -> Diff:
        """What differs in `other`, a run of the same program after a change: operations added,
        removed or moved to another device, waits, overlaps, times; prints as a table."""
        from d2lmini.profiler.diff import diff

        return diff(self, other)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        from d2lmini.profiler.draw import bundle

        return bundle(self)

    def _resolve_waits(self) -> None:
        """Find out which operation each wait was for: the last one before it that wrote there."""
        writes: dict[int, list[int]] = {}
        for each in self.operations:
            for serial in each.writes:
                writes.setdefault(serial, []).append(each.number)
        waits = self.waits
        for i, wait in enumerate(waits):
            if wait.operation < 0:
                numbers = writes.get(wait.target or 0, [])
                k = bisect_left(numbers, wait.pushed + 1)
                waits[i] = wait._replace(operation=numbers[k - 1] if k else 0)

    def __str__(self) -> str:
        return "\n".join(map(str, self.operations))

    def __repr__(self) -> str:
        ms = (self.end_ns - self.begin_ns) / 1e6
        text = f"trace of {len(self.operations)} operations in {ms:.1f} ms"
        if self.recorded is None:
            return f"<{text}>"
        before = (self.recorded.end_ns - self.recorded.begin_ns) / 1e6
        return f"<predicted {text}; recorded were {before:.1f} ms>"


def _served() -> dict[str, int]:
    """How many threads serve each lane."""
    found = {"cpu": engine.current.workers}
    for (ctx, lane), threads in lanes.threads.items():
        found[str(ctx) if lane == "compute" else f"{ctx} {lane}"] = threads
    return found


class Profile:
    """The scope that `profile()` opens."""

    def __init__(self, nvtx: bool = False) -> None:
        self.trace = Trace()
        self._ranges = NvtxRanges() if nvtx else None

    def __enter__(self) -> Trace:
        engine.waitall()
        if self._ranges is not None:
            instrument.add(self._ranges)
        self.trace.begin()
        return self.trace

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, where: TracebackType | None
    ) -> None:
        trace = self.trace
        trace._closing = True
        trace.left_ns = engine.current.clock()
        try:
            engine.current.wait_idle(CLOSING)
            storage.settle()
        finally:
            if self._ranges is not None:
                instrument.remove(self._ranges)
            trace.finish()
        if kind is None:
            engine.waitall()


def profile(nvtx: bool = False) -> Profile:
    """Record what the engine does within the scope, which begins and ends with an idle engine; the
    wait at its end is no wait of the program's. Errors that operations have left are raised there,
    if the scope ends without one. Within `engine.stepped()` its times are those of the virtual
    clock; operations of a GPU have the times at which the GPU worked, not the host. With `nvtx`
    these are ranges for NVIDIA's tools besides, named after operation and line.

    An event costs 1 to 2 us, and a task has six: pushed, ready, begun, memory taken and given back,
    ended. That is 2 % of a task of 500 us. An operation on tiny arrays, of 4 us, takes 10 to 12 us,
    since all its events are told in one; its bar in a timeline is as short as it was, what lies
    between the bars has grown. A wait takes 2 us longer.
    """
    return Profile(nvtx)
