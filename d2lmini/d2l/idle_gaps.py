"""Idle gaps of devices: from when to when a device computed nothing, and what it waited for.

>>> from d2lmini import engine, gpu, nd, profile, virtual_gpus
>>> with virtual_gpus(2), engine.stepped(times={"_ones": 1000, "CopyGPU2GPU": 500}):
...     with profile() as trace:
...         x = nd.ones((2, 2), ctx=gpu(0))
...         y = x.as_in_context(gpu(1))
...         z = nd.ones_like(y)
>>> for gap in find_gaps(trace):
...     print(gap)
gpu(0) is idle from 1.00 to 1.50 ms: nothing is left to do there
gpu(1) is idle from 0.00 to 1.50 ms, until 3 ones_like begins: it waits for the copy of 1 _ones \
from gpu(0)

`check.busy` uses these gaps to say which of them costs most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from d2lmini.profiler.records import Operation
from d2lmini.profiler.tracing import Trace


class IdleGap(NamedTuple):
    """An idle time of a place that computes.

    place, begin_ns, end_ns    where and when, since the first operation of the trace began
    hint      why: "copy", "needs", "issued" (the program issued the operation later), "end"
    text      the reason in words
    """

    place: str
    begin_ns: int
    end_ns: int
    hint: str
    text: str

    @property
    def length_ns(self) -> int:
        """How long the place was idle."""
        return self.end_ns - self.begin_ns

    def __str__(self) -> str:
        begin_ms, end_ms = self.begin_ns / 1e6, self.end_ns / 1e6
        return f"{self.place} is idle from {begin_ms:.2f} to {end_ms:.2f} ms{self.text}"


def find_gaps(trace: Trace, label: Callable[[Operation], str] = str) -> list[IdleGap]:
    """The idle gaps of all places that compute, from the first begin to the last end of any of
    their operations. Operations that take no time do not count. `label` names an operation in
    texts. ValueError if nothing was computed."""
    ran = [
        operation for operation in trace.operations if operation.run_ns and not operation.is_copy
    ]
    if not ran:
        raise ValueError("find_gaps: no operation of the trace took any time")
    first_ns = min(operation.began_ns for operation in ran)
    last_ns = max(operation.ended_ns for operation in ran)
    gaps = []
    for place in sorted({operation.place for operation in ran}):
        own = [operation for operation in ran if operation.place == place]
        free_ns = first_ns
        for operation in sorted(own, key=lambda operation: operation.began_ns):
            if operation.began_ns > free_ns:
                why = _explain(trace, operation, free_ns, label)
                gaps.append(IdleGap(place, free_ns - first_ns, operation.began_ns - first_ns, *why))
            free_ns = max(free_ns, operation.ended_ns)
        if free_ns < last_ns:
            text = ": nothing is left to do there"
            gaps.append(IdleGap(place, free_ns - first_ns, last_ns - first_ns, "end", text))
    return gaps


def _explain(
    trace: Trace, operation: Operation, free_ns: int, label: Callable[[Operation], str]
) -> tuple[str, str]:
    """Hint and text: why `operation` did not begin at `free_ns`."""
    text = f", until {label(operation)} begins: "
    if operation.pushed_ns > free_ns:
        return "issued", text + f"the program issues it only then ({operation.where})"
    awaited = _last_need(trace, operation)
    if awaited is None:
        return "issued", text + "nothing that it needs took any time"
    if awaited.is_copy:
        source = _last_need(trace, awaited)
        if source is None:
            return "copy", text + f"it waits for the copy at {awaited.where}"
        return "copy", text + f"it waits for the copy of {label(source)} from {source.place}"
    return "needs", text + f"it waits for {label(awaited)} on {awaited.place}"


def _last_need(trace: Trace, operation: Operation) -> Operation | None:
    """Of the operations before `operation`, the one that ends last; operations that take no time
    are skipped. None: there is none."""
    while True:
        needs, room = trace.needs(operation.number), trace.makes_room(operation.number)
        before = [trace[number] for number in needs + room if number < operation.number]
        if not before:
            return None
        operation = max(before, key=lambda earlier: (earlier.ended_ns, earlier.run_ns > 0))
        if operation.run_ns:
            return operation
