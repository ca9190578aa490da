"""MXNet's own profiler: configure it, run it, look at a table or a file.

    from mxnet import profiler
    profiler.set_config(profile_all=True, aggregate_stats=True, filename="profile.json")
    profiler.set_state("run")
    train(net)
    profiler.set_state("stop")
    print(profiler.dumps())          # a table: counts and times
    profiler.dump()                  # the file, for ui.perfetto.dev

It records a `Trace`: `with d2lmini.profile() as trace` is the shorter way to a trace, to this table
(`trace.summary()`), and to its analyses.
"""

from __future__ import annotations

from typing import Any

from d2lmini import engine
from d2lmini.base import MXNetError, instrument
from d2lmini.profiler.trace_file import save_trace
from d2lmini.profiler.tracing import Trace

#: MXNet's options. Everything is recorded always, and the file is written by `dump` alone: of the
#: options only these matter.
options: dict[str, Any] = {"filename": "profile.json", "aggregate_stats": False}
_OTHERS = """
    profile_all profile_symbolic profile_imperative profile_memory profile_api continuous_dump
    dump_period profile_process""".split()


class _State:
    """The trace of the last run, None before the first; whether it is recording."""

    trace: Trace | None = None
    running = False


def set_config(**kwargs: Any) -> None:
    """Set options, before the run. MXNetError for an unknown option."""
    for name in kwargs:
        if name not in options and name not in _OTHERS:
            known = ", ".join([*options, *_OTHERS])
            raise MXNetError(f"Cannot find argument '{name}', Possible Arguments: {known}")
    options.update(kwargs)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Begin a recording ("run"), or end it ("stop"), which waits for pending operations. KeyError
    for another state."""
    if state not in ("stop", "run"):
        raise KeyError(state)
    if state == "run" and not _State.running:
        _State.trace = Trace()
        _State.trace.begin()
    elif state == "stop" and _State.running:
        assert _State.trace is not None
        _State.trace._closing = True
        engine.current.wait_idle("profiler.stop")
        _State.trace.finish()
    _State.running = state == "run"


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`."""
    if _State.running:
        instrument.remove(_State.trace)  # type: ignore[arg-type]


def resume(profile_process: str = "worker") -> None:
    """Continue after `pause`."""
    if _State.running and _State.trace not in instrument.listeners:
        instrument.add(_State.trace)  # type: ignore[arg-type]


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the recording to the file, in the Trace Event Format; `finished` ends the run.
    MXNetError if there was no run."""
    if _State.trace is None:
        raise MXNetError("Profiler hasn't been run. Config and start profiler first")
    if finished:
        set_state("stop")
    save_trace(_State.trace, str(options["filename"]))


def dumps(reset: bool = False) -> str:
    """The table of the recording's operations, "" unless aggregate_stats was set; `reset` forgets
    the recording."""
    if _State.trace is None or not options["aggregate_stats"]:
        return ""
    table = str(_State.trace.summary())
    if reset and not _State.running:
        _State.trace = None
    return table
