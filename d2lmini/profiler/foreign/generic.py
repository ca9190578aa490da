"""Chrome traces of any other program: what the format itself says, and no more.

The outermost slice of a thread is an operation that ran there. If an arrow leads to it, the thread
of the arrow's begin pushed it at that time, and it needs the slice in which the arrow begins, if
that is over when it begins. A slice that says that it waits ("wait", "synchronize", "join") is a
wait. A process is a place; its threads are the workers.
"""

from __future__ import annotations

import re

from d2lmini.profiler.foreign.builder import TraceBuilder
from d2lmini.profiler.foreign.events import (
    BEGIN,
    ENDED,
    ForeignEvents,
    Slice,
    Thread,
    by_thread,
    last_until,
)
from d2lmini.profiler.foreign.stack import walk_stack
from d2lmini.profiler.records import Operation

WAITING = re.compile(
    r"(?i)(^|[^a-z])(wait|synchroni[sz]e|join|barrier)([^a-z]|$)|block_until_ready"
)


def read(events: ForeignEvents, builder: TraceBuilder) -> None:
    """Fill the builder."""
    outermost: dict[Thread, list[Slice]] = {}
    waits: list[Slice] = []
    for thread, slices in by_thread(events.slices).items():
        own = outermost[thread] = []
        for slice, stack in walk_stack(slices):
            if not stack:
                (waits if WAITING.search(slice.name) else own).append(slice)

    def at(thread: Thread, when_ns: int) -> Slice | None:
        """The operation of a thread that runs at a time."""
        last = last_until(outermost.get(thread, []), when_ns, BEGIN)
        return last if last is not None and last.end_ns >= when_ns else None

    pushes = {}
    for arrow in events.flows:
        to, source = at(arrow.target, arrow.end_ns), at(arrow.source, arrow.begin_ns)
        if to is not None and (to.thread, to.begin_ns) not in pushes:
            pushes[to.thread, to.begin_ns] = arrow, source
    made: dict[tuple[Thread, int], Operation] = {}
    for thread, own in outermost.items():
        name = events.thread_name(thread)
        for slice in own:
            push = pushes.get((thread, slice.begin_ns))
            flow = push[0] if push is not None and push[0].source != thread else None
            made[thread, slice.begin_ns] = builder.operation(
                slice.name, slice.begin_ns, slice.end_ns,
                name if flow is None else events.thread_name(flow.source),
                worker="caller" if flow is None else name,
                pushed_ns=None if flow is None else flow.begin_ns,
            )  # fmt: skip
    for key, (_, source) in pushes.items():
        before = None if source is None else made.get((source.thread, source.begin_ns))
        if key in made and before is not None and before.ended_ns <= made[key].began_ns:
            builder.follow(made[key], before)
    done = sorted(made.values(), key=ENDED)
    for slice in waits:
        awaited = last_until(done, slice.end_ns, ENDED)
        if awaited is not None and not awaited.pushed_ns <= slice.begin_ns < awaited.ended_ns:
            awaited = None
        name = events.thread_name(slice.thread)
        builder.wait(slice.name, name, slice.begin_ns, slice.end_ns, None, awaited)
