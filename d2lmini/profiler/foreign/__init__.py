"""Traces of other libraries, as traces of this one.

    trace = d2lmini.profiler.load("pytorch_trace.json")
    print(trace.account())
    print(trace.waits())

A reader turns the events of a Chrome trace into operations, waits and memory changes:

events     slices and names of a file
stack      the functions that were active at a time, and the lines of the user's program
builder    makes the trace: numbers the operations, orders them, finds what waits waited for
kineto     PyTorch's profiler: kernels and copies with their launches, synchronizing calls
jax        JAX's profiler: XLA's operations with the calls that dispatched them

Such a trace shows less than our own: not what an operation reads and writes, so its dependencies
are the order in its stream, and what the file says of events. `trace.lacks` names what cannot be
asked of it, each with the reason, and the question raises MXNetError with that reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.profiler.foreign import jax, kineto
from d2lmini.profiler.foreign.builder import TraceBuilder
from d2lmini.profiler.foreign.events import ForeignEvents
from d2lmini.profiler.foreign.stack import SourceLines
from d2lmini.profiler.tracing import Trace


def find_file(path: str | os.PathLike[str]) -> str:
    """`path`; of a log directory of JAX the newest trace in it. MXNetError if it holds none."""
    if not os.path.isdir(path):
        return os.fspath(path)
    found = sorted(Path(path).rglob("*.trace.json.gz"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise MXNetError(
            f"load: the folder {os.fspath(path)} holds no *.trace.json.gz; give the log directory "
            "of jax.profiler.trace, or a file"
        )
    return str(found[-1])


def read_foreign(file: str, members: Iterable[tuple[str, Any]]) -> Trace:
    """The trace of the members of `file`. MXNetError if neither profiler wrote it."""
    events = ForeignEvents(members)
    read = next((one.read for one in (kineto, jax) if one.recognizes(events)), None)
    if read is None:
        raise MXNetError(
            f"{file} is no trace of d2lmini, PyTorch's profiler or JAX's: none of its events is "
            "one that these write"
        )
    builder = TraceBuilder(SourceLines([os.path.dirname(os.path.abspath(file)), os.getcwd()]))
    read(events, builder)
    return builder.finish()
