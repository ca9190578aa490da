"""DLPack of the fake: `cupy.from_dlpack`, and what its arrays say of themselves.

A capsule is an object of Python that holds the array: whoever takes it looks into its memory and
keeps it. Streams are as the protocol has them: who takes an array names the stream that it will use
it on, and who gives it lets that stream wait for its own (-1: there is nothing to wait for).
"""

from __future__ import annotations

from typing import Any

from fakes.cupy_arrays import ndarray
from fakes.streams import machine as machines
from fakes.streams.host_memory import bounds
from fakes.streams.memory import MemoryPointer, UnownedMemory


class Capsule:
    """Stands for a `PyCapsule` with a DLManagedTensor."""

    def __init__(self, array: ndarray):
        self.array: ndarray | None = array

    def take(self) -> ndarray:
        array, self.array = self.array, None
        if array is None:
            raise ValueError("a DLPack capsule is taken once")
        return array


def _export(
    self: ndarray, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
    copy: Any = None,
) -> Capsule:  # fmt: skip
    if stream not in (None, -1):
        machine = machines.current()
        theirs = machine.queue_at(stream, self.data.device_id)
        if theirs is not machine.current_queue:
            mark = machine.issue(machine.current_queue, "record")
            machine.issue(theirs, "wait_event", waits=[mark])
    return Capsule(self)


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    capsule = array
    if not isinstance(array, Capsule):
        kind, number = array.__dlpack_device__()
        machine = machines.current()
        assert kind == 2 and number == machine.current_device
        capsule = array.__dlpack__(stream=machine.current_queue.ptr)
    source = capsule.take()
    nbytes = max(bounds(source.raw)[1], 1)
    memory = UnownedMemory(source.data.ptr, nbytes, source, source.data.device_id)
    return ndarray(source.shape, source.dtype, MemoryPointer(memory, 0), source.raw.strides)


ndarray.__dlpack__ = _export  # type: ignore[attr-defined]
ndarray.__dlpack_device__ = lambda self: (2, self.data.device_id)  # type: ignore[attr-defined]
