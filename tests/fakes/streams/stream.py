"""Devices, streams and events, as `cupy.cuda` has them.

The current device belongs to the thread, the current stream to the thread and the device, an event
to the device it was made on. `Stream()` is a *blocking* stream, as CUDA's: it and the null stream
wait for each other. `Stream(non_blocking=True)` is ordered with no other stream.
"""

from __future__ import annotations

from functools import partial
from operator import setitem
from typing import Any

from d2lmini.base.scopes import Scope, Undo
from fakes.streams import graphs
from fakes.streams import machine as machines
from fakes.streams.errors import CUDARuntimeError
from fakes.streams.order import Queue, Work


class Device(Scope):
    """`cupy.cuda.Device`; without a number, the current device."""

    compute_capability = "90"

    def __init__(self, device: Any = None):
        self.id = machines.current().current_device if device is None else int(device)

    def use(self) -> Device:
        """Make it the current device of this thread; returns it."""
        machines.current().use_device(self.id)
        return self

    def _begin(self, undo: Undo) -> Device:
        machine = machines.current()
        undo.append(partial(machine.use_device, machine.current_device))
        machine.use_device(self.id)
        return self

    def synchronize(self) -> None:
        """Let the host wait for all work of the device."""
        machine = machines.current()
        queues = [queue for queue in machine.queues if queue.device == self.id]
        machine.synchronize_queues(queues, "Device.synchronize")

    @property
    def mem_info(self) -> tuple[int, int]:
        """The bytes that are free and all bytes of the device."""
        machine = machines.current()
        return machine.memory - machine.used[self.id], machine.memory

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Stream(Scope):
    """`cupy.cuda.Stream`: a queue of work of the current device, in the order of issue.

    null          True: the device's null stream, which is the current one at the beginning
    non_blocking  True: no order with the null stream
    priority      is accepted, and changes nothing: any legal order may happen
    """

    null: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        priority: int | None = None,
    ):
        machine = machines.current()
        device = machine.current_device
        self.queue: Queue = (
            machine.queue_at(0, device)
            if null
            else machine.new_queue(device, "non-blocking" if non_blocking else "blocking")
        )
        self.ptr = self.queue.ptr
        self.device_id = self.queue.device

    def use(self) -> Stream:
        """Make it the current stream of this thread on its device, which must be the current
        device: RuntimeError otherwise. Returns it."""
        machine = machines.current()
        device = machine.current_device
        if self.device_id not in (-1, device):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({device})"
            )
        machine.streams[device] = self
        return self

    def _begin(self, undo: Undo) -> Stream:
        machine = machines.current()
        device = machine.current_device
        undo.append(partial(setitem, machine.streams, device, machine.streams[device]))
        return self.use()

    @property
    def done(self) -> bool:
        """True if all work of the stream has run. It does not wait."""
        machine, queue = machines.current(), self.queue

        def ask() -> bool:
            machine.refuse_capture(queue)
            with machine.call(queue.device):
                return not queue.pending or machine.poll(queue.pending[-1])

        return _status(ask) == 0

    def synchronize(self) -> None:
        """Let the host wait for all work that was issued on the stream."""
        machines.current().synchronize_queues([self.queue], "Stream.synchronize")

    def record(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, after the work that was issued so far; returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let all work that is issued here later wait for `event`, as it was recorded last."""
        if event.work is not None:
            machines.current().issue(self.queue, "wait_event", waits=[event.work])

    def begin_capture(self, mode: int | None = None) -> None:
        """Record the work that is issued from now on into a `Graph`, instead of running it.
        RuntimeError for the null stream, and while another stream is captured."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        machine = machines.current()
        with machine.call(self.device_id):
            if any(queue.capture is not None for queue in machine.queues):
                raise RuntimeError("one capture at a time: another stream is being captured")
            self.queue.capture = graphs.Graph()

    def end_capture(self) -> graphs.Graph:
        """End the capture; returns the graph. CUDARuntimeError if there was no capture."""
        graph, self.queue.capture = self.queue.capture, None
        if graph is None:
            raise CUDARuntimeError(901)
        return graph.finish()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return self.ptr

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"


class _NullStream(Stream):
    def __init__(self) -> None:
        self.ptr, self.device_id = 0, -1

    @property
    def queue(self) -> Queue:
        return machines.current().queue_at(0, machines.current().current_device)


Stream.null = _NullStream()


def _status(is_done: Any) -> int:
    """CUDA's status: 0 if done, 600 if not yet done, or the number of an error."""
    try:
        return 0 if is_done() else 600
    except CUDARuntimeError as error:
        return error.status


def event_query(event: int) -> int:
    """`cupy.cuda.runtime.eventQuery`: a status. Like CuPy's it raises nothing."""
    return _status(machines.current().event_at(event)._is_passed)


class Event:
    """`cupy.cuda.Event`, of the device that is current when it is made. `block` says how a thread
    waits on real hardware; it changes nothing here."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ):
        self._device = machines.current().current_device
        self.ptr = machines.current().add_event(self)
        self.block = block
        self.has_timing = not disable_timing
        self.work: Work | None = None
        self.captured: Queue | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the work that `stream`, or the current stream, was given so far. An event that is
        recorded again forgets the first mark; waits that were issued before keep it.
        CUDARuntimeError for a stream of another device."""
        queue = machines.current().queue_of(stream)
        if queue.device != self._device:
            raise CUDARuntimeError(400)
        self.captured = queue if queue.capture is not None else None
        self.work = machines.current().issue(queue, "record")

    @property
    def done(self) -> bool:
        """True if the work before the record has run. False for ever if the device failed, as in
        CuPy."""
        return event_query(self.ptr) == 0

    def _is_passed(self) -> bool:
        self._refuse_captured()
        return self.work is None or machines.current().poll(self.work)

    def _refuse_captured(self) -> None:
        """An event that was recorded in a capture is a place in a graph; the host cannot wait for
        it. (An event from before the capture can be asked: CuPy's captures are relaxed.)"""
        if self.captured is not None:
            machines.current().refuse_capture(self.captured)

    def synchronize(self) -> None:
        """Let the host wait until the work before the record has run."""
        self._refuse_captured()
        if self.work is not None:
            machines.current().synchronize(self.work, "Event.synchronize")


def get_current_stream(device_id: int = -1) -> Stream:
    """The stream that this thread uses on the device, or on the current device."""
    machine = machines.current()
    device = machine.current_device if device_id == -1 else device_id
    return machine.streams[device] or Stream.null


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events that the device has passed. CUDARuntimeError otherwise."""
    first, last = start_event.work, end_event.work
    if first is None or last is None or not (start_event.has_timing and end_event.has_timing):
        raise CUDARuntimeError(400)
    if not (first.done and last.done):
        raise CUDARuntimeError(600)
    return (last.time_s - first.time_s) * 1e3
