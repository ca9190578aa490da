"""CUDA graphs: work that is recorded once and launched as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labs.streams import OrderError

from fakes.streams import machine as machines
from fakes.streams.errors import CUDARuntimeError
from fakes.streams.order import Queue, Region, Work


class Graph:
    """`cupy.cuda.Graph`: the work of a stream between `begin_capture` and `end_capture`.

    The graph keeps the addresses of memory that was allocated meanwhile. If the pool has given this
    memory out again, or back to the driver, `launch` raises an OrderError: the graph would write
    over it.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._reads: list[Region] = []
        self._writes: list[Region] = []
        self._lives: list[int] = []
        self._is_valid = True

    def add(
        self,
        run: Callable[[], object] | None,
        reads: Sequence[Region],
        writes: Sequence[Region],
        waits: Sequence[Work],
    ) -> None:
        if waits:  # for what was issued outside
            self._is_valid = False
            raise CUDARuntimeError(905)
        if run is not None:
            self._steps.append(run)
            self._reads += reads
            self._writes += writes

    def invalidate(self) -> None:
        """Refuse an operation that CUDA forbids during a capture."""
        self._is_valid = False
        raise CUDARuntimeError(900)

    def finish(self) -> Graph:
        if not self._is_valid:
            raise CUDARuntimeError(901)
        self._lives = [region.block.life for region in self._reads + self._writes]
        return self

    def launch(self, stream: Any = None) -> None:
        """Issue all work of the graph on `stream`, or on the current stream."""
        machine = machines.current()
        queue: Queue = machine.queue_of(stream)
        self._check()
        steps = list(self._steps)

        def run() -> None:
            for step in steps:
                step()

        machine.issue(queue, f"graph of {len(steps)}", run, self._reads, self._writes)

    def _check(self) -> None:
        for region, life in zip(self._reads + self._writes, self._lives):
            if region.block.life != life or region.block.is_gone:
                what = "to the driver" if region.block.is_gone else "and given out again"
                error = OrderError(
                    f"the graph uses {region.block}, which was given back {what} since it was "
                    "captured: keep its arrays, or give it a pool of its own"
                )
                machines.current().errors.append(error)
                raise error
