"""CUDA graphs of the fake: work that is recorded once and launched as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fakes import machine as machines
from fakes.machine import CUDARuntimeError
from fakes.order import OrderError, Queue, Region, Work


class Graph:
    """`cupy.cuda.Graph`: what a stream was given between `begin_capture` and `end_capture`.

    Memory allocated meanwhile is baked in as addresses. Who gave it out again since, or back to the
    driver, gets an OrderError at the launch, as the graph would write over it.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._names: list[str] = []
        self._reads: list[Region] = []
        self._writes: list[Region] = []
        self._lives: list[int] = []
        self._is_valid = True

    def add(
        self,
        name: str,
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
            self._names.append(name)
            self._reads += reads
            self._writes += writes

    def invalidate(self) -> None:
        """What may not be done while capturing was tried."""
        self._is_valid = False
        raise CUDARuntimeError(900)

    def finish(self) -> Graph:
        if not self._is_valid:
            raise CUDARuntimeError(901)
        self._lives = [region.block.life for region in self._reads + self._writes]
        return self

    def upload(self, stream: Any = None) -> None:
        """There is nothing to upload; checks what `launch` checks."""
        self._check()

    def launch(self, stream: Any = None) -> None:
        """Put all of it on `stream` or the current one."""
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

    def debug_dot_str(self, flags: int = 0) -> str:
        """Its steps, one after another, in Graphviz's language."""
        nodes = [f'  {i} [label="{name}"];' for i, name in enumerate(self._names)]
        edges = [f"  {i} -> {i + 1};" for i in range(len(nodes) - 1)]
        return "\n".join(["digraph {", *nodes, *edges, "}"])
