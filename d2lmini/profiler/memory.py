"""Memory over time: bytes of arrays on each device, the peak, and the owners of the peak.

>>> from d2lmini import cpu, nd, profile
>>> with profile() as trace:
...     x = nd.ones((1000, 250))
...     y = [x * 2 for _ in range(3)]
...     z = y[0] + y[1]
...     z.wait_to_read()
...     del y
>>> report = trace.memory()[cpu()]
>>> for holder in report.holders:
...     print(holder.name, holder.arrays, holder.nbytes)
_mul_scalar 3 3000000
_ones 1 1000000
broadcast_add 1 1000000

    live      bytes of arrays, including those from before the trace
    pending   bytes of results that were issued to a worker and are not complete, allocated or not:
              how far the program runs ahead, in bytes

An array belongs to the operation that first writes the array, and to the line that issued the
operation. Its role in training is that of `device.roles` (weights, gradients, optimizer state);
other results of operations within `autograd.record` are activations, and the rest is "other".
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.context import Context
from d2lmini.profiler.records import Change, Operation
from d2lmini.profiler.summary import align, shorten

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: Roles of memory in training.
ROLES = ("weights", "gradients", "optimizer state", "activations", "other")

#: Bytes over time, as steps: [(ns, bytes from then on), ...].
Curve = list[tuple[int, int]]

#: A change, and of an allocation the operation that made the array; None: the program filled it
#: itself.
Made = tuple[Change, Operation | None]


class ChangeList:
    """A trace's memory changes, in order. A call returns the report.

    A hook calls `add`. A change is kept as seven numbers, an eighth of the bytes of a record, which
    is made when the list is read."""

    def __init__(self, trace: Trace):
        self._trace = trace
        self._numbers = array("q")
        self._others: dict[Any, int] = {}  # contexts and lines, with the numbers that rows have

    def __call__(self) -> MemoryReport:
        self._trace.refuse("memory()")
        return report_of(self._trace)

    def add(
        self, when_ns: int, ctx: Context, nbytes: int, operation: int, serial: int = 0,
        site: Site | None = None, live: int = 0,
    ) -> None:  # fmt: skip
        """Append a change."""
        known = self._others
        place, line = known.setdefault(ctx, len(known)), known.setdefault(site, len(known))
        self._numbers.extend((when_ns, place, nbytes, operation, serial, line, live))

    def append(self, change: Change) -> None:
        """Append a record."""
        self.add(*change)

    def __iter__(self) -> Iterator[Change]:
        others, numbers = list(self._others), iter(self._numbers)
        for when_ns, place, nbytes, operation, serial, line, live in zip(*[numbers] * 7):
            yield Change(when_ns, others[place], nbytes, operation, serial, others[line], live)


@dataclass(slots=True)
class LineAllocation:
    """Arrays of one operation at one line.

    name, site   the operation ("" if the program filled the array itself) and the line
    nbytes, arrays    total size, and number
    """

    name: str
    site: Site | None
    nbytes: int = 0
    arrays: int = 0

    @property
    def where(self) -> str:
        """ "train.py:12: y = net(X)" """
        return callsite.describe(self.site)


@dataclass(slots=True)
class DeviceMemory:
    """The memory of one device during a trace.

    live, pending            curves: [(ns, bytes from then on), ...]
    begin_bytes    bytes of older arrays (from before the trace) at its start
    peak_bytes, peak_ns      the maximum of live, and its time
    older_bytes    bytes of older arrays at the peak
    holders        owners of the rest at the peak, the largest first
    begin_roles, roles       for each of ROLES its bytes at the start, and at the peak
    """

    ctx: Context
    live: Curve
    pending: Curve
    begin_bytes: int
    peak_bytes: int
    peak_ns: int
    older_bytes: int
    holders: list[LineAllocation]
    begin_roles: dict[str, int]
    roles: dict[str, int]

    @property
    def peak_pending(self) -> int:
        """The maximum of pending bytes."""
        return max((nbytes for _, nbytes in self.pending), default=0)

    def __str__(self) -> str:
        rows = [
            (_mb(x.nbytes), str(x.arrays), x.name or "(the program)", shorten(x.where, 70))
            for x in self.holders
        ]
        if self.older_bytes:
            rows.append((_mb(self.older_bytes), "", "", "from before the trace"))
        lines = [
            f"{self.ctx}: {_mb(self.peak_bytes)} live at the peak, {_mb(self.begin_bytes)} at the "
            f"begin, {_mb(self.live[-1][1])} at the end; {_mb(self.peak_pending)} pending at most",
        ]
        if self.roles["other"] != self.peak_bytes:
            sizes = [f"{role} {_mb(nbytes)}" for role, nbytes in self.roles.items() if nbytes]
            lines.append(f"at the peak: {', '.join(sizes)}")
        return "\n".join([*lines, *align(rows, ">><<")])


class MemoryReport:
    """`DeviceMemory` of every device that allocated or freed memory: report[ctx]. Prints as
    tables."""

    def __init__(self, devices: dict[Context, DeviceMemory]):
        self.devices = devices

    def __getitem__(self, ctx: Context) -> DeviceMemory:
        if ctx not in self.devices:
            known = ", ".join(map(str, self.devices)) or "no device"
            raise KeyError(f"no memory of {ctx} was taken or given back in the trace; of {known}")
        return self.devices[ctx]

    def __iter__(self) -> Iterator[DeviceMemory]:
        return iter(self.devices.values())

    def __str__(self) -> str:
        return "\n\n".join(map(str, self)) or "no memory was taken or given back"

    __repr__ = __str__


def report_of(trace: Trace) -> MemoryReport:
    """Add up the memory changes of a trace."""
    first: dict[int, Operation] = {}  # of each Var the operation that wrote it first
    for operation in trace.operations:
        for serial in operation.writes:
            first.setdefault(serial, operation)
    changes: dict[Context, list[Made]] = defaultdict(list)
    for change in trace.memory:
        maker = trace[change.operation] if change.operation else None
        if change.nbytes > 0 and not (change.operation or change.site):
            maker = first.get(change.serial)
        changes[change.ctx].append((change, maker))
    return MemoryReport({ctx: _device(ctx, found, trace) for ctx, found in changes.items()})


def _device(ctx: Context, changes: list[Made], trace: Trace) -> DeviceMemory:
    net = 0
    for change, _ in changes:
        net += change.nbytes
        if change.nbytes > 0:
            begin = change.live - net  # the pool's figure at the first allocation tells
            break
    else:
        begin = -net  # at least all that was freed
    sums = accumulate((change.nbytes for change, _ in changes), initial=begin)
    live = list(zip((trace.begin_ns, *(change.when_ns for change, _ in changes)), sums))
    peak_at = max(range(len(live)), key=lambda i: live[i][1])
    peak_ns, peak_bytes = live[peak_at]
    older = trace.older.get(str(ctx), {})
    begin_roles = {**dict.fromkeys(ROLES, 0), **older, "other": begin - sum(older.values())}
    roles = dict(begin_roles)
    there: dict[int, tuple[str, Made]] = {}  # live at the peak, by serial number
    for change, maker in changes[:peak_at]:
        role = trace.roles.get(change.serial, "other")
        if change.nbytes > 0:
            in_record = maker and trace.recording[maker.number - 1 : maker.number] == b"\1"
            if in_record and change.serial not in trace.roles:
                role = "activations"
            there[change.serial] = role, (change, maker)
        else:
            role, _ = there.pop(change.serial, (role, None))
        roles[role] += change.nbytes
    holders = _sum_up(made for _, made in there.values())
    older_bytes = peak_bytes - sum(holder.nbytes for holder in holders)
    return DeviceMemory(
        ctx, live, _pending(changes, trace), begin, peak_bytes, peak_ns, older_bytes, holders,
        begin_roles, roles,
    )  # fmt: skip


def _sum_up(changes: Iterable[Made]) -> list[LineAllocation]:
    found: dict[Any, LineAllocation] = {}
    for change, maker in changes:
        name, site = ("", change.site) if maker is None else (maker.name, maker.site)
        key = name, callsite.same_line(site)
        holder = found.setdefault(key, LineAllocation(name, site))
        holder.nbytes += change.nbytes
        holder.arrays += 1
    return sorted(found.values(), key=lambda chunk: -chunk.nbytes)


def _pending(changes: Iterable[Made], trace: Trace) -> Curve:
    steps: Counter[int] = Counter({trace.begin_ns: 0})
    for change, maker in changes:
        if change.nbytes > 0 and maker and not maker.inline:
            steps[maker.pushed_ns] += change.nbytes
            steps[maker.ended_ns or trace.end_ns] -= change.nbytes
    times = sorted(steps)
    return list(zip(times, accumulate(steps[when_ns] for when_ns in times)))


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB"
