"""What a GPU did when, and its names for NVIDIA's tools.

The engine is done with an operation of a GPU when its work is on a stream. So a trace puts an event
before and behind it, which the GPU gives the time when it comes there: after all that the stream
has to wait for. What lies between two events CUDA says, but not when that was on the host's clock;
so at the end of a trace, when all is done, one more event is waited for on each GPU, and the others
are counted back from it. That is right to some ten microseconds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from d2lmini import callsite, engine, instrument
from d2lmini.profiler.records import Operation


class GpuTimes:
    """When operations began and ended on their GPUs, once they did."""

    def __init__(self) -> None:
        self._begun: dict[Operation, Any] = {}
        self._found: list[tuple[Operation, Any, Any, Any]] = []

    def issue(self, each: Operation, lane: Any) -> None:
        """The work of an operation comes next on a lane's stream."""
        with suppress(Exception):  # of a GPU that failed, which the operation will say itself
            self._begun[each] = lane.timestamp()

    def issued(self, each: Operation, lane: Any) -> None:
        """It is all there."""
        begin = self._begun.pop(each, None)
        if begin is not None:
            with suppress(Exception):
                self._found.append((each, lane.device, begin, lane.timestamp()))

    def resolve(self) -> None:
        """Give the operations the times of their GPUs, where all is done; those of one that failed
        keep the host's."""
        found, self._found = self._found, []
        for device in {device for _, device, _, _ in found}:
            # A trace says what there is to say, also of a GPU that failed.
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

        for (each, _, _), (began_ns, ended_ns) in zip(found, device.ask(count_back, "profile")):
            # It cannot have begun before it was told to.
            each.began_ns = max(began_ns, each.began_ns)
            each.ended_ns = max(ended_ns, each.began_ns)


def _ns_between(device: Any, begin: Any, end: Any) -> int:
    return int(device.xp.cuda.get_elapsed_time(begin, end) * 1e6)


class NvtxRanges(instrument.Instrument):
    """Ranges with the names and lines of a GPU's operations, around the calls that issue them:
    Nsight Systems shows them above the kernels."""

    def issue(self, task: Any, lane: Any) -> None:
        lane.device.xp.cuda.nvtx.RangePush(f"{task.name} {callsite.describe(task.site)}")

    def issued(self, task: Any, lane: Any) -> None:
        lane.device.xp.cuda.nvtx.RangePop()
