"""A trace as a file in the Trace Event Format, which ui.perfetto.dev and chrome://tracing show.

    trace.save("trace.json.gz")
    same = d2lmini.profiler.load("trace.json.gz")

Every place (the CPU, a GPU, its link) is a process and every worker a thread of it; the program's
threads are a separate process, which shows their waits. An operation is a complete event (`X`).
Times are microseconds since the start of the trace. An operation that did not run is an instant
event (`i`).

The file has every record, with times to the nanosecond, by the tables of `columns`; `load` makes
the same trace of it. An event names what the operation reads and writes by serial numbers; "site"
is (number of a code object, offset, line). What no viewer shows is beside the events: facts in
"otherData", memory changes in "memoryChanges".

The format: "Trace Event Format", the Chromium authors; Perfetto's "Visualizing external trace
formats".
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from d2lmini.device import files
from d2lmini.profiler import columns
from d2lmini.profiler.columns import Columns, Sites
from d2lmini.profiler.records import Change, Operation

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

Event = dict[str, Any]

#: Memory changes in one element of "memoryChanges".
CHANGES = 4_096


#: The process of the program's threads.
PROGRAM = "program"


class Tracks:
    """The number of each process and thread, assigned on first use; `names` has the events that
    name them."""

    def __init__(self) -> None:
        self.processes: dict[str, int] = {}
        self.threads: dict[tuple[str, str], int] = {}
        self.names: list[Event] = []

    def of(self, process: str, thread: str) -> Event:
        """The pid and tid of an event."""
        if process not in self.processes:
            self.processes[process] = len(self.processes) + 1
            self._name("process_name", self.processes[process], 0, process)
        pid = self.processes[process]
        if (process, thread) not in self.threads:
            self.threads[process, thread] = len(self.threads) + 1
            self._name("thread_name", pid, len(self.threads), thread)
        return {"pid": pid, "tid": self.threads[process, thread]}

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        event = {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
        self.names.append(event)


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace to a file, compressed if its name ends in .gz."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    facts: dict[str, Any] = {"producer": "d2lmini"}
    facts |= {name: getattr(trace, name) for name in columns.FACTS}
    sites = Sites()
    for name, (records, *_) in columns.OUTSIDE.items():
        facts[name] = [
            [*fields, sites.save(site), sites.text(site)] for *fields, site in records(trace)
        ]
    facts["spans"] = trace.cpu.spans
    roles: dict[str, list[int]] = facts.setdefault("roles", {})
    for serial, role in trace.roles.items():
        roles.setdefault(role, []).append(serial)
    events, changes = (
        ",\n".join(map(encode, part)) for part in (_events(trace), _changes(trace.memory))
    )
    text = (
        f'{{"displayTimeUnit":"ms","otherData":{encode(facts)},\n'
        f'"traceEvents":[\n{events}\n],"memoryChanges":[\n{changes}\n]}}\n'
    )
    packed = os.fspath(path).endswith(".gz")
    files.write(path, gzip.compress(text.encode(), mtime=0) if packed else text)


def _events(trace: Trace) -> list[Event]:
    """All events, after the names of their processes and threads."""
    tracks, sites = Tracks(), Sites()
    tracks.of(PROGRAM, "MainThread")
    events = [*_operations(trace, tracks, sites), *_waits(trace, tracks, sites)]
    return [*tracks.names, *events]


def _us(trace: Trace, when_ns: int) -> float:
    return (when_ns - trace.begin_ns) / 1e3


def _columns(record: Any, of: Columns, zero: int) -> dict[str, Any]:
    return {key: kind.save(getattr(record, name), zero) for key, (name, kind) in of.items()}


def _operations(trace: Trace, tracks: Tracks, sites: Sites) -> Iterator[Event]:
    zero = trace.begin_ns
    for at, operation in enumerate(trace.operations):
        # `operation.cost` would keep the figures of every operation.
        cost = operation.cost if operation.footprint is None else operation.footprint()
        args = _columns(operation, columns.OPERATION, zero)
        args["issued at"] = sites.text(operation.site)
        args["site"] = sites.save(operation.site)
        args["FLOPs"], args["bytes"] = (
            columns.REAL.save(cost.flops, 0),
            columns.REAL.save(cost.nbytes, 0),
        )
        if operation.by:
            args["by"] = operation.by
        if trace.recording[at : at + 1] == b"\1":
            args["recording"] = True
        if operation.failure is not None:
            args["failure"] = operation.failure
        for key, (known, *_) in columns.BY_NUMBER.items():
            if operation.number in known(trace):
                args[key] = known(trace)[operation.number]
        event = {"name": operation.name, "cat": _kind(operation), "args": args}
        if operation.ran:
            dur = (operation.ended_ns - operation.began_ns) / 1e3
            where = tracks.of(operation.place, operation.worker)
            yield {**event, "ph": "X", "ts": _us(trace, operation.began_ns), "dur": dur, **where}
        else:
            args |= _columns(operation, columns.NOT_RUN, zero)
            when = _us(trace, operation.ended_ns or operation.pushed_ns)
            yield {**event, "ph": "i", "ts": when, "s": "t", **tracks.of(PROGRAM, operation.thread)}


def _kind(operation: Operation) -> str:
    if not operation.ran:
        return "unfinished" if operation.began_ns else "skipped"
    return "copy" if operation.is_copy else "compute"


def _waits(trace: Trace, tracks: Tracks, sites: Sites) -> Iterator[Event]:
    for wait in trace.waits:
        yield {
            "name": wait.kind,
            "cat": "wait",
            "ph": "X",
            "ts": _us(trace, wait.begin_ns),
            "dur": (wait.end_ns - wait.begin_ns) / 1e3,
            **tracks.of(PROGRAM, wait.thread),
            "args": {
                "at": sites.text(wait.site),
                "site": sites.save(wait.site),
                **_columns(wait, columns.WAIT, trace.begin_ns),
            },
        }


def _changes(changes: Iterable[Change]) -> Iterator[dict[str, Any]]:
    """The memory changes by column. Times, serial numbers and, of allocations, the pool's figures
    are differences to the row before; "sites" are by row, with their texts."""
    rows = iter(changes)
    sites = Sites()
    last = [0, 0, 0, 0]

    def step(column: int, value: int) -> int:
        last[column], before = value, last[column]
        return value - before

    while chunk := list(islice(rows, CHANGES)):
        contexts = list(dict.fromkeys(change.ctx for change in chunk))
        numbers = {ctx: i for i, ctx in enumerate(contexts)}
        made = [change for change in chunk if change.nbytes > 0]
        yield {
            "contexts": [str(ctx) for ctx in contexts],
            "context": [numbers[change.ctx] for change in chunk],
            "when": [step(0, change.when_ns) for change in chunk],
            "bytes": [change.nbytes for change in chunk],
            "serial": [step(1, change.serial) for change in chunk],
            "operation": [change.operation for change in made],
            "live": [step(2, change.live) for change in made],
            "cached": [step(3, change.cached) for change in made],
            "sites": {
                str(i): [sites.save(change.site), sites.text(change.site)]
                for i, change in enumerate(chunk)
                if change.site is not None
            },
        }
