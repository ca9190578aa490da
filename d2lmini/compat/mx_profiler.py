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
and "Device Storage". MXNet 1.9 has no `start`, `stop` and `scope`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from d2lmini import engine, instrument
from d2lmini.base import MXNetError
from d2lmini.profiler.chrome import Mark, save
from d2lmini.profiler.tracing import Trace

#: Options: default value, and purpose.
OPTIONS: dict[str, tuple[Any, str]] = {
    "profile_all": (False, "record everything"),
    "profile_symbolic": (True, "record operations; here as good as profile_imperative"),
    "profile_imperative": (True, "record operations"),
    "profile_memory": (True, "record memory"),
    "profile_api": (True, "record the waits of the program"),
    "filename": ("profile.json", "the file that dump writes"),
    "continuous_dump": (True, "accepted; the file is written by dump alone"),
    "dump_period": (1.0, "accepted, likewise"),
    "aggregate_stats": (False, "let dumps give a table"),
    "profile_process": ("worker", "accepted; there are no servers"),
}
STATES = ("stop", "run")
PROCESSES = ("worker", "server")
SORTS = ("total", "avg", "min", "max", "count")


@dataclass(frozen=True)
class Figures:
    """A row of the table: milliseconds, or kB; for a counter the total is its last value."""

    count: int
    total: float
    min: float
    max: float
    avg: float


class _Profiler:
    """The state of the process's profiler: `trace` of the present or last run, `marks` beside it,
    and `since`, the numbers of operations, waits, memory changes and marks before the reset."""

    def __init__(self) -> None:
        self.options = {name: value for name, (value, _) in OPTIONS.items()}
        self.trace: Trace | None = None
        self.marks: list[Mark] = []
        self.since = 0, 0, 0, 0
        self.running = False
        self.paused = False

    @property
    def records(self) -> bool:
        """True if the profiler is recording now."""
        return self.running and not self.paused

    def listen(self, records: bool) -> None:
        if self.trace is not None:
            instrument.remove(self.trace)
            if records:
                instrument.add(self.trace)


profiler = _Profiler()


def set_config(**kwargs: Any) -> None:
    """Set options, before the run; see OPTIONS. MXNetError for an unknown option."""
    for name in kwargs:
        if name not in OPTIONS:
            known = "\n".join(f"{key}: {what}" for key, (_, what) in OPTIONS.items())
            raise MXNetError(f"Cannot find argument '{name}', Possible Arguments:\n{known}")
    if kwargs.get("profile_process", "worker") not in PROCESSES:
        raise MXNetError(f"profile_process={kwargs['profile_process']!r}: not one of {PROCESSES}")
    profiler.options.update(kwargs)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Begin ("run") or end ("stop") recording; a stop waits for pending operations. KeyError for
    another state."""
    _check_process(profile_process)
    if state not in STATES:
        raise KeyError(state)
    if state == "run" and not profiler.running:
        profiler.trace, profiler.marks, profiler.since = Trace(), [], (0, 0, 0, 0)
        profiler.running, profiler.paused = True, False
        profiler.trace.begin()
    elif state == "stop" and profiler.running:
        assert profiler.trace is not None
        profiler.trace._closing = True
        engine.current.wait_idle("profiler.stop")
        profiler.running = False
        profiler.trace.finish()


def start(profile_process: str = "worker") -> None:
    """set_state("run")."""
    set_state("run", profile_process)


def stop(profile_process: str = "worker") -> None:
    """set_state("stop")."""
    set_state("stop", profile_process)


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`."""
    _check_process(profile_process)
    profiler.paused = True
    profiler.listen(False)


def resume(profile_process: str = "worker") -> None:
    """Continue after `pause`."""
    _check_process(profile_process)
    profiler.paused = False
    profiler.listen(profiler.running)


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
    assert format in ("table", "json"), (
        f"Invalid value provided for format: {format}. Support: 'table', 'json'"
    )
    assert sort_by in SORTS, (
        f"Invalid value provided for sort_by: {sort_by}. "
        "Support: 'total', 'avg', 'min', 'max', 'count'"
    )
    if not profiler.options["aggregate_stats"]:
        return ""
    times = {
        section: _sorted(rows, sort_by, ascending) for section, rows in sorted(_times().items())
    }
    memory = _sorted(_memory(), sort_by, ascending)
    if reset:
        _reset()
    return _as_json(times, memory) if format == "json" else _as_table(times, memory)


def _check_process(name: str) -> None:
    if name not in PROCESSES:
        raise KeyError(name)
    if name == "server":
        raise MXNetError("profile_process='server': d2lmini's KVStore has no server processes")


def _reset() -> None:
    """Restart the table; the file will still have everything."""
    trace = profiler.trace
    if trace is not None:
        n, waits, changes = len(trace.operations), len(trace.waits), len(trace.memory)
        profiler.since = n, waits, changes, len(profiler.marks)


# -- the table -------------------------------------------------------------------------------------


def _figures(values: Iterable[float]) -> Figures:
    known = list(values)
    total = sum(known)
    return Figures(len(known), total, min(known), max(known), total / len(known))


def _times() -> dict[str, dict[str, Figures]]:
    """Times by section and name, in milliseconds; a counter's values in thousands."""
    found: dict[str, dict[str, list[float]]] = {}

    def add(section: str, name: str, value: float) -> None:
        found.setdefault(section, {}).setdefault(name, []).append(value)

    options, trace, since = profiler.options, profiler.trace, profiler.since
    marks = profiler.marks[since[3] :]
    everything = options["profile_all"]
    if trace is not None:
        if everything or options["profile_imperative"] or options["profile_symbolic"]:
            for operation in trace.operations[since[0] :]:
                if operation.ran:
                    add("operator", operation.name, operation.run_ns / 1e6)
        if everything or options["profile_api"]:
            for wait in trace.waits[since[1] :]:
                add("Wait", wait.kind, 1e3 * wait.seconds)
    for mark in marks:
        if mark.kind == "marker":
            found.setdefault(mark.domain, {})
        elif mark.kind == "counter":
            add(mark.domain, mark.name, mark.value / 1e3)
        else:
            add(mark.domain, mark.name, (mark.end_ns - mark.begin_ns) / 1e6)
    figures = {
        section: {name: _figures(values) for name, values in rows.items()}
        for section, rows in found.items()
    }
    for mark in marks:
        if mark.kind == "counter":
            row = figures[mark.domain][mark.name]
            figures[mark.domain][mark.name] = replace(row, total=mark.value / 1e3)
    return figures


def _memory() -> dict[str, Figures]:
    """Memory in use by device, in kB, at each change."""
    options, trace = profiler.options, profiler.trace
    if trace is None or not (options["profile_all"] or options["profile_memory"]):
        return {}
    used: dict[Any, list[int]] = {}
    for change in trace.memory[profiler.since[2] :]:
        row = used.setdefault(change.ctx, [])
        # At an allocation the trace has the total in use.
        row.append(change.live if change.nbytes > 0 else (row[-1] if row else 0) + change.nbytes)
    return {
        f"Memory: {ctx.device_type}/{ctx.device_id}": _figures(max(n, 0) / 1e3 for n in row)
        for ctx, row in used.items()
    }


def _sorted(rows: dict[str, Figures], by: str, ascending: bool) -> dict[str, Figures]:
    return dict(sorted(rows.items(), key=lambda row: getattr(row[1], by), reverse=not ascending))


_TIME = ("Total Count", "Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)")
_USE = ("Total Count", "Min Use  (kB)", "Max Use  (kB)", "Avg Use  (kB)")


def _as_table(times: dict[str, dict[str, Figures]], memory: dict[str, Figures]) -> str:
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    if memory:
        rows = {name: (row.count, row.min, row.max, row.avg) for name, row in memory.items()}
        lines += _section("Device Storage", _USE, rows)
    for section, figures in times.items():
        lines += _section(section, _TIME, {name: astuple(row) for name, row in figures.items()})
    return "\n".join(lines) + "\n"


def _section(title: str, head: tuple[str, ...], rows: Mapping[str, tuple[float, ...]]) -> list[str]:
    lines = [title, "=================", _line("Name", head)]
    lines.append(_line("----", ["-" * len(word) for word in head]))
    for name, (count, *values) in rows.items():
        lines.append(_line(name, [str(count), *(f"{value:.4f}" for value in values)]))
    return [*lines, ""]


def _line(name: str, words: Iterable[str]) -> str:
    first, *others = words
    return f"{name:<25}{first:>16}" + "".join(f" {word:>16}" for word in others)


def _as_json(times: dict[str, dict[str, Figures]], memory: dict[str, Figures]) -> str:
    def named(row: Figures, *keys: str) -> dict[str, float]:
        return {key.title(): round(getattr(row, key), 4) for key in keys}

    sections = {
        section: {
            name: named(row, "count", "total", "min", "max", "avg") for name, row in rows.items()
        }
        for section, rows in times.items()
    }
    used = {name: named(row, "count", "min", "max", "avg") for name, row in memory.items()}
    found = {
        "Time": sections,
        "Memory": {"Device Storage": used} if used else {},
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
