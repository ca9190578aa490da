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

from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.engine.worker_pools import WIRE
from d2lmini.profiler.cpu_time import Span
from d2lmini.profiler.load import load
from d2lmini.profiler.own_reader import context_of
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
    merged = _Merge(ranks, shifts)
    for k, calls in enumerate(collectives, start=1):
        merged.couple(k, calls)
    return merged.finish()


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


class _Merge:
    """The merged trace while it is made."""

    def __init__(self, ranks: Sequence[Trace], shifts: Sequence[int]):
        self.ranks, self.shifts = ranks, shifts
        self.trace = Trace()
        used = [o.ctx for trace in ranks for o in trace.operations]
        used += [change.ctx for trace in ranks for change in trace.memory]
        self.devices = 1 + max((ctx.device_id for ctx in used), default=0)
        self.new: dict[tuple[int, int], PlacedOperation] = {}
        for rank, trace in enumerate(ranks):
            for operation in trace.operations:
                self.new[rank, operation.number] = self._copy(rank, operation)
        in_order = sorted(self.new.values(), key=lambda o: (o.pushed_ns, o.rank))
        self.trace.operations += in_order
        for number, operation in enumerate(self.trace.operations, start=1):
            operation.number = number
        for (rank, _), operation in self.new.items():
            if operation.by:
                operation.by = self.new[rank, operation.by].number
        self.trace.recording = bytearray(len(in_order))
        for (rank, number), operation in self.new.items():
            trace = ranks[rank]
            if trace.recording[number - 1 : number] == b"\1":
                self.trace.recording[operation.number - 1] = True
            if number in trace.cpu.times:
                self.trace.cpu.times[operation.number] = trace.cpu.times[number]
            if number in trace.shared:
                self.trace.shared[operation.number] = trace.shared[number]
            if number in trace._joined:
                serials = tuple(self._serial(rank, serial) for serial in trace._joined[number])
                self.trace._joined[operation.number] = serials

    def _serial(self, rank: int, serial: int) -> int:
        return serial * len(self.ranks) + rank if serial else 0

    def _context(self, rank: int, ctx: Context) -> Context:
        return Context(ctx.device_type, rank * self.devices + ctx.device_id)

    def _copy(self, rank: int, operation: Operation) -> PlacedOperation:
        new = PlacedOperation(f"rank {rank} {operation.place}", rank)
        for name in Operation.__slots__:
            if hasattr(operation, name):
                setattr(new, name, getattr(operation, name))
        new.ctx = self._context(rank, operation.ctx)
        if operation.worker and not operation.inline:
            new.worker = f"rank {rank} {operation.worker}"
        new.thread = f"rank {rank} {operation.thread}"
        new.reads = tuple(self._serial(rank, serial) for serial in operation.reads)
        new.writes = tuple(self._serial(rank, serial) for serial in operation.writes)
        for name in ("pushed_ns", "ready_ns", "began_ns", "ended_ns"):
            when_ns = getattr(operation, name)
            setattr(new, name, when_ns + self.shifts[rank] if when_ns else 0)
        return new

    def couple(self, k: int, calls: Sequence[Operation]) -> None:
        """Let the rank that comes last to collective `k` carry it out, and the others need it."""
        new = [self.new[rank, call.number] for rank, call in enumerate(calls)]
        last = max(new, key=lambda operation: operation.began_ns)
        last.writes += (-k,)  # a Var of the collective
        for operation in new:
            operation.came_ns = operation.began_ns
            if operation is not last:
                joined = self.trace._joined.get(operation.number, ())
                self.trace._joined[operation.number] = (*joined, -k)
                operation.reads += (-k,)
                done_ns = max(operation.began_ns, last.ended_ns)
                operation.began_ns = min(done_ns, operation.ended_ns)
                operation.ready_ns = max(operation.ready_ns, operation.began_ns)

    def finish(self) -> Trace:
        """Add waits, memory and facts."""
        trace = self.trace
        pushed = {key: operation.number for key, operation in self.new.items()}
        order = [operation.pushed_ns for operation in trace.operations]
        for rank, (own, shift) in enumerate(zip(self.ranks, self.shifts)):
            for wait in own.waits:
                begin_ns, end_ns = wait.begin_ns + shift, wait.end_ns + shift
                before = pushed.get((rank, wait.pushed), 0)
                trace.waits.append(
                    wait._replace(
                        target=None if wait.target is None else self._serial(rank, wait.target),
                        operation=pushed.get((rank, wait.operation), wait.operation),
                        pushed=max(before, bisect_right(order, begin_ns)),
                        thread=f"rank {rank} {wait.thread}",
                        begin_ns=begin_ns,
                        end_ns=end_ns,
                    )
                )
            trace.cpu.spans += [
                Span(f"rank {rank} {thread}", begin_ns + shift, end_ns + shift, cause)
                for thread, begin_ns, end_ns, cause in own.cpu.spans
            ]
            for change in own.memory:
                trace.memory.append(
                    change._replace(
                        when_ns=change.when_ns + shift,
                        ctx=self._context(rank, change.ctx),
                        operation=pushed.get((rank, change.operation), 0),
                        serial=self._serial(rank, change.serial),
                    )
                )
            for serial, role in own.roles.items():
                trace.roles[self._serial(rank, serial)] = role
            for ctx, sizes in own.older.items():
                trace.older[str(self._context(rank, context_of(ctx)))] = sizes
            for place, workers in own.workers.items():
                trace.workers[f"rank {rank} {place}"] = workers
            for question, reason in own.lacks.items():
                trace.lacks.setdefault(question, f"rank {rank}: {reason}")
        trace.waits.sort(key=lambda wait: wait.end_ns)
        shifted = list(zip(self.ranks, self.shifts))
        trace.begin_ns = min(own.begin_ns + shift for own, shift in shifted)
        trace.left_ns = max(own.left_ns + shift for own, shift in shifted)
        trace.end_ns = max(own.end_ns + shift for own, shift in shifted)
        trace.cores = sum(own.cores for own in self.ranks)
        trace.blas_threads = max(own.blas_threads for own in self.ranks)
        return trace
