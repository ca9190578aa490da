"""Marks on streams: who has to wait for whom on the GPU, and who need not.

Work on one stream is done in the order in which it was put there; two streams know nothing of each
other. After each task its stream gets a `Mark`: an event that comes to pass when the GPU is that
far. An `Order`, on the Var, remembers the mark of the last task that wrote and of those that read
since, one for each stream, the newest. Before the next task its own stream is told to wait for

    what it reads      the last writer
    what it writes     the last writer and all readers

so the GPU keeps the order that the engine keeps on the host, and nobody on the host waits.

Most waits can be left out. A stream need not wait for itself; nor for a mark it has waited for
before; nor for one that came before such a mark, on the same stream or, since whoever set the mark
had waited too, on any other. For that each stream knows how far it has `seen` the others.

One wait cannot: a GPU that fails does its work no more, but its events come to pass. What others
made of its values meanwhile they cannot know to be wrong. So an `Order` has `doubts`, marks of
other GPUs that its contents depend on, and who waits for it on the host asks those GPUs, too.

After MXNet 2.0 (its pull request 20331), where marks are events of a ring and may be overwritten;
here each mark has an event of its own. When the last reference to the mark is gone, its stream uses
the event again: an event is never destroyed, so a finalizer, on whatever thread, calls no CUDA.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from d2lmini.cuda import current
from d2lmini.engine.core import Task, Var

#: No marks at all, shared by all who have none.
_NONE: dict[Stream, int] = {}

#: The longest interval between two questions whether the GPU has come so far.
_POLL_S = 2e-4

# What CUDA answers to such a question: done, or not yet. Any other answer is an error.
_DONE, _NOT_READY = 0, 600


class Mark:
    """A point on a stream: number `seq`, with the event that says the GPU has come to it, and how
    far the stream had seen others then."""

    __slots__ = ("event", "seen", "seq", "stream")

    def __init__(self, stream: Stream, seq: int, event: Any, seen: dict[Stream, int]):
        self.stream = stream
        self.seq = seq
        self.event = event
        self.seen = seen

    def __del__(self) -> None:
        self.stream.events.append(self.event)

    @property
    def passed(self) -> bool:
        """Is the GPU known to have come so far?"""
        return self.seq <= self.stream.passed

    def ask(self) -> bool:
        """Ask CUDA whether the GPU has come so far. CUDA's own error if the GPU failed.

        (CuPy's `Event.done` says False of a GPU that failed, for ever.)
        """
        if self.passed:
            return True
        runtime = self.stream.cuda.runtime
        status = self.stream.answer(lambda: runtime.eventQuery(self.event.ptr))
        if status == _DONE:
            self.stream.passed = max(self.stream.passed, self.seq)
        elif status != _NOT_READY:
            raise runtime.CUDARuntimeError(status)
        return status == _DONE

    def wait(self, deadline: float | None = None) -> bool:
        """Block this thread until the GPU has come so far; False at the deadline. What goes wrong
        on the GPU is raised here: CUDA's own error.

        The main thread asks the event again and again, at growing intervals of at most a tenth of
        the time waited, so that Ctrl-C gets through; others leave the waiting to CUDA, which lets
        them sleep. A thread whose current GPU is not in use asks as the main thread does
        (`current`).
        """
        begin = time.monotonic()
        patient = deadline is None and threading.current_thread() is not threading.main_thread()
        while not self.passed:
            if patient and self.stream.may_call_cuda():
                self.event.synchronize()
                self.stream.passed = max(self.stream.passed, self.seq)
                break
            if self.ask():
                break
            now = time.monotonic()
            if deadline is not None and now > deadline:
                return False
            time.sleep(min((now - begin) / 10, _POLL_S))
        return True


class Order:
    """When on the GPU a Var is written and read: the last writer, and the readers since. And the
    marks of streams of other GPUs from where its values came, which may have failed since."""

    __slots__ = ("doubts", "readers", "writer")

    def __init__(self) -> None:
        self.writer: Mark | None = None
        self.readers: dict[Stream, Mark] = {}
        self.doubts: dict[Stream, int] = _NONE

    def written(self, mark: Mark, doubts: dict[Stream, int]) -> None:
        """Remember the last writer."""
        self.writer = mark
        self.readers = {}
        self.doubts = doubts

    def marks(self, write: bool) -> list[Mark]:
        """Those that a reader has to wait for; who will `write` waits for readers too."""
        marks = [] if self.writer is None else [self.writer]
        return marks + list(self.readers.values()) if write else marks

    def wait(self, write: bool = False) -> None:
        """Block this thread until what it is about is done. MXNetError if the device failed."""
        for mark in self.marks(write):
            mark.stream.lane.wait(mark)
        confirm(self.doubts)


def confirm(doubts: dict[Stream, int]) -> None:
    """MXNetError if a GPU failed before one of these marks, whose events came to pass."""
    for stream, seq in doubts.items():
        stream.lane.confirm(seq)


class Stream:
    """A CUDA stream that counts its marks.

    handle  CuPy's stream
    lane    whose it is
    last    its last mark, behind all that was put here
    seq     the number of that
    seen    of other streams: the newest mark that this one has waited for, itself or through others
    passed  the newest of its own marks that the host has seen come to pass
    events  events of marks that are gone, to be used again
    """

    __slots__ = (
        "_owned", "cuda", "device", "events", "handle", "lane", "last", "passed", "seen", "seq"
    )  # fmt: skip

    def __init__(self, cuda: Any, handle: Any, lane: Any = None):
        self.cuda = cuda
        self.handle = handle
        self.lane = lane
        self.device = getattr(lane, "device", None)
        self.last: Mark | None = None
        self.seq = 0
        self.passed = 0
        self.events: deque[Any] = deque()
        # All events that were made. Else the collector, where a mark is part of a cycle, would call
        # the event's finalizer as well, which destroys what the mark gives back.
        self._owned: list[Any] = []
        self.seen: dict[Stream, int] = {}  # replaced, never changed: marks share it

    def has_seen(self, marks: Iterable[Mark]) -> bool:
        """Does what is put here from now on come after these marks anyway?"""
        return all(
            mark.stream is self or self.seen.get(mark.stream, 0) >= mark.seq for mark in marks
        )

    def wait(self, marks: Iterable[Mark]) -> None:
        """Let what is put here from now on come after these marks."""
        newest: dict[Stream, Mark] = {}
        for mark in marks:
            other = newest.get(mark.stream)
            if other is None or other.seq < mark.seq:
                newest[mark.stream] = mark
        # One that has seen much first: it may make others needless.
        for mark in sorted(newest.values(), key=lambda mark: -len(mark.seen)):
            if mark.stream is self or self.seen.get(mark.stream, 0) >= mark.seq:
                continue
            try:
                self.handle.wait_event(mark.event)
            except Exception:
                if mark.stream.device is not self.device:
                    mark.stream.lane.check(mark)  # the other device may be the one that failed
                raise
            self._learn(mark)

    def _learn(self, mark: Mark) -> None:
        seen = dict(self.seen)
        for stream, seq in ((mark.stream, mark.seq), *mark.seen.items()):
            if stream is not self and seen.get(stream, 0) < seq:
                seen[stream] = seq
        self.seen = seen

    def may_call_cuda(self) -> bool:
        """May this thread call CUDA about events without making a context (`current`)?"""
        return current.is_in_use(self.cuda)

    def answer(self, question: Callable[[], int]) -> int:
        """The answer to a question to CUDA that never blocks, on a thread that may call CUDA."""
        if self.may_call_cuda():
            return question()
        assert self.device is not None
        return current.ask(self.device, question)

    def mark(self) -> Mark:
        """A new mark behind all that was put here; its device is the current one."""
        try:
            event = self.events.pop()
        except IndexError:
            # A thread that waits for a blocking event sleeps; for another it uses a core.
            event = self.cuda.Event(block=True, disable_timing=True)
            self._owned.append(event)
        event.record(self.handle)
        self.seq += 1
        self.last = mark = Mark(self, self.seq, event, self.seen)
        return mark

    def begin(self, task: Task) -> None:
        """Let what `task` will put here come after what it depends on."""
        marks: list[Mark] = []
        for var in task.shared:
            if var.order is not None:
                marks += var.order.marks(False)
        for var in task.writes:
            if var.order is not None:
                marks += var.order.marks(True)
        if marks:
            self.wait(marks)

    def end(self, task: Task) -> None:
        """Remember on its Vars that `task` has put here what it does."""
        mark = self.mark()
        doubts = self.doubts(task.reads)
        for var in task.shared:
            order = order_of(var)
            if order is not None:
                order.readers[self] = mark
        for var in task.writes:
            order = order_of(var)
            if order is not None:
                order.written(mark, doubts)
            elif doubts:  # on the host, where the values are by now
                confirm(doubts)

    def doubts(self, reads: Iterable[Var]) -> dict[Stream, int]:
        """On which other GPUs what is made here of these depends."""
        found = _NONE
        for var in reads:
            order = var.order
            if order is None or (order.writer is None and not order.doubts):
                continue
            marks = [*order.doubts.items()]
            writer = order.writer
            if writer is not None and writer.stream.device is not self.device:
                marks.append((writer.stream, writer.seq))
            for stream, seq in marks:
                if stream.device is not self.device and seq > stream.passed:
                    if found is _NONE:
                        found = {}
                    found[stream] = max(seq, found.get(stream, 0))
        return found


def order_of(var: Var) -> Order | None:
    """The order of a Var on GPUs: memory has one from its first contents on, a bare tag from its
    first use. None of the host's memory, whose readers and writers are done when they return."""
    if var.order is None and type(var) is Var:
        var.order = Order()
    return var.order
