"""Marks on streams: which GPU work must wait for which, and which waits can be omitted.

Work on one stream runs in the order in which it was put there; two streams are independent. After
each task its stream gets a `StreamMark`: an event that passes when the GPU has done all work before
it. A `StreamOrder`, on the Var, remembers the mark of the last writer and, for each stream, the
newest mark of the readers since then. Before a task runs, its stream is made to wait for

    what it reads      the last writer
    what it writes     the last writer and all readers

so the GPU keeps the order that the engine keeps on the host, and the host does not wait.

Most waits can be omitted. A stream need not wait for itself; nor for a mark that it has waited for
before, or for an earlier one of the same stream. To decide this, each stream knows how far it has
`seen` the others.

One wait cannot be omitted: a failed GPU does no more work, but its events pass. Other GPUs cannot
know that values they read from it are wrong. So a `StreamOrder` has `unverified`, marks of other
GPUs that its contents depend on, and a wait on the host also queries those GPUs.

After MXNet 2.0 (its pull request 20331), where marks are events of a ring and may be overwritten;
here each mark has its own event. When the last reference to the mark is gone, its stream reuses the
event: an event is never destroyed, so a finalizer, on whatever thread, calls no CUDA.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from d2lmini.engine.core import Var, lock

#: The shortest and the longest interval between two queries of an event.
_POLL_S, _MAX_POLL_S = 1e-5, 1e-3

# Linux prolongs a thread's sleeps, by up to 50 us; its call for how much, in ns; 0 is what it was.
_prctl: Any = ctypes.PyDLL(None).prctl if sys.platform == "linux" else lambda *_: None
_SET_TIMER_SLACK = 29

# CUDA's answers to a query of an event: done, or not yet. Any other answer is an error.
_DONE, _NOT_READY = 0, 600


class StreamMark:
    """A point on a stream: number `seq`, and its event.

    An *open* mark has no event yet: work that is issued on the callers' threads shares it until
    somebody waits for it, or the stream gets another mark.
    """

    __slots__ = ("event", "seq", "stream")

    def __init__(self, stream: Stream, seq: int):
        self.stream = stream
        self.seq = seq
        self.event: Any = None

    def __del__(self) -> None:
        if self.event is not None:
            self.stream.events.append(self.event)

    def close(self) -> None:
        """Record the event of an open mark, behind all work so far."""
        if self.event is not None:
            return
        stream, cuda = self.stream, self.stream.device.xp.cuda
        with cuda.Device(stream.device.ordinal), lock:
            if self.event is None:
                try:
                    event = stream.events.pop()
                except IndexError:
                    # A thread sleeps while it waits for a blocking event; for others it spins.
                    event = cuda.Event(block=True, disable_timing=True)
                    stream.all_events.append(event)
                event.record(stream.handle)
                self.event = event

    @property
    def passed(self) -> bool:
        """True if the GPU is known to have reached the mark."""
        return self.seq <= self.stream.passed

    def query(self) -> bool:
        """Query CUDA whether the GPU has reached the mark. Raises CUDA's own error if the GPU
        failed.

        (For a failed GPU, CuPy's `Event.done` returns False for ever.)
        """
        if self.passed:
            return True
        self.close()
        runtime = self.stream.device.xp.cuda.runtime
        status = runtime.eventQuery(self.event.ptr)
        if status == _DONE:
            self.stream.passed = max(self.stream.passed, self.seq)
        elif status != _NOT_READY:
            raise runtime.CUDARuntimeError(status)
        return status == _DONE

    def wait(self, deadline: float | None = None) -> bool:
        """Block this thread until the GPU has reached the mark; False at the deadline. Raises
        CUDA's own error if the GPU failed.

        The main thread queries the event again and again, so that Ctrl-C gets through, and sleeps
        in between for 10 us, or a thousandth of the time waited; other threads sleep in CUDA's own
        wait.
        """
        if self.passed:
            return True
        self.close()
        if deadline is None and threading.current_thread() is not threading.main_thread():
            self.event.synchronize()
            self.stream.passed = max(self.stream.passed, self.seq)
            return True
        begin = time.monotonic()
        _prctl(_SET_TIMER_SLACK, 1)
        try:
            while not self.query():
                now = time.monotonic()
                if deadline is not None and now > deadline:
                    return False
                time.sleep(min(max((now - begin) / 1000, _POLL_S), _MAX_POLL_S))
        finally:
            _prctl(_SET_TIMER_SLACK, 0)
        return True


class StreamOrder:
    """When a Var is written and read on the GPU.

    writer      the mark of the last writer; None before the first
    readers     the newest mark of the readers since then, for each stream
    unverified  marks of other GPUs that the values depend on: those GPUs may have failed
    """

    __slots__ = ("unverified", "readers", "writer")

    def __init__(self) -> None:
        self.writer: StreamMark | None = None
        self.readers: dict[Stream, StreamMark] = {}
        self.unverified: dict[Stream, int] = {}

    def record_write(self, mark: StreamMark, unverified: dict[Stream, int]) -> None:
        """Record the last writer, and the marks of other GPUs that the new values depend on."""
        self.writer = mark
        self.readers = {}
        self.unverified = unverified

    def marks(self, write: bool) -> list[StreamMark]:
        """The marks that a reader must wait for; with `write`, also those of the readers."""
        marks = [] if self.writer is None else [self.writer]
        return [*marks, *self.readers.values()] if write and self.readers else marks

    def wait(self, write: bool = False) -> None:
        """Block this thread until the marked work is done. MXNetError if the device failed."""
        for mark in self.marks(write):
            mark.stream.lane.wait(mark)
        check_unverified(self.unverified)


def check_unverified(unverified: dict[Stream, int]) -> None:
    """Raise MXNetError if a GPU failed before one of these marks, whose events have passed."""
    for stream, seq in unverified.items():
        if seq > stream.passed:
            stream.lane.ask(stream.last.query)
            stream.passed = max(stream.passed, seq)


class Stream:
    """A CUDA stream that counts its marks.

    handle  CuPy's stream
    lane    the lane of the stream
    last    its last mark, behind all its work; before the first, one that has passed
    watched a mark that is asked whether it has passed, before another is
    us      predicted time of the work behind the mark before
    seen    for each other stream: the newest mark that this stream has waited for
    passed  the newest of its own marks that the host has seen pass
    events  events of marks that are gone, for reuse
    all_events  all that were made, kept alive: if a mark is part of a cycle, the collector would
            also finalize its event, and so destroy the event that the mark returns for reuse
    """

    def __init__(self, handle: Any, lane: Any):
        self.handle = handle
        self.lane = lane
        self.device = lane.device
        self.us = 0.0
        self.passed = 0
        self.events: deque[Any] = deque()
        self.all_events: list[Any] = []
        self.last = self.watched = StreamMark(self, 0)
        self.seen: dict[Stream, int] = {}

    def has_seen(self, marks: Iterable[StreamMark]) -> bool:
        """True if all future work on this stream already comes after these marks."""
        for mark in marks:
            if mark.stream is not self and self.seen.get(mark.stream, 0) < mark.seq:
                return False
        return True

    def wait(self, marks: Iterable[StreamMark]) -> None:
        """Make all future work on this stream come after these marks."""
        # The newest come first: they make the wait for others of their stream needless.
        for mark in sorted(marks, key=lambda mark: -mark.seq):
            if mark.stream is self or self.seen.get(mark.stream, 0) >= mark.seq:
                continue
            try:
                mark.close()
                self.handle.wait_event(mark.event)
            except Exception:
                if mark.stream.device is not self.device:
                    mark.stream.lane.ask(mark.query)  # the other device may have failed
                raise
            self.seen[mark.stream] = mark.seq

    def is_near(self, most: int) -> bool:
        """True if at most so many marks have not passed; asks CUDA where it must."""
        if self.last.seq - self.passed > most and self.watched.query():
            self.watched = self.last
        return self.last.seq - self.passed <= most

    def mark(self) -> StreamMark:
        """A new mark behind all work so far."""
        mark = self.open_mark()
        mark.close()
        return mark

    def open_mark(self) -> StreamMark:
        """The open mark, for work that has been issued."""
        with lock:
            if self.last.event is not None or not self.last.seq:
                self.us = 0.0
                self.last = StreamMark(self, self.last.seq + 1)
            return self.last

    def begin(self, reads: Iterable[Var], writes: Iterable[Var]) -> None:
        """Make the work that will be put here come after its dependencies."""
        marks: list[StreamMark] = []
        for variables, write in ((reads, False), (writes, True)):
            for var in variables:
                if var.order is not None:
                    marks += var.order.marks(write)
        self.wait(marks)

    def end(
        self, reads: Iterable[Var], writes: Iterable[Var], unverified: dict[Stream, int]
    ) -> None:
        """Record on the Vars that the work is on this stream."""
        mark = self.mark()
        for var in reads:
            order = order_of(var)
            if order is not None:
                order.readers[self] = mark
        for var in writes:
            order = order_of(var)
            if order is not None:
                order.record_write(mark, unverified)
            elif unverified:  # host memory, where the values have arrived
                check_unverified(unverified)

    def unverified(self, reads: Iterable[Var]) -> dict[Stream, int]:
        """The marks of other GPUs that results computed from `reads` depend on."""
        found: dict[Stream, int] = {}
        for order in [var.order for var in reads if var.order is not None]:
            marks = [*order.unverified.items()]
            if order.writer is not None:
                marks.append((order.writer.stream, order.writer.seq))
            for stream, seq in marks:
                if stream.device is not self.device and seq > stream.passed:
                    found[stream] = max(seq, found.get(stream, 0))
        return found


def order_of(var: Var) -> StreamOrder | None:
    """The GPU order of a Var: memory has one from its first contents on, a bare tag from its first
    use. None for host memory, whose readers and writers are done when they return."""
    if var.order is None and type(var) is Var:
        var.order = StreamOrder()
    return var.order
