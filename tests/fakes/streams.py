"""Devices, streams and events of the fake, as `cupy.cuda` has them.

The current device belongs to the thread, the current stream to the thread and the device, an event
to the device it was made on. Every stream is non-blocking: the legacy stream's habit of waiting for
others is not played, so work on the null stream is ordered with nothing.
"""

from __future__ import annotations

from typing import Any

from fakes import graphs
from fakes import machine as machines
from fakes.machine import CUDARuntimeError
from fakes.order import Queue, Work


class Device:
    """`cupy.cuda.Device`; without a number, the current one."""

    compute_capability = "90"

    def __init__(self, device: Any = None):
        self.id = machines.current().current_device if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> Device:
        machines.current().use_device(self.id)
        return self

    def __enter__(self) -> Device:
        machine = machines.current()
        self._before.append(machine.current_device)
        machine.use_device(self.id)
        return self

    def __exit__(self, *exc: object) -> None:
        machines.current().use_device(self._before.pop())

    def synchronize(self) -> None:
        """The host waits for all work on it."""
        machine = machines.current()
        queues = [queue for queue in machine.queues if queue.device == self.id]
        machine.synchronize_queues(queues, "Device.synchronize")

    @property
    def mem_info(self) -> tuple[int, int]:
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


class Stream:
    """`cupy.cuda.Stream` with non_blocking=True, or the null stream."""

    null: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ):
        if null or ptds or not non_blocking:
            raise NotImplementedError("the fake has Stream(non_blocking=True) and Stream.null")
        machine = machines.current()
        self.queue: Queue = machine.new_queue(machine.current_device)
        self.ptr = self.queue.ptr
        self.device_id = self.queue.device

    def use(self) -> Stream:
        """Make it the current one of this thread on its device."""
        machine = machines.current()
        device = machine.current_device
        if self.device_id not in (-1, device):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({device})"
            )
        machine.streams[device] = self
        return self

    def __enter__(self) -> Stream:
        machine = machines.current()
        stack = machine.local.__dict__.setdefault("stack", [])
        stack.append((machine.current_device, machine.streams[machine.current_device]))
        try:
            return self.use()
        except RuntimeError:
            stack.pop()
            raise

    def __exit__(self, *exc: object) -> None:
        machine = machines.current()
        device, before = machine.local.stack.pop()
        machine.streams[device] = before

    @property
    def done(self) -> bool:
        machine, queue = machines.current(), self.queue

        def ask() -> bool:
            machine.refuse_capture(queue)
            with machine.call(queue.device):
                return not queue.pending or machine.poll(queue.pending[-1])

        return _status(ask) == 0

    def synchronize(self) -> None:
        machines.current().synchronize_queues([self.queue], "Stream.synchronize")

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is put here from now on comes after `event` as it was recorded last."""
        if event.work is not None:
            machines.current().issue(self.queue, "wait_event", waits=[event.work])

    def begin_capture(self, mode: int | None = None) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        machine = machines.current()
        with machine.call(self.device_id):
            if any(queue.capture is not None for queue in machine.queues):
                raise RuntimeError("one capture at a time: another stream is being captured")
            self.queue.capture = graphs.Graph()

    def end_capture(self) -> graphs.Graph:
        graph, self.queue.capture = self.queue.capture, None
        if graph is None:
            raise CUDARuntimeError(901)
        return graph.finish()

    def is_capturing(self) -> bool:
        return self.queue.capture is not None

    @property
    def is_non_blocking(self) -> bool:
        return self.ptr != 0

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
    def queue(self) -> Queue:  # type: ignore[override]
        return machines.current().queue_at(0, machines.current().current_device)


Stream.null = _NullStream()


def _status(is_done: Any) -> int:
    """What CUDA answers when it is asked whether something is done: 0, or 600 for not yet, or the
    number of an error."""
    try:
        return 0 if is_done() else 600
    except CUDARuntimeError as error:
        return error.status


def event_query(event: int) -> int:
    """`cupy.cuda.runtime.eventQuery`: a status; as CuPy's it raises nothing."""
    return _status(machines.current().event_at(event)._is_passed)


class Event:
    """`cupy.cuda.Event`, of the device that is current when it is made. `block`: do threads that
    wait for it sleep?"""

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
        """Mark how far `stream`, or the current one, is now."""
        queue = machines.current().queue_of(stream)
        if queue.device != self._device:
            raise CUDARuntimeError(400)
        self.captured = queue if queue.capture is not None else None
        self.work = machines.current().issue(queue, "record")

    @property
    def done(self) -> bool:
        """As CuPy has it: False for ever where the device failed."""
        return event_query(self.ptr) == 0

    def _is_passed(self) -> bool:
        self._refuse_captured()
        return self.work is None or machines.current().poll(self.work)

    def _refuse_captured(self) -> None:
        """One that was recorded in a capture is a place in a graph, which nobody can wait for. (One
        from before a capture can be asked during it, for CuPy's captures are relaxed.)"""
        if self.captured is not None:
            machines.current().refuse_capture(self.captured)

    def synchronize(self) -> None:
        """The host waits for it."""
        self._refuse_captured()
        if self.work is not None:
            machines.current().synchronize(self.work, "Event.synchronize")


def get_current_stream(device_id: int = -1) -> Stream:
    machine = machines.current()
    device = machine.current_device if device_id == -1 else device_id
    return machine.streams[device] or Stream.null


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events, both of which the GPU has passed."""
    first, last = start_event.work, end_event.work
    if first is None or last is None or not (start_event.has_timing and end_event.has_timing):
        raise CUDARuntimeError(400)
    if not (first.done and last.done):
        raise CUDARuntimeError(600)
    return (last.time_s - first.time_s) * 1e3
