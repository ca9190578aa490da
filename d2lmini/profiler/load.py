"""A trace from a file: of this library, of PyTorch, of JAX, or of any writer of Chrome traces.

    trace.save("t.json.gz")                 # on the machine that trains
    trace = d2lmini.profiler.load("t.json.gz")
    print(trace.account())                  # anywhere

A trace of this library is the same trace again: each analysis gives the same result, to the bit.
`profiler.foreign` reads the traces of other libraries and says what they do not show.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.profiler.json_stream import read_members
from d2lmini.profiler.own_reader import OwnReader
from d2lmini.profiler.tracing import Trace


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `Trace.save` wrote (MXNet's `profiler.dump` too), or a Chrome trace of
    PyTorch's profiler, of JAX's (the file, or its log directory) or of another program; JSON,
    compressed or not. MXNetError if the file is none of these; OSError if it cannot be read."""
    from d2lmini.profiler.foreign import find_file, read_foreign

    file = find_file(path)
    members = read_members(file)
    before: list[tuple[str, Any]] = []
    for key, value in members:
        before.append((key, value))
        if key == "otherData" and isinstance(value, dict) and value.get("producer") == "d2lmini":
            return _read_own(file, value, members)
        if key == "traceEvents":
            break
    return read_foreign(file, chain(before, members))


def _read_own(file: str, facts: dict[str, Any], members: Any) -> Trace:
    trace = Trace()
    reader = OwnReader(trace)
    read = {"traceEvents": reader.event, "memoryChanges": reader.changes, "samples": reader.sample}
    try:
        reader.facts(facts)
        for key, value in members:
            if key in read:
                read[key](value)
    except (KeyError, TypeError, ValueError) as problem:
        raise MXNetError(
            f"{file} says that d2lmini wrote it, and has a record that it did not write: "
            f"{type(problem).__name__} {problem}"
        ) from problem
    return trace
