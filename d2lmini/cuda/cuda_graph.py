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
from collections.abc import Callable, Sequence
from typing import Any

from d2lmini.context import Context
from d2lmini.cuda import current
from d2lmini.cuda.capture import GraphCapture, Workspace, capture, workspace_of
from d2lmini.cuda.memory import Block
from d2lmini.graph.call import ProgramTask, push
from d2lmini.graph.plan import Run
from d2lmini.graph.program import Program
from d2lmini.ndarray import NDArray

#: Graphs of a program at a time: the results of this many calls may be alive at once.
MAX_GRAPHS = 4
#: After this many recordings the program's arrays are assumed to move at every call.
MAX_RECORDINGS = 16
#: Earlier arrays that are remembered for each input.
MAX_EARLIER = 8


class CapturedGraph:
    """One recording of a program, the arrays that it works on, and where they must lie.

    input_addresses   of the inputs; 0 for a copy in the graph's own memory
    output_addresses  of the given places; 0 for a result in the graph's own memory
    borrowed          weak references to the results in the graph's own memory
    blocks            blocks of the arrays whose addresses the graph contains
    """

    def __init__(
        self, lane: Any, workspace: Workspace, run: Run, inputs: list[Any], outs: list[Any]
    ):
        self.lane = lane
        self.workspace = workspace
        self.run = run
        self.inputs = inputs
        self.outs = outs
        self.recording: GraphCapture | None = None
        self.input_addresses: list[int] = []
        self.output_addresses: list[int] = []
        self.borrowed: list[weakref.ref] = []
        self.blocks: list[Block] = []

    @property
    def result_addresses(self) -> list[int]:
        """The addresses of the results in the graph's own memory."""
        return [out.data.ptr for out, given in zip(self.outs, self.output_addresses) if not given]

    def fits(self, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """True if arrays at these addresses lie where the graph needs them, and no result in the
        graph's own memory is alive."""
        return (
            all(mine == theirs or not mine for mine, theirs in zip(self.input_addresses, inputs))
            and all(
                mine == theirs or not mine for mine, theirs in zip(self.output_addresses, outputs)
            )
            and all(ref() is None for ref in self.borrowed)
        )

    def copy_in(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs whose addresses the graph does not contain."""
        for address, copied, array in zip(self.input_addresses, self.inputs, arrays):
            if not address:
                self.lane.device.copy(copied, array)

    def copy_out(
        self, arrays: Sequence[Any], places: Sequence[Any], mutated: Sequence[int]
    ) -> list[Any]:
        """The results; changes to copies of inputs are written back to the inputs."""
        for i in mutated:
            if not self.input_addresses[i]:
                self.lane.device.copy(arrays[i], self.inputs[i])
        results = []
        self.borrowed = []
        for given, out, place in zip(self.output_addresses, self.outs, places):
            if place is None:
                # A new array, not a view: views made of a result would keep a view's base alive.
                result = self.lane.device.xp.ndarray(out.shape, out.dtype, out.data)
                self.borrowed.append(weakref.ref(result))
            else:
                result = place
                if not given:
                    self.lane.device.copy(place, out)
            results.append(result)
        return results

    def free(self) -> None:
        """Free all memory, on the threads of its lanes, after all pending work."""
        lane, blocks = self.lane, self.blocks
        self.workspace.result_addresses.difference_update(self.result_addresses)
        blocks = [*blocks, Block(dict(self.__dict__), lane)]
        self.__dict__.clear()
        for block in blocks:
            block.order.writer = lane.stream.last
            block.lane.pending_free.append(block)


class CapturedGraphs:
    """The CapturedGraphs of one program.

    reason    why the program is not recorded; None as long as it may be recorded
    replayed  number of calls that were replays
    """

    def __init__(self, program: Program):
        self.program = program
        self.reason: str | None = None
        if len(program.parts) > 1:
            self.reason = "it runs in parts, so that its first results can be copied meanwhile"
        self.replayed = 0
        self._graphs: list[CapturedGraph] = []
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
        return f"{name}: {parts}; replays: {self.replayed}"

    def run(
        self, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any], chunks: Callable
    ) -> list[Any]:
        """The outputs, as by `Program.run`; by a replay where possible. `chunks()` gives the chunks
        of `arrays` and `places`."""
        results = self._replay(arrays, places, keys, chunks)
        return self.program.run(arrays, places, keys) if results is None else results

    def _replay(
        self, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any], chunks: Callable
    ) -> list[Any] | None:
        """The outputs by a replay or a new recording; None if neither is possible."""
        if self.reason is None:
            lane = current.thread_state.lane
            if lane is not self._lane:  # the first call, or a call in another `logical_gpus`
                self._free_graphs()
                self._lane, self._function = lane, None
            inputs = [x.data.ptr for x in arrays]
            outputs = [0 if place is None else place.data.ptr for place in places]
            for graph in self._graphs:
                if graph.fits(inputs, outputs):
                    assert graph.recording is not None
                    graph.copy_in(arrays)
                    graph.recording.replay(keys)
                    self.replayed += 1
                    return graph.copy_out(arrays, places, self.program.mutated)
            if self._called and self._may_record(inputs):
                return self._record(arrays, places, keys, inputs, outputs, chunks)
            self._called = True
            self._remember(chunks())
        return None

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
            if all(graph.input_addresses[i] not in (0, address) for graph in self._graphs)
        ]
        if not moved:
            return False  # results in the memory of all graphs are still alive
        self._copied_inputs.update(moved)
        self._free_graphs()
        return True

    def _free_graphs(self) -> None:
        _free_all(self._graphs)

    def _record(
        self, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any],
        input_addresses: Sequence[int], output_addresses: Sequence[int], chunks: Callable,
    ) -> list[Any] | None:  # fmt: skip
        """Run the program in the memory of a new graph, then record the graph; None if there is no
        memory for it."""
        lane = self._lane
        xp, program, workspace = lane.device.xp, self.program, workspace_of(lane)
        all_chunks = chunks()
        is_fixed = [
            (chunk.block in earlier or address in workspace.result_addresses)
            and i not in self._copied_inputs
            for i, (address, chunk, earlier) in enumerate(
                zip(input_addresses, all_chunks, self._earlier)
            )
        ]
        self._remember(all_chunks)
        try:
            if self._function is None:
                self._function = program.function()
            inputs = [
                xp.ndarray(x.shape, x.dtype, x.data) if fixed else xp.empty(x.shape, x.dtype)
                for x, fixed in zip(arrays, is_fixed)
            ]
            outs = [
                xp.empty(spec.shape, spec.dtype)
                if place is None
                else xp.ndarray(place.shape, place.dtype, place.data)
                for place, spec in zip(places, program.specs)
            ]
        except MemoryError:
            self._give_up("there is no memory for a recording")
            return None
        graph = CapturedGraph(lane, workspace, self._function, inputs, outs)
        graph.input_addresses = [
            address if fixed else 0 for address, fixed in zip(input_addresses, is_fixed)
        ]
        graph.output_addresses = list(output_addresses)
        # Other threads may drop these arrays; the blocks keep their memory from being reused.
        graph.blocks = [
            Block(array.data, chunk.block.lane)
            for array, chunk, address in zip(
                (*arrays, *places),
                all_chunks,
                (*graph.input_addresses, *graph.output_addresses),
                strict=True,
            )
            if address
        ]
        graph.copy_in(arrays)
        with xp.cuda.using_allocator(workspace.malloc):
            program.run_in(graph.run, inputs, outs, keys)
        try:
            graph.recording = capture(
                lane, workspace,
                lambda later: program.run_in(graph.run, inputs, outs, later), len(keys),
            )  # fmt: skip
        except Exception as problem:
            cause = problem.__cause__
            lane.device.task_error(cause if isinstance(cause, Exception) else problem)
            lane.device.check()
            self._give_up(str(problem).splitlines()[0])
        results = graph.copy_out(arrays, places, program.mutated)
        if graph.recording is None:
            graph.free()
        else:
            self._graphs.append(graph)
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
    """A call of a program that may be a replay."""

    __slots__ = ()

    @property
    def callee(self) -> Any:
        return self.program.replays

    fills = False  # results without memory get memory where they are computed

    def _results(self, arrays: list[Any], places: list[Any]) -> list[Any]:
        replays = self.program.replays
        assert replays is not None
        return replays.run(arrays, places, self.keys, self._chunks)

    def _chunks(self) -> list[Any]:
        return [operand[0] for operand in (*self.inputs, *self.outputs)]


def push_replayed(
    program: Program, inputs: Sequence[NDArray], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any] = (),
) -> list[NDArray]:  # fmt: skip
    """Push a call, to be replayed where possible."""
    return push(program, inputs, ctx, keys, outs, ReplayTask)


def replay_calls(program: Program) -> Callable[..., list[NDArray]] | None:
    """The function that pushes replayed calls of a program; None if it cannot be replayed."""
    program.replays = CapturedGraphs(program)
    return push_replayed if program.replays.reason is None else None
