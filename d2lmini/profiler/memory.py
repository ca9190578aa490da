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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, overload

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.context import Context
from d2lmini.profiler.records import Change
from d2lmini.profiler.summary import align, shorten

if TYPE_CHECKING:
    from d2lmini.profiler.records import Copy
    from d2lmini.profiler.tracing import Trace

#: Roles of memory in training.
ROLES = ("weights", "gradients", "optimizer state", "activations", "other")

#: Bytes over time, as steps: [(ns, bytes from then on), ...].
Curve = list[tuple[int, int]]


class ChangeList(Sequence[Change]):
    """A trace's memory changes, in order. A call returns the report.

    A hook calls `add`. A change is kept as eight numbers, an eighth of the bytes of a record, which
    is made on access."""

    def __init__(self, trace: Trace):
        self._trace = trace
        self._numbers = array("q")
        self._others: list[Any] = []  # contexts and lines, which rows name by their index
        self._index: dict[Any, int] = {}

    def __call__(self) -> MemoryReport:
        self._trace.refuse("memory()")
        return report_of(self._trace)

    def add(
        self, when_ns: int, ctx: Context, nbytes: int, operation: int, serial: int = 0,
        site: Site | None = None, live: int = 0, cached: int = 0,
    ) -> None:  # fmt: skip
        """Append a change."""
        self._numbers.extend((
            when_ns, self._number(ctx), nbytes, operation, serial, self._number(site), live, cached
        ))  # fmt: skip

    def append(self, change: Change) -> None:
        """Append a record."""
        self.add(*change)

    def _number(self, value: Any) -> int:
        number = self._index.get(value)
        if number is None:
            self._others.append(value)
            number = self._index[value] = len(self._others) - 1
        return number

    def _change(self, row: int) -> Change:
        when_ns, ctx, nbytes, operation, serial, site, live, cached = self._numbers[
            8 * row : 8 * row + 8
        ]
        made = when_ns, self._others[ctx], nbytes, operation, serial, self._others[site]
        return Change(*made, live, cached)

    def __iter__(self) -> Iterator[Change]:
        return map(self._change, range(len(self)))

    def __len__(self) -> int:
        return len(self._numbers) // 8

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change]: ...
    def __getitem__(self, index: int | slice) -> Change | list[Change]:
        rows = range(len(self))[index]
        return self._change(rows) if isinstance(rows, int) else [self._change(i) for i in rows]


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
    by_role        for each of ROLES a curve; together they are `live`
    roles          for each of ROLES its bytes at the peak
    """

    ctx: Context
    live: Curve
    pending: Curve
    begin_bytes: int
    peak_bytes: int
    peak_ns: int
    older_bytes: int
    holders: list[LineAllocation]
    by_role: dict[str, Curve]
    roles: dict[str, int]

    @property
    def end_bytes(self) -> int:
        """Live bytes at the end."""
        return self.live[-1][1]

    @property
    def peak_pending(self) -> int:
        """The maximum of pending bytes."""
        return max((nbytes for _, nbytes in self.pending), default=0)

    def __str__(self) -> str:
        rows = [(_mb(holder.nbytes), str(holder.arrays), *_who(holder)) for holder in self.holders]
        if self.older_bytes:
            rows.append((_mb(self.older_bytes), "", "", "from before the trace"))
        lines = [
            f"{self.ctx}: {_mb(self.peak_bytes)} live at the peak, {_mb(self.begin_bytes)} at the "
            f"begin, {_mb(self.end_bytes)} at the end; {_mb(self.peak_pending)} pending at most",
        ]
        if self.roles["other"] != self.peak_bytes:
            sizes = [f"{role} {_mb(nbytes)}" for role, nbytes in self.roles.items() if nbytes]
            lines.append(f"at the peak: {', '.join(sizes)}")
        return "\n".join([*lines, *align(rows, ">><<")])


class MemoryReport:
    """`DeviceMemory` of every device that allocated or freed memory: report[ctx]; `copies`, NumPy's
    arrays that the program got, with the lines that held them at their peak. Prints as tables."""

    def __init__(self, devices: dict[Context, DeviceMemory], copies: list[LineAllocation]):
        self.devices = devices
        self.copies = copies

    def __getitem__(self, ctx: Context) -> DeviceMemory:
        if ctx not in self.devices:
            known = ", ".join(map(str, self.devices)) or "no device"
            raise KeyError(f"no memory of {ctx} was taken or given back in the trace; of {known}")
        return self.devices[ctx]

    def __iter__(self) -> Iterator[DeviceMemory]:
        return iter(self.devices.values())

    def __str__(self) -> str:
        tables = [str(device) for device in self]
        if self.copies:
            most = sum(line.nbytes for line in self.copies)
            head = f"NumPy arrays that the program got (asnumpy, ...): {_mb(most)} at the peak"
            rows = [(_mb(x.nbytes), str(x.arrays), shorten(x.where, 70)) for x in self.copies]
            tables.append("\n".join([head, *align(rows, ">><")]))
        return "\n\n".join(tables) or "no memory was taken or given back"

    __repr__ = __str__


def report_of(trace: Trace) -> MemoryReport:
    """Add up the memory changes of a trace."""
    changes: dict[Context, list[Change]] = defaultdict(list)
    for change in trace.memory:
        changes[change.ctx].append(change)
    maker = _Makers(trace)
    found = {ctx: _device(ctx, changes[ctx], trace, maker) for ctx in changes}
    return MemoryReport(found, _copies_at_peak(trace.copies))


def _copies_at_peak(copies: Iterable[Copy]) -> list[LineAllocation]:
    """The lines that held NumPy's copies of arrays when these were largest."""
    held: dict[Site | None, LineAllocation] = {}
    now = most = 0
    at_peak: list[LineAllocation] = []
    for copy in copies:
        line = held.setdefault(callsite.same_line(copy.site), LineAllocation("", copy.site))
        line.nbytes += copy.nbytes
        line.arrays += 1 if copy.nbytes > 0 else -1
        now += copy.nbytes
        if now > most:
            most, at_peak = now, [replace(line) for line in held.values() if line.nbytes > 0]
    return sorted(at_peak, key=lambda line: -line.nbytes)


class _Makers:
    """Finds the maker of an array: the operation that first wrote its Var."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.first: dict[int, int] = {}
        for operation in trace.operations:
            for serial in operation.writes:
                self.first.setdefault(serial, operation.number)
        self.line = cache(callsite.same_line)  # a key that all sites of one line share

    def number(self, change: Change) -> int:
        """The number of the operation; 0: the program filled the array itself."""
        return change.operation or (0 if change.site else self.first.get(change.serial, 0))

    def role(self, change: Change) -> str:
        """The role of an allocation."""
        number = self.number(change)
        known = self.trace.roles.get(change.serial)
        if known is None and self.trace.recording[number - 1 : number] == b"\1":
            return "activations"
        return known or "other"

    def key(self, change: Change) -> tuple[str, Site | None]:
        """The operation's name, and the line."""
        number = self.number(change)
        if not number:
            return "", change.site
        return self.trace[number].name, self.trace[number].site


def _device(ctx: Context, changes: list[Change], trace: Trace, maker: _Makers) -> DeviceMemory:
    begin = _begin_bytes(changes)
    live = [(trace.begin_ns, begin)]
    now, peak, peak_at = begin, begin, 0
    for i, change in enumerate(changes, 1):
        now += change.nbytes
        live.append((change.when_ns, now))
        if now > peak:
            peak, peak_at = now, i
    there: dict[int, Change] = {}  # live at the peak, by serial number
    for change in changes[:peak_at]:
        if change.nbytes > 0:
            there[change.serial] = change
        else:
            there.pop(change.serial, None)
    holders = _sum_up(there.values(), maker)
    return DeviceMemory(
        ctx, live, _pending(changes, trace, maker), begin, peak,
        changes[peak_at - 1].when_ns if peak_at else trace.begin_ns,
        peak - sum(holder.nbytes for holder in holders), holders,
        *_by_role(ctx, changes, peak_at, begin, trace, maker),
    )  # fmt: skip


def _by_role(
    ctx: Context, changes: list[Change], peak_at: int, begin: int, trace: Trace, maker: _Makers
) -> tuple[dict[str, Curve], dict[str, int]]:
    """The live bytes of each role over time, and at the peak, after `peak_at` changes."""
    older = trace.older.get(str(ctx), {})
    now = {role: older.get(role, 0) for role in ROLES}
    now["other"] = begin - sum(older.values())
    curves = {role: [(trace.begin_ns, nbytes)] for role, nbytes in now.items()}
    at_peak = dict(now)
    roles: dict[int, str] = {}  # of living arrays
    for i, change in enumerate(changes, 1):
        if change.nbytes > 0:
            role = roles[change.serial] = maker.role(change)
        else:
            role = roles.pop(change.serial, "") or trace.roles.get(change.serial, "other")
        now[role] += change.nbytes
        curves[role].append((change.when_ns, now[role]))
        if i == peak_at:
            at_peak = dict(now)
    return curves, at_peak


def _begin_bytes(changes: list[Change]) -> int:
    """Live bytes before the first change: the pool's figures at the first allocation tell."""
    net = 0
    for change in changes:
        net += change.nbytes
        if change.nbytes > 0:
            return change.live - net
    return -net  # at least all that was freed


def _sum_up(changes: Iterable[Change], maker: _Makers) -> list[LineAllocation]:
    found: dict[Any, LineAllocation] = {}
    for change in changes:
        name, site = maker.key(change)
        holder = found.setdefault((name, maker.line(site)), LineAllocation(name, site))
        holder.nbytes += change.nbytes
        holder.arrays += 1
    return sorted(found.values(), key=lambda chunk: -chunk.nbytes)


def _pending(changes: list[Change], trace: Trace, maker: _Makers) -> Curve:
    steps: list[tuple[int, int]] = []
    for change in changes:
        number = maker.number(change) if change.nbytes > 0 else 0
        if number and not trace[number].inline:
            steps.append((trace[number].pushed_ns, change.nbytes))
            steps.append((trace[number].ended_ns or trace.end_ns, -change.nbytes))
    now, curve = 0, [(trace.begin_ns, 0)]
    for when_ns, nbytes in sorted(steps):
        now += nbytes
        curve.append((when_ns, now))
    return curve


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB"


def _who(holder: LineAllocation) -> tuple[str, str]:
    return holder.name or "(the program)", shorten(holder.where, 70)
