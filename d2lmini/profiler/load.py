"""A trace from a file: of this library, of PyTorch, or of JAX.

    trace.save("t.json.gz")                 # on the machine that trains
    trace = d2lmini.profiler.load("t.json.gz")
    print(trace.account())                  # anywhere

A trace of this library is the same trace again: each analysis gives the same result, to the bit.
`profiler.foreign` reads the traces of other libraries and says what they do not show.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from sys import intern
from typing import Any, NoReturn

from d2lmini.base import MXNetError
from d2lmini.engine.operation import RecordedCost
from d2lmini.profiler import columns
from d2lmini.profiler.columns import FORMS, REAL, Columns, Sites, check, context_of
from d2lmini.profiler.evidence import Span
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.tracing import Trace


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `Trace.save` wrote (MXNet's `profiler.dump` too), or one of PyTorch's or
    JAX's profiler (the file, or its log directory); JSON, compressed or not. MXNetError, with the
    place in the file, if it is none of these or damaged; OSError if it cannot be read."""
    from d2lmini.profiler.foreign import find_file, read_foreign

    file = find_file(path)
    tree = _read_json(file)
    place = ""

    def members() -> Iterator[tuple[str, Any]]:
        nonlocal place
        for key in sorted(tree, key=lambda key: key != "otherData"):  # the facts come first
            value = tree[key]
            for i, one in enumerate(value if isinstance(value, list) else [value]):
                place = f"{key}[{i}]: "
                yield key, one
        place = ""

    facts = tree.get("otherData")
    own = isinstance(facts, dict) and facts.get("producer") == "d2lmini"
    try:
        return _read_own(members()) if own else read_foreign(file, members())
    except (LookupError, TypeError, ValueError, StopIteration) as problem:
        what = problem if isinstance(problem, ValueError) else f"{type(problem).__name__} {problem}"
        raise MXNetError(f"{file}: {place}{what}: the file is not as it was written") from problem
    except MXNetError as problem:
        text = str(problem)
        raise MXNetError(text if file in text else f"{file}: {place}{text}") from problem


def _read_json(path: str) -> dict[str, Any]:
    """The object in a file. MXNetError if the file is not JSON, or is cut off; OSError if it cannot
    be read."""
    content = Path(path).read_bytes()
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        tree = json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, EOFError, zlib.error, OSError, RecursionError) as problem:
        raise MXNetError(f"{path} is not a whole JSON file: {problem}") from problem
    if not isinstance(tree, dict):
        raise MXNetError(f"{path} is not a whole JSON file: expected an object")
    return tree


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


# -- our own traces --------------------------------------------------------------------------------


def _read_own(members: Iterator[tuple[str, Any]]) -> Trace:
    reader = _OwnReader(next(members)[1])
    read = {"traceEvents": reader.event, "memoryChanges": reader.changes}
    for key, value in members:
        if key in read:
            check(value, FORMS)
            read[key](value)
    trace = reader.trace
    for wait in trace.waits:
        if max(wait.operation, wait.pushed) > len(trace.operations):
            raise ValueError(f"a wait of {wait.thread} is for an operation that is not there")
    return trace


class _OwnReader:
    """Fills `trace` from the members of a file."""

    def __init__(self, facts: dict[str, Any]):
        """`facts`: what stands in "otherData"."""
        check(facts, FORMS)
        trace = self.trace = Trace()
        for name in columns.FACTS:
            setattr(trace, name, facts[name])
        sites = Sites()
        for name, (records, _, kind) in columns.OUTSIDE.items():
            records(trace).extend(
                kind(*fields, sites.load(saved, text)) for *fields, saved, text in facts[name]
            )
        for thread, begin_ns, end_ns, cause in facts.get("spans", ()):
            known = "blocked" if cause == "gil" else cause  # which older files told apart
            trace.cpu.spans.append(Span(thread, begin_ns, end_ns, known))
        for role, serials in facts["roles"].items():
            trace.roles.update(dict.fromkeys(serials, role))
        self.sites, self.change_sites = Sites(), Sites()  # their code objects are numbered apart
        self._threads: dict[int, str] = {}
        self._costs: dict[tuple[float, float], RecordedCost] = {}
        self._last = [0, 0, 0, 0]

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
            begin_ns, end_ns = self._span(event)
            site, thread = self.sites.load(args["site"], args["at"]), self._threads[event["tid"]]
            fields = self._fields(args, columns.WAIT)
            self.trace.waits.append(
                Wait(intern(event["name"]), site=site, thread=thread, begin_ns=begin_ns,
                     end_ns=end_ns, **fields)
            )  # fmt: skip

    def _fields(self, args: dict[str, Any], of: Columns) -> dict[str, Any]:
        zero = self.trace.begin_ns
        return {name: kind.load(args[key], zero) for key, (name, kind) in of.items()}

    def _span(self, event: dict[str, Any]) -> tuple[int, int]:
        begin_ns = columns.TIME.load(event["ts"], self.trace.begin_ns)
        return begin_ns, begin_ns + round(event["dur"] * 1e3)

    def _operation(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        trace = self.trace
        if "place" in args:
            raise ValueError("a merged trace of several ranks, which earlier versions wrote")
        operation = Operation()
        fields = self._fields(args, columns.OPERATION)
        if event["ph"] == "X":
            fields["worker"] = self._threads[event["tid"]]
            fields["began_ns"], fields["ended_ns"] = self._span(event)
        else:
            fields |= self._fields(args, columns.NOT_RUN)
        for name, value in fields.items():
            setattr(operation, name, value)
        number = operation.number
        if number != len(trace.operations) + 1:
            raise ValueError(f"operation {number} follows operation {len(trace.operations)}")
        operation.name = intern(event["name"])
        operation.site = self.sites.load(args["site"], args["issued at"])
        operation.failure, operation.by = args.get("failure"), args.get("by", 0)
        cost = RecordedCost(REAL.load(args["FLOPs"], 0), REAL.load(args["bytes"], 0))
        operation.footprint = self._costs.setdefault(cost, cost)
        for key, (known, _, kind) in columns.BY_NUMBER.items():
            if key in args:
                known(trace)[number] = kind(*args[key])
        trace.operations.append(operation)
        trace.recording.append("recording" in args)

    def changes(self, chunk: dict[str, Any]) -> None:
        """One element of "memoryChanges"; see `chrome`."""
        contexts = [context_of(text) for text in chunk["contexts"]]
        when = self._add(0, chunk["when"])
        serials = self._add(1, chunk["serial"])
        live, cached = iter(self._add(2, chunk["live"])), iter(self._add(3, chunk["cached"]))
        operations = iter(chunk["operation"])
        sites = {int(i): self.change_sites.load(*saved) for i, saved in chunk["sites"].items()}
        rows = zip(chunk["context"], when, chunk["bytes"], serials)
        for i, (context, when_ns, nbytes, serial) in enumerate(rows):
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
