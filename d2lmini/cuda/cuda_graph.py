"""Launches as CUDA graphs: `hybridize(static_alloc=True, static_shape=True)`.

While a stream is captured, nothing runs: CUDA records each launch with its arguments, which are
addresses and numbers. The graph repeats all launches by one call, in the very same memory. So a
`Graph`, one capture of a program's launches, replays only where every array lies where it lay at
the capture:

    an input    If it is the same memory as at the call before (a parameter), or the result of
                another graph (an activation that backward reads), the graph contains its address.
                Otherwise (a batch) it is first copied to memory of the graph.
    an output   If it has a given place (a gradient), the graph contains that place. Otherwise the
                graph writes to its own memory, and the result is an array in that memory.

While such a result is alive, its graph is not replayed: the next call replays or captures another
graph, with its own memory. When there are too many graphs, the launches run one by one. So no
result is ever overwritten, and no result is copied.

Launches that have other numbers each time, such as random keys, run between two graphs. A program
that has no launches (`launches`) has no graphs; `CapturedGraphs.reason` says why.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from d2lmini.cuda.memory import Block, is_short_of_memory

if TYPE_CHECKING:
    from d2lmini.cuda.launches import Launches
    from d2lmini.cuda.stream_worker import StreamWorker
    from d2lmini.ndarray.compute import Operand

#: Graphs of a program at a time: the results of this many calls may be alive at once.
MAX_GRAPHS = 4
#: After this many captures the program's arrays are assumed to move at every call.
MAX_CAPTURES = 16

#: CUDA's and cuBLAS's errors for what cannot be captured.
_REFUSALS = ("CUDARuntimeError", "CUDADriverError", "CUBLASError")

#: CuPy allows one capture at a time; and while it holds, no other thread may make a stream wait.
capture_lock = threading.Lock()


class Graph:
    """One capture of launches, and where their arrays must lie. It runs in their place.

    fixed   number of an input, or of a given output -> its address
    copied  inputs that are copied: number, memory of the graph, bytes
    spares  for each output in the graph's own memory: its array, while nobody has it
    steps   graphs, and the launches between them
    """

    def __init__(
        self, lane: StreamWorker, launches: Launches, memory: Sequence[Any], copied: set[int]
    ):
        self.lane = lane
        self.predicted_us = launches.predicted_us
        self.copied = []
        self.spares: list[Any] = []
        self.results: set[int] = set()
        places = list(memory)
        for i in copied:
            array = lane.allocate(launches.inputs[i])
            places[i] = array.data
            self.copied.append((i, array.data, array.nbytes))
        self.fixed = {i: p.ptr for i, p in enumerate(memory) if p is not None and i not in copied}
        for i, spec in enumerate(launches.specs, len(launches.inputs)):
            spares = None
            if memory[i] is None:
                array = lane.allocate(spec)
                places[i], spares = array.data, [array]
                self.results.add(array.data.ptr)
            self.spares.append(spares)
        self.memory = launches.places(places)
        self.steps: list[Callable[[list[Any]], Any]] = []
        self.graphs = self.calls = begin = 0
        lane.stream.close_open()
        for first, last in [*launches.ranges, (len(launches.steps), len(launches.steps))]:
            if begin < first:
                self.steps.append(self._capture(launches.steps[begin:first]))
                self.graphs += 1
            if first < last:
                self.steps += launches.steps[first:last]
                self.calls += 1
            begin = last
        lane.graph_results |= self.results

    def _capture(self, steps: Sequence[Callable[[list[Any]], Any]]) -> Callable[[list[Any]], Any]:
        handle = self.lane.stream.handle
        with capture_lock:
            handle.begin_capture()
            try:
                for step in steps:
                    step(self.memory)
            except BaseException:
                # An aborted capture must be ended all the same; ending it raises an error.
                with suppress(Exception):
                    handle.end_capture()
                raise
            graph = handle.end_capture()
        return lambda _: graph.launch(handle)

    def fits(self, memory: Sequence[Any]) -> bool:
        """True if the arrays lie where the graph needs them, and nobody has a result in the graph's
        own memory. memory: where they begin; None for a new one."""
        for i, address in self.fixed.items():
            pointer = memory[i]
            if pointer is None or pointer.ptr != address:
                return False
        return all([spares is None or spares for spares in self.spares])

    def run(self, memory: Sequence[Any]) -> None:
        """Copy the inputs whose addresses the graph does not contain, and replay."""
        stream = self.lane.stream.handle
        for i, pointer, nbytes in self.copied:
            pointer.copy_from_device_async(memory[i], nbytes, stream)
        for step in self.steps:
            step(self.memory)


class CapturedGraphs:
    """The graphs of one program.

    reason  why there are none; None as long as there may be some
    """

    def __init__(self, name: str):
        self.name = name
        self.reason: str | None = None
        self.graphs: list[Graph] = []
        self._replayed = 0
        self._n_captured = 0
        self._before: list[Block] | None = None  # the inputs' memory at the call before
        self._moving: set[int] = set()  # inputs that are copied
        weakref.finalize(self, _free, self.graphs).atexit = False

    def __str__(self) -> str:
        if self.reason is not None:
            return f"{self.name}: op by op, {self.reason}"
        if not self.graphs:
            return f"{self.name}: not recorded yet, the second call records it"
        parts = f"graphs: {self.graphs[0].graphs}, calls between them: {self.graphs[0].calls}"
        return f"{self.name}: {parts}; replays: {self._replayed}"

    def restart(self, reason: str | None = None) -> None:
        """Free all graphs: the launches are new ones, or there are none, for a reason."""
        self.reason = reason
        self._before = None
        _free(self.graphs)

    def choose(
        self, lane: StreamWorker, launches: Launches, memory: list[Any],
        inputs: Sequence[Operand], is_worker: bool,
    ) -> Any:  # fmt: skip
        """What a call with arrays in this memory runs: a graph, or the launches themselves; None if
        a worker shall capture a graph."""
        if self.reason is not None:
            return launches
        for graph in self.graphs:
            if graph.fits(memory):
                self._replayed += 1
                return graph
        blocks = [chunk.block for chunk, _, _ in inputs]
        if self._before is None:  # the first call, which loads the kernels
            self._before = blocks
            return launches
        addresses = [pointer.ptr for pointer in memory[: len(inputs)]]
        if len(self.graphs) == MAX_GRAPHS:
            # Inputs that are in no graph are copied from now on.
            moved = {
                i
                for i, address in enumerate(addresses)
                if all([graph.fixed.get(i) != address for graph in self.graphs])
            }
            if moved <= self._moving:
                return launches  # results in the memory of all graphs are still alive
            self._moving |= moved
            _free(self.graphs)
        if not is_worker:
            return None
        copied = {
            i
            for i, (block, before, address) in enumerate(zip(blocks, self._before, addresses))
            if not (block is before or address in lane.graph_results)
        }
        self._before = blocks
        copied = (copied | self._moving).difference(launches.mutated)
        return self._capture(lane, launches, memory, copied) or launches

    def _capture(
        self, lane: StreamWorker, launches: Launches, memory: list[Any], copied: set[int]
    ) -> Graph | None:
        """A new graph; None if there can be none."""
        self._n_captured += 1
        if self._n_captured > MAX_CAPTURES:
            self.restart("its arrays are at other addresses at nearly every call")
            return None
        try:
            self.graphs.append(Graph(lane, launches, memory, copied))
        except Exception as problem:
            if is_short_of_memory(problem):
                self.restart("there is no memory for a graph")
            elif type(problem).__name__ in _REFUSALS:
                lane.device.task_error(problem)
                lane.device.check()
                self.restart(str(problem).splitlines()[0])
            else:
                raise
            return None
        return self.graphs[-1]


def _free(graphs: list[Graph]) -> None:
    """Free graphs and their memory, on the threads of their lanes, after all pending work."""
    while graphs:
        graph = graphs.pop()
        lane = graph.lane
        lane.graph_results -= graph.results
        block = Block(graph, lane)
        block.order.writer = lane.stream.last
        lane.pending_free.append(block)
