"""Traces in files: what `Trace.save` writes and `load` reads.

    trace.save("trace.json.gz")             # on the machine that trains
    trace = d2lmini.profiler.load("trace.json.gz")
    print(trace.account())                  # anywhere

A file has two parts. "traceEvents" is for ui.perfetto.dev and chrome://tracing, in the Trace Event
Format: every place (the CPU, a GPU, its link) is a process and every worker a thread of it; the
program's threads are a separate process, which shows their waits. "records" is for `load`: each
table of `TABLES` by columns, so the trace is the same trace again, to the nanosecond. The types in
the records' classes say what a column may hold (`_kinds`); a value is checked before it is used.

`foreign` reads the traces of PyTorch and JAX.

The format: "Trace Event Format", the Chromium authors; Perfetto's "Visualizing external trace
formats".
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from math import inf
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from d2lmini.base import MXNetError, callsite
from d2lmini.base.callsite import RecordedCode, Site
from d2lmini.context import Context
from d2lmini.device import files
from d2lmini.engine.operation import RecordedCost
from d2lmini.profiler import foreign
from d2lmini.profiler.earlier_file import convert
from d2lmini.profiler.evidence import CpuTime, OffCpu, Pause, Span
from d2lmini.profiler.memory import ROLES
from d2lmini.profiler.records import Change, Copy, Notice, Operation, SplitRecord, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: The tables of a file: the class of the records, and the trace's list of them, or its dictionary
#: by the number of the operation.
TABLES: dict[str, tuple[Any, Callable[[Trace], Any]]] = {
    "operations": (Operation, lambda trace: trace.operations),
    "waits": (Wait, lambda trace: trace.waits),
    "memory": (Change, lambda trace: trace.memory),
    "notices": (Notice, lambda trace: trace.notices),
    "copies": (Copy, lambda trace: trace.copies),
    "pauses": (Pause, lambda trace: trace.cpu.pauses),
    "spans": (Span, lambda trace: trace.cpu.spans),
    "cpu": (CpuTime, lambda trace: trace.cpu.times),
    "split": (SplitRecord, lambda trace: trace.shared),
}

#: Tables of which the trace has a dictionary.
BY_NUMBER = ("cpu", "split")

#: The process of the program's threads, for viewers.
PROGRAM = "program"

#: More threads, workers or pieces than any trace has; and what a file has for infinity.
_MANY, _INFINITE = 1 << 16, 1e300


# -- kinds of values -------------------------------------------------------------------------------


def is_integer(value: Any, least: int = -(1 << 62), most: int = 1 << 62) -> bool:
    """Is it an integer of 64 bits, and within these limits?"""
    return type(value) is int and least <= value <= most


def _is_count(value: Any) -> bool:
    return is_integer(value, 0, _MANY)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _values(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The test for a dictionary with such values."""
    return lambda value: isinstance(value, dict) and all(map(is_one, value.values()))


#: Attributes of a trace in "otherData", with tests of their values.
FACTS: dict[str, Callable[[Any], bool]] = {
    "begin_ns": is_integer, "left_ns": is_integer, "end_ns": is_integer, "thread": _is_text,
    "engine_kind": _is_text, "cores": _is_count,
    "workers": _values(_is_count), "lacks": _values(_is_text),
    "older": _values(_values(is_integer)),
}  # fmt: skip


class Kind(NamedTuple):
    """Values of one type: which values a file may have, and how they are written and read."""

    fits: Callable[[Any], bool]
    save: Callable[[Any], Any] | None = None
    load: Callable[[Any], Any] | None = None


@cache
def context_of(text: str) -> Context:
    """The context that `str` gave: "gpu(0)". ValueError if it is none."""
    found = re.fullmatch(r"(\w+)\((\d+)\)", text)
    if found is None:
        raise ValueError(f"{text!r} is no context; one is like 'gpu(0)'")
    return Context(found[1], int(found[2]))


#: The kind of a field's values, by the field's type. A site is an index of "sites", or -1.
KINDS = {
    "int": Kind(is_integer),
    "int | None": Kind(lambda value: value is None or is_integer(value)),
    "bool": Kind(lambda value: type(value) is bool),
    "float": Kind(
        lambda value: type(value) in (int, float) and abs(value) <= _INFINITE,
        lambda value: min(value, _INFINITE),  # JSON has no infinity
        lambda value: inf if value == _INFINITE else value,
    ),
    "str": Kind(_is_text, None, intern),
    "str | None": Kind(lambda value: value is None or _is_text(value)),
    "tuple[int, ...]": Kind(
        lambda value: type(value) is list and all(map(is_integer, value)), None, tuple
    ),
    "Context": Kind(_is_text, str, context_of),
    "Site | None": Kind(lambda value: is_integer(value, -1)),
}


@cache
def fields_of(table: str) -> dict[str, str]:
    """The columns of a table with their types: the fields of its class of records. The number of an
    operation is its place in the table; its footprint is there as two numbers.

    >>> fields_of("copies")
    {'when_ns': 'int', 'nbytes': 'int', 'site': 'Site | None'}
    """
    types = TABLES[table][0].__annotations__  # as text, or as the text in a ForwardRef
    fields = {name: getattr(kind, "__forward_arg__", kind) for name, kind in types.items()}
    if table == "operations":
        del fields["number"], fields["footprint"]
        fields |= {"flops": "float", "nbytes": "float"}
    return {"number": "int", **fields} if table in BY_NUMBER else fields


# -- writing ---------------------------------------------------------------------------------------


def save_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as JSON for ui.perfetto.dev and chrome://tracing, compressed if the name ends
    in .gz. `d2lmini.profiler.load` gives the same trace again; of a predicted trace without
    `recorded`. OSError if the system refuses."""
    sites: dict[Site, int] = {}
    of_site = Kind(any, lambda site: -1 if site is None else sites.setdefault(site, len(sites)))
    kinds = KINDS | {"Site | None": of_site}
    records: dict[str, Any] = {}
    for name, (_, held_by) in TABLES.items():
        held, columns = held_by(trace), records.setdefault(name, {})
        rows = list(held.values() if name in BY_NUMBER else held)
        for field, kind in fields_of(name).items():
            in_order = field == "number"  # of the keys, not of the rows
            column: Iterable[Any] = held if in_order else (getattr(row, field) for row in rows)
            change = kinds[kind].save
            columns[field] = list(column if change is None else map(change, column))
    codes: dict[Any, int] = {}
    records["sites"] = [
        (codes.setdefault(site[0], len(codes)), site[1], callsite.line_of(site),
         callsite.describe(site)) for site in sites
    ]  # fmt: skip
    facts = {name: getattr(trace, name) for name in FACTS}
    facts |= {"producer": "d2lmini", "roles": trace.roles, "recording": list(trace.recording)}
    tree = {
        "displayTimeUnit": "ms", "otherData": facts, "traceEvents": _events(trace),
        "records": records,
    }  # fmt: skip
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False) + "\n"
    packed = os.fspath(path).endswith(".gz")
    files.write(path, gzip.compress(text.encode(), mtime=0) if packed else text)


def _events(trace: Trace) -> list[dict[str, Any]]:
    """What viewers show; the names of processes and threads come first."""
    names: list[dict[str, Any]] = []
    pids: dict[tuple[str, ...], int] = {}
    tids: dict[tuple[str, ...], int] = {}
    describe = cache(callsite.describe)

    @cache
    def track(place: str, thread: str) -> dict[str, int]:
        """The process and the thread of an event, which are named on their first use."""
        for what, key, numbers in (
            ("process_name", (place,), pids), ("thread_name", (place, thread), tids)
        ):  # fmt: skip
            if key not in numbers:
                numbers[key] = len(numbers) + 1
                ids = {"pid": pids[place,], "tid": tids.get((place, thread), 0)}
                names.append({"name": what, "ph": "M", **ids, "args": {"name": key[-1]}})
        return {"pid": pids[place,], "tid": tids[place, thread]}

    def slice_of(name: str, cat: str, begin_ns: int, end_ns: int, args: Any) -> dict[str, Any]:
        begin_us, dur = (begin_ns - trace.begin_ns) / 1e3, (end_ns - begin_ns) / 1e3
        return {"name": name, "cat": cat, "ph": "X", "ts": begin_us, "dur": dur, "args": args}

    track(PROGRAM, "MainThread")
    events = []
    for x in trace.operations:
        args = {"number": x.number, "issued at": describe(x.site), "failure": x.failure or "none"}
        if x.ran:
            cat = "copy" if x.is_copy else "compute"
            event = slice_of(x.name, cat, x.began_ns, x.ended_ns, args) | track(x.place, x.worker)
        else:  # an instant
            event = slice_of(x.name, "skipped", x.ended_ns or x.pushed_ns, 0, args)
            event |= {"ph": "i", "s": "t", **track(PROGRAM, x.thread)}
            del event["dur"]
        events.append(event)
    for wait in trace.waits:
        args = {"at": describe(wait.site)}
        event = slice_of(wait.kind, "wait", wait.begin_ns, wait.end_ns, args)
        events.append(event | track(PROGRAM, wait.thread))
    return names + events


# -- reading ---------------------------------------------------------------------------------------


def read_trace(path: str | os.PathLike[str], trace: Trace) -> Trace:
    """See `tracing.load`; `trace` is an empty one, which is filled."""
    file = foreign.find_file(path)
    tree = _read_json(file)
    facts = tree.get("otherData")
    own = isinstance(facts, dict) and facts.get("producer") == "d2lmini"
    try:
        if own and "records" not in tree:
            tree = convert(tree, {table: fields_of(table) for table in TABLES})
        return _read_own(tree, trace) if own else foreign.read(file, tree, trace)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        what = problem if isinstance(problem, ValueError) else f"{type(problem).__name__} {problem}"
        text = f"{file}: {str(what)[:200]}: the file is not as it was written"
        raise MXNetError(text) from problem
    except MXNetError as problem:
        text = str(problem)
        raise MXNetError(text if file in text else f"{file}: {text}") from problem


def _read_json(path: str) -> dict[str, Any]:
    """The object in a file. MXNetError if the file is not JSON, or is cut off."""
    content = Path(path).read_bytes()
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        tree = json.loads(content.decode(), parse_constant=_refuse)
        if not isinstance(tree, dict):
            raise ValueError("expected an object")
    except (ValueError, EOFError, zlib.error, OSError, RecursionError) as problem:
        raise MXNetError(f"{path} is not a whole JSON file: {problem}") from problem
    return tree


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _read_own(tree: dict[str, Any], trace: Trace) -> Trace:
    facts, tables = tree["otherData"], tree["records"]
    for name, fits in FACTS.items():
        if not fits(facts[name]):
            raise ValueError(f"otherData: {name} is {repr(facts[name])[:60]}, which it cannot be")
        setattr(trace, name, facts[name])
    trace.recording = bytearray(facts["recording"])
    trace.roles = {int(serial): role for serial, role in facts["roles"].items()}
    if not set(ROLES).issuperset(trace.roles.values()):
        raise ValueError(f"otherData: a role that is none of {', '.join(ROLES)}")
    sites = _read_sites(tables["sites"])
    kinds = KINDS | {"Site | None": KINDS["Site | None"]._replace(load=sites.__getitem__)}
    # The largest values of fields that name or count other records.
    most = dict.fromkeys(("number", "operation", "pushed", "by"), len(tables["operations"]["name"]))
    most["pieces"] = _MANY
    cost_of = cache(RecordedCost)
    for name, (record, held_by) in TABLES.items():
        held, fields = held_by(trace), fields_of(name)
        rows = _rows_of(name, fields, tables[name], kinds, most)
        for number, values in enumerate(rows, start=1):
            if name in BY_NUMBER:
                held[values[0]] = record(*values[1:])
            elif record is Operation:
                *others, flops, nbytes = values
                of_row = dict(zip(fields, others), number=number, footprint=cost_of(flops, nbytes))
                held.append(Operation(**of_row))
            else:
                held.append(record(*values))
    for operation in trace.operations:
        if operation.ran and operation.ended_ns < operation.began_ns:
            raise ValueError(f"operations: number {operation.number} ended before it began")
    if not {span.cause for span in trace.cpu.spans} <= set(OffCpu._fields):
        raise ValueError(f"spans: a cause that is none of {', '.join(OffCpu._fields)}")
    return trace


def _read_sites(rows: list[Any]) -> list[Site | None]:
    """The lines; the last is None, for the index -1. Sites of one function share their code."""
    codes: dict[int, RecordedCode] = defaultdict(RecordedCode)
    sites: list[Site | None] = []
    for number, offset, line, text in rows:
        if not (all(map(is_integer, (number, offset, line))) and _is_text(text)):
            raise ValueError(f"sites: {[number, offset, line, text]} is no line")
        codes[number].lines[offset] = line, text
        sites.append((codes[number], offset))
    return [*sites, None]


def _rows_of(
    table: str, fields: dict[str, str], columns: Any, kinds: dict[str, Kind], most: dict[str, int]
) -> Iterator[tuple[Any, ...]]:
    """The values of a table's records. ValueError with the place of a value that cannot be."""
    loaded: list[Iterable[Any]] = []
    for field, kind in fields.items():
        fits, _, load = kinds[kind]
        if kind == "int" and field in most:
            fits = partial(is_integer, least=0, most=most[field])
        for i, value in enumerate(columns[field]):
            if not fits(value):
                raise ValueError(f"{table}: {field}[{i}] is {repr(value)[:60]}, which it cannot be")
        loaded.append(columns[field] if load is None else map(load, columns[field]))
    return zip(*loaded, strict=True)
