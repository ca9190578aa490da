"""Traces that earlier versions saved, whose records were in the events that viewers show.

`convert` makes of such a file the tables that `trace_file` checks and reads. Times were
microseconds since the begin of the trace with three decimals, which are nanoseconds exactly. An
operation or a wait was an event, with its other columns in "args" (`RENAMED`); other records were
in "otherData", and memory changes in columns, most of them as steps from row to row. A warning
names what the file does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from d2lmini.base import MXNetError, callsite

#: Columns of operations and waits -> the names that they had.
RENAMED = {
    "thread": "issued by", "ctx": "context", "pushed_ns": "pushed us", "ready_ns": "ready us",
    "began_ns": "began us", "ended_ns": "ended us", "begin_ns": "began us", "end_ns": "ended us",
    "predicted_us": "predicted us", "flops": "FLOPs", "nbytes": "bytes",
    "operation": "for operation",
}  # fmt: skip

#: Longer than any operation; and what a file has for infinity.
_ALL_NS, _INFINITE = 1 << 60, 1e300


def convert(tree: dict[str, Any], tables: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The object of today's file, of which `tables` has the fields with their types."""
    facts, zero_ns = tree["otherData"], tree["otherData"]["begin_ns"]
    rows: dict[str, list[Any]] = {name: [] for name in tables}
    sites: dict[tuple[Any, ...], int] = {}
    threads: dict[int, str] = {}
    unknown = set() if "spans" in facts else {"when threads between operations did not compute"}

    def site_of(numbering: int, saved: list[int] | None, text: str) -> int:
        """The index of a line. Functions were numbered apart in the three parts of a file."""
        if saved is None:
            return -1
        function, offset, line = saved
        return sites.setdefault((3 * function + numbering, offset, line, text), len(sites))

    def add(table: str, args: dict[str, Any]) -> None:
        row = []
        for field, kind in tables[table].items():
            value = args[RENAMED.get(field, field)]
            if field.endswith("_ns"):
                value = 0 if value is None else zero_ns + round(value * 1e3)
            row.append(min(float(value), _INFINITE) if kind == "float" else value)
        rows[table].append(row)

    facts["recording"] = []
    for event in tree["traceEvents"]:
        name, args = event["name"], event.get("args", {})
        if name == "thread_name":
            threads[event["tid"]] = args["name"]
        elif event["ph"] == "X":
            begin_us, worker = event["ts"], threads[event["tid"]]
            args |= {"worker": worker, "began us": begin_us, "ended us": begin_us + event["dur"]}
        if "place" in args:
            raise MXNetError("a merged trace of several processes; save them one by one")
        if "issued by" in args:
            number, site = args["number"], site_of(0, args["site"], args["issued at"])
            if joined := args.get("joined"):  # these came before the operation, wherever issued
                args["reads"] = [serial for serial in args["reads"] if serial not in joined]
                unknown.add("which arrays some operations came to read after they were issued")
            add("operations", {"by": 0, "failure": None, **args, "name": name, "site": site})
            facts["recording"].append(int("recording" in args))
            if "cpu" in args:  # some files tell waits for Python's lock apart, or of no sleep
                ns, delayed_ns, pushed, *asleep = args["cpu"]
                known = pushed and delayed_ns is not None
                blocked_ns = sum(asleep or [_ALL_NS]) if known else 0
                rows["cpu"].append([number, ns, delayed_ns, pushed, blocked_ns])
            if "split" in args:
                rows["split"].append([number, *args["split"]])
        elif event.get("cat") == "wait" and "pushed" in args:
            site = site_of(0, args["site"], args["at"])
            add("waits", {**args, "kind": name, "issued by": args["worker"], "site": site})
    for table in ("pauses", "notices", "copies"):
        rows[table] = [[*others, site_of(1, line, text)] for *others, line, text in facts[table]]
    for *span, cause in facts.get("spans", ()):
        rows["spans"].append([*span, "blocked" if cause == "gil" else cause])
    facts["roles"] = {str(n): role for role, serials in facts["roles"].items() for n in serials}

    def column(name: str) -> Iterator[Any]:
        return (value for chunk in tree["memoryChanges"] for value in chunk[name])

    when, serials, live = map(accumulate, map(column, ("when", "serial", "live")))
    operations = column("operation")
    for chunk in tree["memoryChanges"]:
        changes = zip(chunk["context"], chunk["bytes"], when, serials)
        for i, (context, nbytes, when_ns, serial) in enumerate(changes):
            maker, after = (next(of, 0) if nbytes > 0 else 0 for of in (operations, live))
            site = site_of(2, *chunk["sites"].get(str(i), (None, "")))
            ctx = chunk["contexts"][context]
            rows["memory"].append([when_ns, ctx, nbytes, maker, serial, site, after])
    if unknown:
        missing = " and ".join(sorted(unknown))
        callsite.warn(f"an earlier version saved this trace, and it does not say {missing}")
    records: dict[str, Any] = {"sites": [list(site) for site in sites]}
    for table, fields in tables.items():
        records[table] = {field: [row[k] for row in rows[table]] for k, field in enumerate(fields)}
    return {**tree, "otherData": facts, "records": records}
