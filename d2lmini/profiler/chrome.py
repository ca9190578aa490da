"""A trace as JSON in the Trace Event Format, which ui.perfetto.dev and chrome://tracing show.

    trace.save("trace.json")

Every place (the CPU, a GPU, its link) is a process and every worker a thread of it; the program's
threads are a separate process, which shows their waits. An operation is a complete event (`X`), a
dependency arrow a pair of flow events (`s`, `f`) with their own id; bytes in use and queue lengths
are counters (`C`). Times are microseconds since the start of the trace. An operation that did not
run is an instant event (`i`).

The format: "Trace Event Format", the Chromium authors; Perfetto's "Visualizing external trace
formats".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import callsite, files
from d2lmini.profiler.records import Operation

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

Event = dict[str, Any]

#: A counter sample: time (ns) and two values.
Sample = tuple[int, int, int]

#: A counter with more changes is downsampled.
SAMPLES = 10_000


class Mark(NamedTuple):
    """A mark of the user's program: a span ("task", "frame", "event"), a "marker", or the new value
    of a "counter"."""

    kind: str
    domain: str
    name: str
    thread: str
    begin_ns: int
    end_ns: int
    value: int = 0
    scope: str = "t"  # of a marker: thread, process or global


#: The process of the program's threads.
PROGRAM = "program"


class Tracks:
    """The number of each process and thread, assigned on first use."""

    def __init__(self) -> None:
        self.processes: dict[str, int] = {}
        self.threads: dict[tuple[str, str], int] = {}

    def of(self, process: str, thread: str) -> Event:
        """The pid and tid of an event."""
        pid = self.processes.setdefault(process, len(self.processes) + 1)
        tid = self.threads.setdefault((process, thread), len(self.threads) + 1)
        return {"pid": pid, "tid": tid}

    def names(self) -> Iterator[Event]:
        """The metadata events that name and order processes and threads."""
        for process, pid in self.processes.items():
            yield _meta("process_name", pid, 0, name=process)
            yield _meta("process_sort_index", pid, 0, sort_index=pid)
        for (process, thread), tid in self.threads.items():
            pid = self.processes[process]
            yield _meta("thread_name", pid, tid, name=thread)
            yield _meta("thread_sort_index", pid, tid, sort_index=tid)


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace to a file."""
    text = json.dumps(document(trace), separators=(",", ":"))  # `json.dump` is much slower
    files.write(path, text)


def document(trace: Trace, marks: Sequence[Mark] = ()) -> dict[str, Any]:
    """The whole file as a value for `json`; `marks` are the user's own."""
    tracks = Tracks()
    tracks.of(PROGRAM, "MainThread")
    events = [
        *_operations(trace, tracks),
        *_waits(trace, tracks),
        *_arrows(trace, tracks),
        *_memory(trace, tracks),
        *_queues(trace, tracks),
        *_marks(trace, marks, tracks),
    ]
    facts = {"workers": trace.workers, "blas_threads": trace.blas_threads}
    return {
        "traceEvents": [*tracks.names(), *events],
        "displayTimeUnit": "ms",
        "otherData": {"producer": "d2lmini", **{k: str(v) for k, v in facts.items()}},
    }


def _us(trace: Trace, when_ns: int) -> float:
    return (when_ns - trace.begin_ns) / 1e3


def _operations(trace: Trace, tracks: Tracks) -> Iterator[Event]:
    line_at = lru_cache(None)(callsite.describe)
    for operation in trace.operations:
        args = {
            "number": operation.number,
            "issued at": line_at(operation.site),
            "issued by": operation.thread,
            "pushed us": _us(trace, operation.pushed_ns),
            "ready us": _us(trace, operation.ready_ns) if operation.ready_ns else None,
            "priority": operation.priority,
            "FLOPs": operation.flops,
            "bytes": operation.nbytes,
        }
        if operation.failure is not None:
            args["failure"] = operation.failure
        event = {"name": operation.name, "cat": _kind(operation), "args": args}
        if operation.ran:
            dur = (operation.ended_ns - operation.began_ns) / 1e3
            where = tracks.of(operation.place, operation.worker)
            yield {**event, "ph": "X", "ts": _us(trace, operation.began_ns), "dur": dur, **where}
        else:
            when = _us(trace, operation.ended_ns or operation.pushed_ns)
            yield {**event, "ph": "i", "ts": when, "s": "t", **tracks.of(PROGRAM, operation.thread)}


def _kind(operation: Operation) -> str:
    if not operation.ran:
        return "unfinished" if operation.began_ns else "skipped"
    return "copy" if operation.is_copy else "compute"


def _waits(trace: Trace, tracks: Tracks) -> Iterator[Event]:
    for wait in trace.waits:
        yield {
            "name": wait.kind,
            "cat": "wait",
            "ph": "X",
            "ts": _us(trace, wait.begin_ns),
            "dur": (wait.end_ns - wait.begin_ns) / 1e3,
            **tracks.of(PROGRAM, wait.thread),
            "args": {"at": wait.where, "for operation": wait.operation},
        }


def _arrows(trace: Trace, tracks: Tracks) -> Iterator[Event]:
    """Arrows from the end of one operation to the start of a dependent one. Each arrow ends in the
    enclosing slice (`bp`), and starts 1 ns before the end of its slice: at the very end it would
    belong to the next slice of that worker, or to none."""
    number = 0
    for operation, (needs, room) in zip(trace.operations, trace.order):
        for name, befores in ("value", needs), ("room", room):
            for before in befores:
                first = trace[before]
                if not (first.ran and operation.ran):
                    continue
                number += 1
                flow = {"name": name, "cat": "dependency", "id": number}
                left_ns = max(first.began_ns, first.ended_ns - 1)
                begin, end = _us(trace, left_ns), _us(trace, operation.began_ns)
                where = tracks.of(first.place, first.worker)
                yield {**flow, "ph": "s", "ts": begin, **where}
                where = tracks.of(operation.place, operation.worker)
                yield {**flow, "ph": "f", "bp": "e", "ts": max(begin, end), **where}


def _marks(trace: Trace, marks: Sequence[Mark], tracks: Tracks) -> Iterator[Event]:
    """Spans, which may overlap on a thread, become pairs of asynchronous events with an id."""
    for number, mark in enumerate(marks, start=1):
        where = tracks.of(mark.domain, mark.thread)
        begin, end = _us(trace, mark.begin_ns), _us(trace, mark.end_ns)
        event = {"name": mark.name, "cat": mark.domain, **where}
        if mark.kind == "counter":
            yield _counter(mark.name, begin, where, **{mark.name: mark.value})
        elif mark.kind == "marker":
            yield {**event, "ph": "i", "ts": begin, "s": mark.scope}
        else:
            yield {**event, "ph": "b", "ts": begin, "id": number}
            yield {**event, "ph": "e", "ts": end, "id": number}


def _memory(trace: Trace, tracks: Tracks) -> Iterator[Event]:
    """Bytes in use on each device, relative to the start."""
    samples: dict[str, list[Sample]] = {}
    changed: dict[str, int] = {}
    for change in trace.memory:
        place = "cpu" if change.ctx.is_cpu else str(change.ctx)
        changed[place] = changed.get(place, 0) + change.nbytes
        samples.setdefault(place, []).append((change.when_ns, changed[place], 0))
    for place, row in samples.items():
        for when_ns, nbytes, _ in _few(row):
            where = tracks.of(place, "memory")
            yield _counter("memory since the begin", _us(trace, when_ns), where, bytes=nbytes)


def _queues(trace: Trace, tracks: Tracks) -> Iterator[Event]:
    """Numbers of waiting and running operations of each place."""
    steps: dict[str, list[Sample]] = {}  # time, change of pending, change of running
    for operation in trace.operations:
        row = steps.setdefault(operation.place, [])
        row.append((operation.pushed_ns, 1, 0))
        if operation.began_ns:
            row.append((operation.began_ns, 0, 1))
        if operation.ended_ns:
            row.append((operation.ended_ns, -1, -1 if operation.began_ns else 0))
    for place, row in steps.items():
        row.sort(key=itemgetter(0))
        pending = accumulate(more for _, more, _ in row)
        running = accumulate(more for _, _, more in row)
        samples = [(when_ns, n - k, k) for (when_ns, *_), n, k in zip(row, pending, running)]
        for when_ns, n, k in _few(samples):
            where = tracks.of(place, "queue")
            yield _counter("queue", _us(trace, when_ns), where, waiting=n, running=k)


def _counter(name: str, us: float, where: dict[str, int], **values: int) -> Event:
    return {"name": name, "ph": "C", "ts": us, **where, "args": values}


def _few(samples: list[Sample]) -> list[Sample]:
    """Downsample: the highest and the last sample of each of some thousand intervals."""
    if len(samples) <= SAMPLES:
        return samples
    begin, end = samples[0][0], samples[-1][0]
    kept: dict[int, tuple[Sample, Sample]] = {}
    for sample in samples:
        interval = (sample[0] - begin) * (SAMPLES // 2) // (end - begin + 1)
        high = kept[interval][0] if interval in kept else sample
        kept[interval] = max(high, sample, key=itemgetter(1)), sample
    return [event for pair in kept.values() for event in dict.fromkeys(pair)]
