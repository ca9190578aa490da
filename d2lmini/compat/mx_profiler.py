"""MXNet's own profiler: configure it, run it, look at a table or a file.

    from mxnet import profiler
    profiler.set_config(profile_all=True, aggregate_stats=True, filename="profile.json")
    profiler.set_state("run")
    train(net)
    profiler.set_state("stop")
    print(profiler.dumps())          # a table: counts and times
    profiler.dump()                  # the file, for ui.perfetto.dev

It records a `Trace`; `with d2lmini.profile() as trace` is the shorter way to a trace and to its
analyses. The user's own tasks, frames, events, counters and markers are recorded beside the
operations (`mx_profiler_objects`).

After MXNet 1.9's `mx.profiler`, with a table of the same form. Its sections are the operations
("operator"), the waits ("Wait"; MXNet has the calls of its C interface there), the user's domains
and "Device Storage".
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from d2lmini import engine
from d2lmini.base import MXNetError, instrument
from d2lmini.profiler.chrome import Mark, save
from d2lmini.profiler.tracing import Trace

#: Options and their defaults. The file is written by `dump` alone, and there are no servers: the
#: options for these are accepted.
OPTIONS = {
    "profile_all": False, "profile_symbolic": True, "profile_imperative": True,
    "profile_memory": True, "profile_api": True, "filename": "profile.json",
    "continuous_dump": True, "dump_period": 1.0, "aggregate_stats": False,
    "profile_process": "worker",
}  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """A row of the table: milliseconds, or kB; for a counter the total is its last value."""

    count: int
    total: float
    min: float
    max: float
    avg: float


Sections = dict[str, dict[str, Figures]]


class _Profiler:
    """The state of the process's profiler: `trace` of all its runs, `marks` beside it, and `since`,
    the lengths of `lists` at the reset."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = dict(OPTIONS)
        self.trace: Trace | None = None
        self.marks: list[Mark] = []
        self.since = [0, 0, 0, 0]
        self.running = False
        self.paused = False

    @property
    def records(self) -> bool:
        """True if the profiler is recording now."""
        return self.running and not self.paused

    def lists(self) -> list[Sequence[Any]]:
        """Operations, waits, changes of memory, and marks."""
        trace = self.trace
        return [trace.operations, trace.waits, trace.memory, self.marks] if trace else [[]] * 4

    def run(self) -> None:
        """Begin to record, or go on after a stop."""
        self.running, self.paused = True, False
        if self.trace is None:
            self.trace = Trace()
            self.trace.begin()
        else:
            self.trace._closing = False
            self.trace.cpu.begin()
            instrument.add(self.trace)

    def stop(self) -> None:
        """Wait for pending operations, which are still recorded, and end."""
        assert self.trace is not None
        self.trace._closing = True
        engine.current.wait_idle("profiler.stop")
        self.running = False
        self.trace.finish()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        if self.trace is not None:
            instrument.remove(self.trace)
            if self.records:
                instrument.add(self.trace)


profiler = _Profiler()


def set_config(**kwargs: Any) -> None:
    """Set options, before the run; see OPTIONS. MXNetError for an unknown option."""
    for name in kwargs:
        if name not in OPTIONS:
            known = "\n".join(f"{key}: default {value}" for key, value in OPTIONS.items())
            raise MXNetError(f"Cannot find argument '{name}', Possible Arguments:\n{known}")
    _check_process(kwargs.get("profile_process", "worker"))
    profiler.options.update(kwargs)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Begin or go on ("run"), or end ("stop") recording; a stop waits for pending operations. The
    table and the file have all runs. KeyError for another state."""
    _check_process(profile_process)
    if state not in ("stop", "run"):
        raise KeyError(state)
    if state == "run" and not profiler.running:
        profiler.run()
    elif state == "stop" and profiler.running:
        profiler.stop()


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`."""
    _check_process(profile_process)
    profiler.pause(True)


def resume(profile_process: str = "worker") -> None:
    """Continue after `pause`."""
    _check_process(profile_process)
    profiler.pause(False)


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the recording to the file, in the Trace Event Format; `finished` ends the run.
    MXNetError if there was no run."""
    _check_process(profile_process)
    if profiler.trace is None:
        raise MXNetError("Profiler hasn't been run. Config and start profiler first")
    if finished:
        set_state("stop")
    save(profiler.trace, str(profiler.options["filename"]), profiler.marks)


def dumps(
    reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False
) -> str:
    """A summary of the recording: count, total, min, max and mean of each name in each section.

    format: "table" or "json"; sort_by: total, avg, min, max or count; reset: the next table begins
    here. Empty unless aggregate_stats was set. AssertionError for another format or sort_by.
    """
    _check_choice("format", format, ("table", "json"))
    _check_choice("sort_by", sort_by, ("total", "avg", "min", "max", "count"))
    if not profiler.options["aggregate_stats"]:
        return ""

    def sort(rows: dict[str, Figures]) -> dict[str, Figures]:
        by = lambda row: getattr(row[1], sort_by)  # noqa: E731
        return dict(sorted(rows.items(), key=by, reverse=not ascending))

    times = {section: sort(rows) for section, rows in sorted(_times().items())}
    memory = sort(_memory())
    if reset:
        profiler.since = [len(records) for records in profiler.lists()]
    return _as_json(times, memory) if format == "json" else _as_table(times, memory)


def set_kvstore_handle(handle: Any) -> None:
    """Accepted, and not used: KVStores have no server processes that could be profiled."""


def _check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    known = ", ".join(map(repr, choices))
    assert given in choices, f"Invalid value provided for {what}: {given}. Support: {known}"


def _check_process(name: str) -> None:
    if name == "server":
        raise MXNetError("profile_process='server': d2lmini's KVStore has no server processes")
    if name != "worker":
        raise KeyError(name)


# -- the table -------------------------------------------------------------------------------------


def _figures(values: Iterable[float]) -> Figures:
    known = list(values)
    total = sum(known)
    return Figures(len(known), total, min(known), max(known), total / len(known))


def _recent(place: int, *options: str) -> Sequence[Any]:
    """The records of one of `lists` since the reset, if one of the options asks for them."""
    wanted = any(profiler.options[name] for name in ("profile_all", *options))
    return profiler.lists()[place][profiler.since[place] :] if wanted else []


def _times() -> Sections:
    """Times by section and name, in milliseconds; a counter's values in thousands."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for operation in _recent(0, "profile_imperative", "profile_symbolic"):
        if operation.ran:
            found["operator"][operation.name].append(operation.run_ns / 1e6)
    for wait in _recent(1, "profile_api"):
        found["Wait"][wait.kind].append(1e3 * wait.seconds)
    last = {}
    for mark in profiler.marks[profiler.since[3] :]:
        rows = found[mark.domain]
        if mark.kind == "counter":
            last[mark.domain, mark.name] = mark.value / 1e3
            rows[mark.name].append(mark.value / 1e3)
        elif mark.kind != "marker":
            rows[mark.name].append((mark.end_ns - mark.begin_ns) / 1e6)
    figures = {
        section: {name: _figures(values) for name, values in rows.items()}
        for section, rows in found.items()
    }
    for (domain, name), value in last.items():
        figures[domain][name] = replace(figures[domain][name], total=value)
    return figures


def _memory() -> dict[str, Figures]:
    """Memory in use by device, in kB, at each change."""
    used: dict[Any, list[int]] = defaultdict(lambda: [0])
    for change in _recent(2, "profile_memory"):
        row = used[change.ctx]
        # At an allocation the trace has the total in use.
        row.append(change.live if change.nbytes > 0 else row[-1] + change.nbytes)
    return {
        f"Memory: {ctx.device_type}/{ctx.device_id}": _figures(max(n, 0) / 1e3 for n in row[1:])
        for ctx, row in used.items()
    }


_TIME = ("Total Count", "Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)")
_USE = ("Total Count", "Min Use  (kB)", "Max Use  (kB)", "Avg Use  (kB)")


def _as_table(times: Sections, memory: dict[str, Figures]) -> str:
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    if memory:
        lines += _section("Device Storage", _USE, memory)
    for section, figures in times.items():
        lines += _section(section, _TIME, figures)
    return "\n".join(lines) + "\n"


def _section(title: str, head: tuple[str, ...], rows: dict[str, Figures]) -> list[str]:
    lines = [title, "=================", _line("Name", head)]
    lines.append(_line("----", ["-" * len(word) for word in head]))
    for name, row in rows.items():
        count, *values = astuple(row)
        shown = values if head is _TIME else values[1:]
        lines.append(_line(name, [str(count), *(f"{value:.4f}" for value in shown)]))
    return [*lines, ""]


def _line(name: str, words: Iterable[str]) -> str:
    first, *others = words
    return f"{name:<25}{first:>16}" + "".join(f" {word:>16}" for word in others)


def _as_json(times: Sections, memory: dict[str, Figures]) -> str:
    def named(rows: dict[str, Figures], without: str = "") -> dict[str, dict[str, float]]:
        return {
            name: {k.title(): round(v, 4) for k, v in asdict(row).items() if k != without}
            for name, row in rows.items()
        }

    found = {
        "Time": {section: named(rows) for section, rows in times.items()},
        "Memory": {"Device Storage": named(memory, "total")} if memory else {},
        "Unit": {"Time": "ms", "Memory": "kB"},
    }
    return json.dumps(found, indent=4)


# -- older names -----------------------------------------------------------------------------------


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Deprecated, as in MXNet: `set_config`."""
    _deprecated("profiler_set_config", "set_config")
    set_config(**{f"profile_{mode}": True}, filename=filename)


def profiler_set_state(state: str = "stop") -> None:
    """Deprecated, as in MXNet: `set_state`."""
    _deprecated("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """Deprecated, as in MXNet: `dump`."""
    _deprecated("dump_profile", "dump")
    dump(True)


def _deprecated(old: str, new: str) -> None:
    text = f"profiler.{old}() is deprecated. Please use profiler.{new}() instead"
    warnings.warn(text, stacklevel=3)
