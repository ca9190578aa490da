"""Traces of the ranks of a job, merged into one trace on one clock.

    trace.save(f"t{rank}.json.gz")                          # in each process
    trace = d2lmini.profiler.merge(["t0.json.gz", "t1.json.gz"])
    print(trace.account())

Places, threads and workers of the merged trace are named after their rank: "rank 1 cpu". Contexts
are numbered through, and serial numbers are the ranks' own.

A *collective* is an operation in which all ranks take part (an all-reduce); the k-th one of each
rank belongs to the k-th ones of the others. No rank completes a collective before all have begun,
so every collective bounds the differences of the clocks from both sides. Within these bounds the
median difference of the ends is taken, because ranks complete a collective at almost the same time.
In the merged trace the rank that came last carries out the collective, and the others need its
result. So the time that a rank spends there waiting for another one is idle time, of which
`account` finds the cause on the other rank. In a what-if the last rank stays the last.

After the alignment of traces in Holistic Trace Analysis (Meta).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from statistics import median
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.engine.worker_pools import WIRE
from d2lmini.profiler.columns import BY_NUMBER, context_of
from d2lmini.profiler.cpu_time import Span
from d2lmini.profiler.load import load
from d2lmini.profiler.records import Operation, PlacedOperation
from d2lmini.profiler.tracing import Trace


def merge(traces: Sequence[str | PathLike[str] | Trace]) -> Trace:
    """One trace of all ranks; `traces` are files or traces in the order of the ranks, from 0.
    MXNetError if there are none, or if the ranks' collectives have different names."""
    ranks = [trace if isinstance(trace, Trace) else load(fspath(trace)) for trace in traces]
    if not ranks:
        raise MXNetError("merge: no trace; give the files of all ranks, in the order of the ranks")
    collectives = list(_match(ranks))
    shifts = _align(ranks, collectives)
    used = [record.ctx for trace in ranks for record in (*trace.operations, *trace.memory)]
    devices = 1 + max((ctx.device_id for ctx in used), default=0)
    parts = [_Part(i, ranks, shift, devices) for i, shift in enumerate(shifts)]
    merged = Trace()
    merged.operations += (operation for part in parts for operation in part.operations)
    merged.operations.sort(key=lambda operation: (operation.pushed_ns, operation.rank))  # type: ignore[attr-defined]
    for number, operation in enumerate(merged.operations, start=1):
        operation.number = number
    merged.recording = bytearray(len(merged.operations))
    for k, calls in enumerate(collectives, start=1):
        _couple(merged, k, [part.new(call.number) for part, call in zip(parts, calls)])
    pushed = [operation.pushed_ns for operation in merged.operations]
    for part in parts:
        part.add_to(merged, pushed)
    merged.waits.sort(key=lambda wait: wait.end_ns)
    merged.begin_ns = min(own.begin_ns + shift for own, shift in zip(ranks, shifts))
    merged.left_ns = max(own.left_ns + shift for own, shift in zip(ranks, shifts))
    merged.end_ns = max(own.end_ns + shift for own, shift in zip(ranks, shifts))
    merged.cores = sum(own.cores for own in ranks)
    merged.blas_threads = max(own.blas_threads for own in ranks)
    return merged


def _match(ranks: Sequence[Trace]) -> Iterator[tuple[Operation, ...]]:
    """The collectives: for each, the operation of every rank."""
    own = [[o for o in trace.operations if o.lane == WIRE and o.ran] for trace in ranks]
    for k, calls in enumerate(zip(*own), start=1):
        for rank, call in enumerate(calls):
            if call.name != calls[0].name:
                raise MXNetError(
                    f"merge: collective {k} is {calls[0].name} on rank 0 and {call.name} on rank "
                    f"{rank}: these are not the traces of one job, from the same step on"
                )
        yield calls


def _align(ranks: Sequence[Trace], collectives: Sequence[tuple[Operation, ...]]) -> list[int]:
    """The ns to add to the times of each rank. Without collectives the ranks begin together."""
    shifts = [0]
    for rank, trace in enumerate(ranks[1:], start=1):
        pairs = [(calls[0], calls[rank]) for calls in collectives]
        if not pairs:
            shifts.append(ranks[0].begin_ns - trace.begin_ns)
            continue
        least = max(first.began_ns - other.ended_ns for first, other in pairs)
        most = min(first.ended_ns - other.began_ns for first, other in pairs)
        shift = round(median(first.ended_ns - other.ended_ns for first, other in pairs))
        shifts.append(min(max(shift, least), most) if least <= most else (least + most) // 2)
    return shifts


def _couple(merged: Trace, k: int, calls: Sequence[Any]) -> None:
    """Let the rank that comes last to collective `k` carry it out, and the others need it."""
    last = max(calls, key=lambda operation: operation.began_ns)
    last.writes += (-k,)  # a Var of the collective
    for operation in calls:
        operation.came_ns = operation.began_ns
        if operation is not last:
            merged._joined[operation.number] = (-k,)
            operation.reads += (-k,)
            done_ns = max(operation.began_ns, last.ended_ns)
            operation.began_ns = min(done_ns, operation.ended_ns)
            operation.ready_ns = max(operation.ready_ns, operation.began_ns)


class _Part:
    """What the merged trace has of one rank; `operations` are its new records."""

    def __init__(self, rank: int, ranks: Sequence[Trace], shift: int, devices: int):
        self.rank, self.n, self.own = rank, len(ranks), ranks[rank]
        self.shift, self.devices = shift, devices
        self.operations = [self._copy(operation) for operation in self.own.operations]

    def new(self, number: int) -> PlacedOperation:
        """The new record of an operation of the rank."""
        return self.operations[number - 1]

    def _number(self, number: int) -> int:
        return self.new(number).number if number > 0 else number

    def _serial(self, serial: int) -> int:
        return serial * self.n + self.rank if serial else 0

    def _serials(self, serials: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(self._serial, serials))

    def _context(self, ctx: Context) -> Context:
        return Context(ctx.device_type, self.rank * self.devices + ctx.device_id)

    def _name(self, name: str) -> str:
        return f"rank {self.rank} {name}"

    def _copy(self, operation: Operation) -> PlacedOperation:
        new = PlacedOperation(self._name(operation.place), self.rank)
        for name in Operation.__slots__:
            if hasattr(operation, name):
                value = getattr(operation, name)
                is_time = name.endswith("_ns") and value
                setattr(new, name, value + self.shift if is_time else value)
        new.ctx = self._context(operation.ctx)
        if operation.worker and not operation.inline:
            new.worker = self._name(operation.worker)
        new.thread = self._name(operation.thread)
        new.reads = self._serials(operation.reads)
        new.writes = self._serials(operation.writes)
        return new

    def add_to(self, merged: Trace, order: Sequence[int]) -> None:
        """Add what is not an operation; `order`: when the operations of all ranks were pushed."""
        own, shift = self.own, self.shift
        for old, new in zip(own.operations, self.operations):
            new.by = self._number(old.by)
            merged.recording[new.number - 1] = own.recording[old.number - 1 : old.number] == b"\1"
        for key, (known, *_) in BY_NUMBER.items():
            for number, value in known(own).items():
                if key == "joined":
                    value = self._serials(value) + merged._joined.get(self._number(number), ())
                known(merged)[self._number(number)] = value
        for wait in own.waits:
            begin_ns, end_ns = wait.begin_ns + shift, wait.end_ns + shift
            merged.waits.append(
                wait._replace(
                    target=None if wait.target is None else self._serial(wait.target),
                    operation=self._number(wait.operation),
                    pushed=max(self._number(wait.pushed), bisect_right(order, begin_ns)),
                    thread=self._name(wait.thread), begin_ns=begin_ns, end_ns=end_ns,
                )
            )  # fmt: skip
        merged.cpu.spans += [
            Span(self._name(thread), begin_ns + shift, end_ns + shift, cause)
            for thread, begin_ns, end_ns, cause in own.cpu.spans
        ]
        for change in own.memory:
            merged.memory.append(
                change._replace(
                    when_ns=change.when_ns + shift, ctx=self._context(change.ctx),
                    operation=self._number(change.operation), serial=self._serial(change.serial),
                )
            )  # fmt: skip
        merged.roles |= {self._serial(serial): role for serial, role in own.roles.items()}
        for ctx, sizes in own.older.items():
            merged.older[str(self._context(context_of(ctx)))] = sizes
        merged.workers |= {self._name(place): n for place, n in own.workers.items()}
        for question, reason in own.lacks.items():
            merged.lacks.setdefault(question, f"{self._name('')[:-1]}: {reason}")
