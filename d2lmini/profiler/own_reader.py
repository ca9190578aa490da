"""Traces that `chrome` wrote, read again: every record as it was, to the nanosecond.

`load` calls `OwnReader` with the members of the file in their order. Times in the file are
microseconds with three decimals since the start of the trace; they are nanoseconds exactly.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate
from sys import intern
from typing import TYPE_CHECKING, Any

from d2lmini.base import MXNetError
from d2lmini.callsite import RecordedCode, Site
from d2lmini.context import Context
from d2lmini.engine.operation import RecordedCost
from d2lmini.profiler.chrome import FACTS
from d2lmini.profiler.cpu_time import CpuTime, Pause, Span
from d2lmini.profiler.json_stream import check, is_few, is_time, is_whole
from d2lmini.profiler.outside import Copy, Notice
from d2lmini.profiler.records import Operation, PlacedOperation, SplitRecord, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


_SITE = (None, [int, is_whole, is_whole])
_OF_SITE = [_SITE, str]

#: What the members of a file's objects are, by name; see `json_stream.fits`.
FORMS: dict[str, Any] = {
    # "otherData"
    "begin_ns": is_whole, "left_ns": is_whole, "end_ns": is_whole, "workers": {str: is_few},
    "cores": is_few, "blas_threads": is_few, "engine_kind": str, "older": {str: {str: int}},
    "lacks": {str: str}, "thread": str, "pauses": [[is_whole, is_whole, str, *_OF_SITE]],
    "spans": [[str, is_whole, is_whole, str]], "copies": [[is_whole, is_whole, *_OF_SITE]],
    "notices": [[is_whole, str, str, int, int, int, *_OF_SITE]], "roles": {str: [is_whole]},
    # events
    "name": str, "ph": str, "args": dict, "ts": is_time, "dur": lambda us: is_time(us) and us >= 0,
    "tid": int, "number": int, "issued at": str, "site": _SITE, "issued by": str,
    "context": (str, [int]), "lane": str, "pushed us": is_time, "ready us": (None, is_time),
    "priority": is_whole, "predicted us": (float, str), "FLOPs": (float, str), "reads": [is_whole],
    "writes": [is_whole], "place": str, "rank": is_few, "came us": (None, is_time), "by": int,
    "failure": str, "cpu": [int, (None, int), bool], "asleep": [int, int],
    "split": [is_few, int, int, bool], "joined": [is_whole],
    "worker": str, "began us": (None, is_time), "ended us": (None, is_time),
    "at": str, "for operation": int, "target": (None, is_whole), "pushed": int, "call": str,
    "instead": (None, str),
    # memory changes; the bytes of an operation
    "contexts": [str], "when": [is_whole], "bytes": ([is_whole], float, str), "serial": [is_whole],
    "operation": [int], "live": [is_whole], "cached": [is_whole], "sites": {str: _OF_SITE},
}  # fmt: skip


@lru_cache(None)
def context_of(text: str) -> Context:
    """The context that `str` gave: "gpu(0)". MXNetError if it is none."""
    found = re.fullmatch(r"(\w+)\((\d+)\)", text)
    try:
        assert found is not None
        return Context(found[1], int(found[2]))
    except (AssertionError, ValueError) as problem:
        raise MXNetError(f"a trace names the context {text!r}; one is like 'gpu(0)'") from problem


class RecordedSites:
    """The sites of a file: equal numbers of a code object and offsets give the same site."""

    def __init__(self) -> None:
        self._codes: dict[int, RecordedCode] = {}
        self._sites: dict[tuple[int, int], Site] = {}

    def of(self, saved: list[int] | None, text: str) -> Site | None:
        """The site of (number of a code object, offset, line) and its text."""
        if saved is None:
            return None
        number, offset, line = saved
        site = self._sites.get((number, offset))
        if site is None:
            code = self._codes.setdefault(number, RecordedCode())
            code.lines[offset] = (line, text)
            site = self._sites[number, offset] = (code, offset)
        return site


class OwnReader:
    """Fills `trace` from the members of a file."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.sites = RecordedSites()
        self.change_sites = RecordedSites()  # their code objects are numbered apart
        self._threads: dict[int, str] = {}
        self._costs: dict[tuple[float, float], RecordedCost] = {}
        self._serials: dict[int, int] = {}  # one object for each number, to save memory
        self._last = [0, 0, 0, 0]

    def facts(self, facts: dict[str, Any]) -> None:
        """What stands in "otherData"."""
        check(facts, FORMS)
        for name in FACTS:
            setattr(self.trace, name, facts[name])
        sites = RecordedSites()
        self.trace.cpu.pauses += [
            Pause(begin_ns, end_ns, thread, sites.of(saved, text))
            for begin_ns, end_ns, thread, saved, text in facts["pauses"]
        ]
        self.trace.cpu.spans += [Span(*span) for span in facts.get("spans", ())]
        self.trace.notices += [
            Notice(token, kind, thread, operation, pushed, waits, sites.of(saved, text))
            for token, kind, thread, operation, pushed, waits, saved, text in facts["notices"]
        ]
        self.trace.copies += [
            Copy(when_ns, nbytes, sites.of(saved, text))
            for when_ns, nbytes, saved, text in facts["copies"]
        ]
        for role, serials in facts["roles"].items():
            self.trace.roles.update(dict.fromkeys(serials, role))

    def event(self, event: dict[str, Any]) -> None:
        """One element of "traceEvents"."""
        args = event.get("args", {})
        check(args, FORMS if event["ph"] != "C" else {})
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                self._threads[event["tid"]] = intern(args["name"])
        elif "number" in args:
            self._operation(event, args)
        elif event.get("cat") == "wait" and "pushed" in args:
            self._wait(event, args)

    def _ns(self, us: float | None) -> int:
        return 0 if us is None else self.trace.begin_ns + round(us * 1e3)

    def _numbers(self, serials: list[int]) -> tuple[int, ...]:
        known = self._serials
        return tuple([known.setdefault(serial, serial) for serial in serials])

    def _operation(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        trace = self.trace
        operation: Any = Operation()
        if "place" in args:
            operation = PlacedOperation(intern(args["place"]), args["rank"])
            operation.came_ns = self._ns(args["came us"])
        operation.number = args["number"]
        if operation.number != len(trace.operations) + 1:
            raise MXNetError(
                f"operation {operation.number} follows operation {len(trace.operations)}: the file "
                "is not as it was written"
            )
        operation.name = intern(event["name"])
        operation.ctx = context_of(args["context"])
        operation.lane = intern(args["lane"])
        operation.thread = intern(args["issued by"])
        operation.site = self.sites.of(args["site"], args["issued at"])
        operation.priority = args["priority"]
        operation.predicted_us = float(args["predicted us"])
        operation.reads = self._numbers(args["reads"])
        operation.writes = self._numbers(args["writes"])
        operation.failure = args.get("failure")
        operation.by = args.get("by", 0)
        cost = RecordedCost(_number(args["FLOPs"]), _number(args["bytes"]))
        operation.footprint = self._costs.setdefault(cost, cost)
        operation.pushed_ns = pushed_ns = self._ns(args["pushed us"])
        ready_ns = self._ns(args["ready us"])
        operation.ready_ns = pushed_ns if ready_ns == pushed_ns else ready_ns
        if event["ph"] == "X":
            operation.worker = self._threads[event["tid"]]
            began_ns = self._ns(event["ts"])
            operation.began_ns = pushed_ns if began_ns == pushed_ns else began_ns
            operation.ended_ns = began_ns + round(event["dur"] * 1e3)
        else:
            operation.worker = intern(args["worker"])
            operation.began_ns = self._ns(args["began us"])
            operation.ended_ns = self._ns(args["ended us"])
        if "cpu" in args:
            ns, delayed_ns, pushed = args["cpu"]
            # An older file does not tell sleeps apart: only functions of the program can block.
            rest = operation.run_ns if pushed and delayed_ns is not None else 0
            asleep = args.get("asleep", (0, rest))
            trace.cpu.times[operation.number] = CpuTime(ns, delayed_ns, pushed, *asleep)
        if "split" in args:
            trace.shared[operation.number] = SplitRecord(*args["split"])
        if "joined" in args:
            trace._joined[operation.number] = tuple(args["joined"])
        trace.operations.append(operation)
        trace.recording.append("recording" in args)

    def _wait(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        begin_ns = self._ns(event["ts"])
        self.trace.waits.append(
            Wait(
                intern(event["name"]), args["target"], args["for operation"], args["pushed"],
                self.sites.of(args["site"], args["at"]), self._threads[event["tid"]],
                begin_ns, begin_ns + round(event["dur"] * 1e3), args["call"], args["instead"],
            )
        )  # fmt: skip

    def finish(self) -> None:
        """Nothing refers to an operation that is not there."""
        n = len(self.trace.operations)
        for wait in self.trace.waits:
            if max(wait.operation, wait.pushed) > n:
                raise ValueError(f"a wait of {wait.thread} is for an operation that is not there")

    def changes(self, chunk: dict[str, Any]) -> None:
        """One element of "memoryChanges"; see `chrome`."""
        contexts = [context_of(text) for text in chunk["contexts"]]
        when = self._add(0, chunk["when"])
        serials = self._add(1, chunk["serial"])
        live, cached = iter(self._add(2, chunk["live"])), iter(self._add(3, chunk["cached"]))
        operations = iter(chunk["operation"])
        sites = {int(i): self.change_sites.of(*saved) for i, saved in chunk["sites"].items()}
        columns = zip(chunk["context"], when, chunk["bytes"], serials)
        for i, (context, when_ns, nbytes, serial) in enumerate(columns):
            made = nbytes > 0
            self.trace.memory.add(
                when_ns, contexts[context], nbytes, next(operations) if made else 0,
                serial, sites.get(i), next(live) if made else 0, next(cached) if made else 0,
            )  # fmt: skip

    def _add(self, column: int, steps: list[int]) -> list[int]:
        """The values of a column, whose steps go on from the element before."""
        values = list(accumulate(steps, initial=self._last[column]))
        self._last[column] = values[-1]
        return values[1:]


def _number(value: float | str) -> float:
    return float(value) if isinstance(value, str) else value
