"""Times of operations on a GPU.

For the engine, an operation on a GPU is complete when its work is on a stream. So a trace puts a
CUDA event before and after the work, and the GPU records the time at which the stream reaches it.
CUDA gives the time between two events, but not in the host's clock. So at the end of a trace, when
all work is done, one more event per GPU is recorded and waited for, and the times of the others are
computed backward from it. The result is accurate to some ten microseconds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from d2lmini import engine
from d2lmini.profiler.records import Operation


class GpuTimes:
    """Start and end times of operations on their GPUs, available once they are done."""

    def __init__(self) -> None:
        self._begun: dict[Operation | None, Any] = {}
        self._found: list[tuple[Any, Any, Any, Any]] = []

    def issue(self, operation: Operation | None, lane: Any) -> None:
        """Called before the work of an operation is put on a lane's stream."""
        if operation is not None:
            with suppress(Exception):  # of a failed GPU; the operation itself reports the error
                self._begun[operation] = lane.timestamp()

    def issued(self, operation: Operation | None, lane: Any) -> None:
        """Called after the work of an operation is on the stream."""
        if operation in self._begun:
            begin = self._begun.pop(operation)
            with suppress(Exception):
                self._found.append((operation, lane.device, begin, lane.timestamp()))

    def resolve(self) -> None:
        """Set the GPU times of the operations; operations of a failed GPU keep the host's times."""
        found, self._found = self._found, []
        for device in {device for _, device, _, _ in found}:
            # A failed GPU must not prevent the rest of the trace.
            with suppress(Exception):
                self._of_device(device, [(e, b, end) for e, d, b, end in found if d is device])

    @staticmethod
    def _of_device(device: Any, found: list[tuple[Operation, Any, Any]]) -> None:
        def count_back() -> list[tuple[int, int]]:
            now = device.lane_here().timestamp()
            for event in (now, *(end for _, _, end in found)):
                event.synchronize()
            now_ns = engine.current.clock()
            return [
                (now_ns - _ns_between(device, begin, now), now_ns - _ns_between(device, end, now))
                for _, begin, end in found
            ]

        for (operation, _, _), (began_ns, ended_ns) in zip(
            found, device.ask(count_back, "profile")
        ):
            # The work cannot have started before it was issued.
            operation.began_ns = max(began_ns, operation.began_ns)
            operation.ended_ns = max(ended_ns, operation.began_ns)


def _ns_between(device: Any, begin: Any, end: Any) -> int:
    return int(device.xp.cuda.get_elapsed_time(begin, end) * 1e6)
