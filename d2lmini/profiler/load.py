"""A trace from a file: of this library, of PyTorch, of JAX, or of any writer of Chrome traces.

    trace.save("t.json.gz")                 # on the machine that trains
    trace = d2lmini.profiler.load("t.json.gz")
    print(trace.account())                  # anywhere

A trace of this library is the same trace again: each analysis gives the same result, to the bit.
`profiler.foreign` reads the traces of other libraries and says what they do not show.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.profiler.json_stream import check, read_members
from d2lmini.profiler.own_reader import FORMS, OwnReader
from d2lmini.profiler.tracing import Trace


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `Trace.save` wrote (MXNet's `profiler.dump` too), or a Chrome trace of
    PyTorch's profiler, of JAX's (the file, or its log directory) or of another program; JSON,
    compressed or not. MXNetError, with the place in the file, if it is none of these or damaged;
    OSError if it cannot be read."""
    from d2lmini.profiler.foreign import find_file, read_foreign

    file = find_file(path)
    counts: Counter[str] = Counter()
    place = ""

    def members() -> Iterator[tuple[str, Any]]:
        nonlocal place
        for key, value in read_members(file):
            place = f"{key}[{counts[key]}]: "
            yield key, value
            counts[key] += 1
        place = ""

    rest = members()
    before: list[tuple[str, Any]] = []
    try:
        for key, value in rest:
            before.append((key, value))
            own = isinstance(value, dict) and value.get("producer") == "d2lmini"
            if key == "otherData" and own:
                return _read_own(value, rest)
            if key == "traceEvents":
                break
        return read_foreign(file, chain(before, rest))
    except (LookupError, TypeError, ValueError, StopIteration) as problem:
        what = problem if isinstance(problem, ValueError) else f"{type(problem).__name__} {problem}"
        raise MXNetError(f"{file}: {place}{what}: the file is not as it was written") from problem
    except MXNetError as problem:
        text = str(problem)
        raise MXNetError(text if file in text else f"{file}: {place}{text}") from problem


def _read_own(facts: dict[str, Any], members: Iterator[tuple[str, Any]]) -> Trace:
    trace = Trace()
    reader = OwnReader(trace)
    read = {"traceEvents": reader.event, "memoryChanges": reader.changes}
    reader.facts(facts)
    for key, value in members:
        if key in read:
            check(value, FORMS)
            read[key](value)
    reader.finish()
    return trace
