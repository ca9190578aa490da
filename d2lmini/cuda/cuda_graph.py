"""Programs on a GPU as CUDA graphs: `hybridize(static_alloc=True, static_shape=True)`.

Run statement by statement, a program costs the host about ten microseconds per statement, and a
small net spends most of its time there. Recorded (`cuda.capture`), a program is a few launches.
A graph contains addresses, so a `CapturedGraph`, one recording of a program, fixes where each array
lies:

    an input    If it is the same array at every call (a parameter), or the result of another graph
                (an activation that backward reads), this graph contains the address of the array.
                Otherwise (a batch) the input is first copied to memory of this graph.
    an output   If it has a given place (a gradient), the graph writes there. Otherwise the graph
                writes to its own memory, and the result is an array in that memory.

While such a result is alive, its graph is not replayed: the next call replays or records another
graph of the program, with its own memory. When there are too many graphs, the program runs
statement by statement. So no result is ever overwritten, and no result is copied.

A program runs once before it is recorded: then its kernels are compiled, and it is known which
inputs are the same arrays. A program that cannot be recorded runs as before;
`CapturedGraphs.reason` says why.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from d2lmini.cuda import current
from d2lmini.cuda.capture import GraphCapture, Workspace, capture, workspace_of
from d2lmini.cuda.memory import Block
from d2lmini.graph.call import ProgramTask
from d2lmini.graph.plan import Run
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand

#: Graphs of a program at a time: the results of this many calls may be alive at once.
MAX_GRAPHS = 4
#: After this many recordings the program's arrays are assumed to move at every call.
MAX_RECORDINGS = 16
#: Earlier arrays that are remembered for each input.
MAX_EARLIER = 8


class CapturedGraph:
    """One recording of a program, and where its arrays must lie. Calls are those of `Launches`.

    inputs   arrays that the program reads: the given ones, or copies in the graph's own memory
    outs     arrays that it writes: the given ones, or results in the graph's own memory
    fixed    the given ones: number of the array -> its address
    spares   for each result in the graph's own memory: the array while nobody has it
    blocks   blocks of the arrays whose addresses the graph contains
    """

    is_map = True  # an output may overwrite an input: it is copied there at the end

    def __init__(
        self, lane: Any, workspace: Workspace, program: Program, run: Run, inputs: list[Any],
        outs: list[Any], is_given: Sequence[bool],
    ):  # fmt: skip
        self.lane = lane
        self.workspace = workspace
        self.predicted_us = program.predicted_us
        self.mutated = program.mutated
        self.run_program = run
        self.inputs = inputs
        self.outs = outs
        self.given: list[Any] | None = None
        self.recording: GraphCapture | None = None
        arrays = [*inputs, *outs]
        self.fixed = {i: arrays[i].data.ptr for i, given in enumerate(is_given) if given}
        n = len(inputs)
        self.spares: list[Any] = [None if given else [] for given in is_given[n:]]
        own = [
            (i, arrays[i].data, arrays[i].nbytes) for i, given in enumerate(is_given) if not given
        ]
        self._copied = [place for place in own if place[0] < n]
        self._changed = [place for place in self._copied if place[0] in program.mutated]
        self._results = [place for place in own if place[0] >= n]
        self.blocks: list[Block] = []

    @property
    def result_addresses(self) -> list[int]:
        """The addresses of the results in the graph's own memory."""
        return [pointer.ptr for _, pointer, _ in self._results]

    def fits(self, memory: Sequence[Any]) -> bool:
        """True if the arrays lie where the graph needs them, and nobody has a result in the graph's
        own memory. memory: where they begin; None for a new one."""
        for i, address in self.fixed.items():
            pointer = memory[i]
            if pointer is None or pointer.ptr != address:
                return False
        return all([spares is None or spares for spares in self.spares])

    def renew(self, given: Sequence[Any], xp: Any) -> bool:
        """Take other random keys."""
        assert self.recording is not None
        self.recording.keys[:] = given
        return True

    def run(self, memory: Sequence[Any]) -> None:
        """Replay: copy what the graph does not read where it lies, launch, copy back."""
        assert self.recording is not None
        self.copy_in(memory)
        if self.recording.calls:
            with self.lane.enter_scope():
                self.recording.replay()
        else:
            self.recording.replay()
        self.copy_out(memory)

    def copy_in(self, memory: Sequence[Any]) -> None:
        """Copy the inputs whose addresses the graph does not contain."""
        stream = self.lane.stream.handle
        for i, pointer, nbytes in self._copied:
            pointer.copy_from_device_async(memory[i], nbytes, stream)

    def copy_out(self, memory: Sequence[Any]) -> None:
        """Copy results to other given places, and changes of copied inputs back to the inputs."""
        stream = self.lane.stream.handle
        for i, pointer, nbytes in self._changed:
            memory[i].copy_from_device_async(pointer, nbytes, stream)
        for i, pointer, nbytes in self._results:
            if memory[i].ptr != pointer.ptr:
                memory[i].copy_from_device_async(pointer, nbytes, stream)

    def lend(self, outputs: Sequence[Operand]) -> None:
        """Note which results of a call were new arrays in the graph's own memory; give the others
        to the next call."""
        for (chunk, _, _), out, spares in zip(outputs, self.outs, self.spares):
            if spares is None:
                continue
            if chunk.data.data.ptr == out.data.ptr:
                chunk.block.spares = spares
            else:
                spares.append(self.lane.device.xp.ndarray(out.shape, out.dtype, out.data))

    def free(self) -> None:
        """Free all memory, on the threads of its lanes, after all pending work."""
        lane, blocks = self.lane, self.blocks
        self.workspace.result_addresses.difference_update(self.result_addresses)
        blocks = [*blocks, Block(dict(self.__dict__), lane)]
        self.__dict__.clear()
        for block in blocks:
            block.order.writer = lane.stream.last
            block.lane.pending_free.append(block)


class GraphChoice:
    """The recordings of a program, in place of launches: a call takes the one that fits."""

    given = None

    def __init__(self, program: Program):
        self.name = program.name
        self.specs = program.specs
        self.mutated = program.mutated
        self.graphs: list[CapturedGraph] = []
        self.replayed = 0

    def choose(self, memory: Sequence[Any]) -> CapturedGraph | None:
        """The recording for arrays in this memory."""
        for graph in self.graphs:
            if graph.fits(memory):
                self.replayed += 1
                return graph
        return None


class CapturedGraphs:
    """The CapturedGraphs of one program.

    reason    why the program is not recorded; None as long as it may be recorded
    choice    the recordings
    """

    def __init__(self, program: Program):
        self.program = program
        self.reason: str | None = None
        self.choice = GraphChoice(program)
        self._graphs = self.choice.graphs
        self._n_recorded = 0
        self._lane: Any = None
        self._function: Any = None
        self._earlier: list[deque[Block]] = [deque(maxlen=MAX_EARLIER) for _ in program.inputs]
        self._copied_inputs: set[int] = set()
        self._called = False
        weakref.finalize(self, _free_all, self._graphs).atexit = False

    def __str__(self) -> str:
        name = self.program.name
        if self.reason is not None:
            return f"{name}: op by op, {self.reason}"
        if not self._graphs:
            return f"{name}: not recorded yet, the second call records it"
        recording = self._graphs[0].recording
        assert recording is not None
        parts = f"graphs: {recording.graphs}, calls between them: {recording.calls}"
        return f"{name}: {parts}; replays: {self.choice.replayed}"

    def run(self, task: ReplayTask, arrays: Sequence[Any], places: Sequence[Any]) -> list[Any]:
        """The outputs of a call that no recording fits: by a new recording, or as by
        `Program.run`."""
        results = None
        if self.reason is None:
            lane = current.thread_state.lane
            if lane is not self._lane:  # the first call, or a call in another `logical_gpus`
                self._free_graphs()
                self._lane, self._function = lane, None
            chunks = [operand[0] for operand in (*task.inputs, *task.outputs)]
            inputs = [x.data.ptr for x in arrays]
            if self._called and self._may_record(inputs):
                results = self._record(task, arrays, places, inputs, chunks)
            else:
                self._called = True
                self._remember(chunks)
        return self.program.run(arrays, places, task.keys) if results is None else results

    def _remember(self, chunks: Sequence[Any]) -> None:
        for earlier, chunk in zip(self._earlier, chunks):
            if chunk.block not in earlier:
                earlier.append(chunk.block)

    def _may_record(self, addresses: Sequence[int]) -> bool:
        """True if one more graph may be recorded. If no graph contains an input's address, all
        graphs are freed; from now on the input is copied."""
        if len(self._graphs) < MAX_GRAPHS:
            return True
        moved = [
            i
            for i, address in enumerate(addresses)
            if all([graph.fixed.get(i, address) != address for graph in self._graphs])
        ]
        if not moved:
            return False  # results in the memory of all graphs are still alive
        self._copied_inputs.update(moved)
        self._free_graphs()
        return True

    def _free_graphs(self) -> None:
        _free_all(self._graphs)

    def _record(
        self, task: ReplayTask, arrays: Sequence[Any], places: Sequence[Any],
        addresses: Sequence[int], chunks: Sequence[Any],
    ) -> list[Any] | None:  # fmt: skip
        """Run the program in the memory of a new graph, then record the graph; None if there is no
        memory for it."""
        lane, keys = self._lane, task.keys
        xp, program, workspace = lane.device.xp, self.program, workspace_of(lane)
        is_given = [
            (chunk.block in earlier or address in workspace.result_addresses)
            and i not in self._copied_inputs
            for i, (address, chunk, earlier) in enumerate(zip(addresses, chunks, self._earlier))
        ]
        is_given += [place is not None for place in places]
        self._remember(chunks)
        try:
            if self._function is None:
                self._function = program.function()
            specs = [*[(x.shape, x.dtype) for x in arrays], *map(tuple, program.specs)]
            used = [
                xp.ndarray(*spec, array.data) if given else xp.empty(*spec)
                for array, given, spec in zip((*arrays, *places), is_given, specs)
            ]
        except MemoryError:
            self._give_up("there is no memory for a recording")
            return None
        inputs, outs = used[: len(arrays)], used[len(arrays) :]
        graph = CapturedGraph(lane, workspace, program, self._function, inputs, outs, is_given)
        # Other threads may drop these arrays; the blocks keep their memory from being reused.
        graph.blocks = [
            Block(array.data, chunk.block.lane)
            for array, chunk, given in zip((*arrays, *places), chunks, is_given)
            if given
        ]
        memory = [x.data for x in arrays]
        graph.copy_in(memory)
        with xp.cuda.using_allocator(workspace.malloc):
            program.run_in(self._function, inputs, outs, keys)
        try:
            graph.recording = capture(
                lane, workspace,
                lambda later: program.run_in(self._function, inputs, outs, later), len(keys),
            )  # fmt: skip
        except Exception as problem:
            cause = problem.__cause__
            lane.device.task_error(cause if isinstance(cause, Exception) else problem)
            lane.device.check()
            self._give_up(str(problem).splitlines()[0])
        # New arrays, not views: views made of a result would keep a view's base alive.
        results = [
            xp.ndarray(out.shape, out.dtype, out.data) if place is None else place
            for place, out in zip(places, outs)
        ]
        graph.copy_out([*memory, *[result.data for result in results]])
        if graph.recording is None:
            graph.free()
        else:
            graph.given = [*keys] or None
            self._graphs.append(graph)
            task.recorded = graph
            workspace.result_addresses.update(graph.result_addresses)
            self._n_recorded += 1
            if self._n_recorded > MAX_RECORDINGS:
                self._give_up("its arrays are at other addresses at nearly every call")
        return results

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._free_graphs()
        self._function = None


def _free_all(graphs: list[CapturedGraph]) -> None:
    while graphs:
        graphs.pop().free()


class ReplayTask(ProgramTask):
    """A call of a program that may be a replay. recorded: the graph that it has recorded."""

    __slots__ = ("recorded",)

    recorded: CapturedGraph

    @property
    def callee(self) -> Any:
        replays = self.program.replays
        return replays if replays.reason is None else self.program

    fills = False  # results without memory get memory where they are computed

    def _compute(self) -> None:
        super()._compute()
        graph = getattr(self, "recorded", None)
        if graph is not None:
            graph.lend(self.outputs)

    def _results(self, arrays: list[Any], places: list[Any]) -> list[Any]:
        return self.program.replays.run(self, arrays, places)  # type: ignore[no-any-return]
