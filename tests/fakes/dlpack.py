"""DLPack of the fake: what its arrays say of themselves.

A capsule is an object of Python that holds the array: whoever takes it looks into its memory and
keeps it. Streams are as the protocol has them: who takes an array names the stream that it will use
it on, and who gives it lets that stream wait for its own (-1: there is nothing to wait for).
"""

from __future__ import annotations

from typing import Any

from fakes.cupy_arrays import ndarray
from fakes.streams import machine as machines


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


ndarray.__dlpack__ = _export  # type: ignore[attr-defined]
ndarray.__dlpack_device__ = lambda self: (2, self.data.device_id)  # type: ignore[attr-defined]
