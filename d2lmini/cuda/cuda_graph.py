"""Programs on a GPU as CUDA graphs: `hybridize(static_alloc=True, static_shape=True)`.

Run statement by statement, a program costs the host about ten microseconds per statement, and a
small net spends most of its time there. Recorded (`cuda.capture`), a program is a few launches.
A graph contains addresses, so a `CapturedGraph`, one recording of a program, fixes where each array
lies:

    an input    is the same array as before, such as a parameter, or was lent by another take, such
                as what backward needs: the graph contains the array's own address;
                or lies anywhere, such as a batch, or on the host, such as the numbers of an
                optimizer's step: it is first copied to a place of the take
    an output   has a given place, such as a gradient's: the graph writes there;
                or has none: the take has memory for it and lends that memory

Lent memory belongs to the result as long as the result lives: an earlier call uses another take,
with its own memory, and when there are too many takes the program runs as an ordinary program.
So no result is ever overwritten, and none is copied.

A program runs once before it is recorded: then its kernels are compiled, and it is known which
inputs are the same arrays. A program that cannot be recorded runs as before;
`CapturedGraphs.reason` says why.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini.cuda import stream_worker
from d2lmini.cuda.capture import GraphCapture, Workspace, capture, workspace_of
from d2lmini.cuda.memory import Block
from d2lmini.graph.arena import Run
from d2lmini.graph.program import Program

if TYPE_CHECKING:
    from d2lmini.cuda.replay_tasks import SegmentProgram

#: Takes of a program at a time: the results of this many calls may be alive at once.
MOST = 4
#: After this many takes the program's arrays are assumed to move at every call.
MOST_EVER = 16
#: How many earlier arrays are remembered for each input.
MOST_REMEMBERED = 8


class CapturedGraph:
    """One recording of a program, the arrays that it works on, and where they must lie.

    at, to   addresses of inputs and of given places; 0 for arrays in the take's own memory
    borrowed weak references to the results lent from the take's own memory
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
        self.at: list[int] = []
        self.to: list[int] = []
        self.borrowed: list[weakref.ref] = []
        self.held: list[Block] = []

    @property
    def own(self) -> list[int]:
        """The addresses of the memory that the take lends."""
        return [out.data.ptr for out, given in zip(self.outs, self.to) if not given]

    def fits(self, at: Sequence[int], to: Sequence[int]) -> bool:
        """True if these arrays lie where they must, and nothing lent is still in use."""
        return (
            all(mine == theirs or not mine for mine, theirs in zip(self.at, at))
            and all(mine == theirs or not mine for mine, theirs in zip(self.to, to))
            and all(ref() is None for ref in self.borrowed)
        )

    def bring(self, arrays: Sequence[Any]) -> None:
        """Copy the inputs that lie elsewhere."""
        for mine, own, array in zip(self.at, self.inputs, arrays):
            if not mine:
                self.lane.device.copy(own, array)

    def give_back(
        self, arrays: Sequence[Any], places: Sequence[Any], mutated: Sequence[int]
    ) -> list[Any]:
        """The results; changes to copies of inputs are written back to the inputs."""
        for i in mutated:
            if not self.at[i]:
                self.lane.device.copy(arrays[i], self.inputs[i])
        results = []
        self.borrowed = []
        for given, out, place in zip(self.to, self.outs, places):
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

    def free_pending(self) -> None:
        """Free all memory, on the threads of its lanes, after all pending work."""
        lane, held = self.lane, self.held
        self.workspace.lends.difference_update(self.own)
        blocks = [*held, Block(dict(self.__dict__), lane)]
        self.__dict__.clear()
        for block in blocks:
            block.order.writer = lane.stream.last
            block.lane.pending_free.append(block)


class CapturedGraphs:
    """The takes of one program.

    reason    why the program is not recorded; None as long as it may be
    replayed  number of calls that were replays
    segments  of bulk segments that begin with this program, by their key (`replay_tasks`)
    """

    def __init__(self, program: Program | SegmentProgram):
        self.program: Any = program
        self.segments: dict[tuple, CapturedGraphs] = {}
        self.reason: str | None = None
        if len(program.parts) > 1:
            self.reason = "it runs in parts, so that its first results can travel meanwhile"
        self.replayed = 0
        self._takes: list[CapturedGraph] = []
        self._make = 0
        self._lane: Any = None
        self._function: Any = None
        self._were: list[deque[Block]] = [deque(maxlen=MOST_REMEMBERED) for _ in program.inputs]
        self._lies_anywhere: set[int] = set()
        self._called = False
        weakref.finalize(self, _bury, self._takes).atexit = False

    def __str__(self) -> str:
        name = self.program.name
        if self.reason is not None:
            return f"{name}: op by op, {self.reason}"
        if not self._takes:
            return f"{name}: not recorded yet, that takes two calls"
        recording = self._takes[0].recording
        assert recording is not None
        parts = f"graphs: {recording.graphs}, calls between them: {recording.calls}"
        return f"{name}: {parts}; replays: {self.replayed}"

    def run(
        self, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any], chunks: Callable
    ) -> list[Any]:
        """The outputs, as by `Program.run`; by a replay where possible. `chunks()` gives the chunks
        of `arrays` and `places`."""
        results = self.replay(arrays, places, keys, chunks)
        return self.program.run(arrays, places, keys) if results is None else results

    def replay(
        self, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any], chunks: Callable
    ) -> list[Any] | None:
        """The outputs by a replay or a new recording; None where neither is possible."""
        if self.reason is None:
            lane = stream_worker.thread_state.lane
            if lane is not self._lane:  # the first call, or a call in another `logical_gpus`
                self._forget()
                self._lane, self._function = lane, None
            at = [0 if isinstance(x, np.ndarray) else x.data.ptr for x in arrays]
            to = [0 if place is None else place.data.ptr for place in places]
            for take in self._takes:
                if take.fits(at, to):
                    assert take.recording is not None
                    take.bring(arrays)
                    take.recording.replay(keys)
                    self.replayed += 1
                    return take.give_back(arrays, places, self.program.mutated)
            if self._called and self._has_room(at):
                return self._take(arrays, places, keys, at, to, chunks)
            self._called = True
            self._remember(chunks())
        return None

    def _remember(self, chunks: Sequence[Any]) -> None:
        for were, chunk in zip(self._were, chunks):
            if chunk is not None and chunk.block not in were:
                were.append(chunk.block)

    def _has_room(self, at: Sequence[int]) -> bool:
        """True if one more take may be recorded. If an input lies elsewhere than in every take, the
        takes are dropped; from now on the input is copied."""
        if len(self._takes) < MOST:
            return True
        moved = [
            i
            for i, address in enumerate(at)
            if all(take.at[i] not in (0, address) for take in self._takes)
        ]
        if not moved:
            return False  # the results that the takes lent are still in use
        self._lies_anywhere.update(moved)
        self._forget()
        return True

    def _forget(self) -> None:
        while self._takes:
            self._takes.pop().free_pending()

    def _take(
        self, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any],
        at: Sequence[int], to: Sequence[int], chunks: Callable,
    ) -> list[Any] | None:  # fmt: skip
        """Run the program in the memory of a new take, then record the take; None if there is no
        memory for it."""
        lane = self._lane
        xp, program, workspace = lane.device.xp, self.program, workspace_of(lane)
        lie_in = chunks()
        stays = [
            bool(address)
            and (chunk.block in were or address in workspace.lends)
            and i not in self._lies_anywhere
            for i, (address, chunk, were) in enumerate(zip(at, lie_in, self._were))
        ]
        self._remember(lie_in)
        try:
            if self._function is None:
                self._function = program.function()
            inputs = [
                xp.ndarray(x.shape, x.dtype, x.data) if stay else xp.empty(x.shape, x.dtype)
                for x, stay in zip(arrays, stays)
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
        take = CapturedGraph(lane, workspace, self._function, inputs, outs)
        take.at = [address if stay else 0 for address, stay in zip(at, stays)]
        take.to = list(to)
        # Other threads may drop these arrays, but their memory is not reused during this check.
        take.held = [
            Block(array.data, chunk.block.lane)
            for array, chunk, address in zip(
                (*arrays, *places), lie_in, (*take.at, *take.to), strict=True
            )
            if address
        ]
        take.bring(arrays)
        with xp.cuda.using_allocator(workspace.malloc):
            program.run_in(take.run, inputs, outs, keys)
        try:
            take.recording = capture(
                lane, workspace,
                lambda later: program.run_in(take.run, inputs, outs, later), len(keys),
            )  # fmt: skip
        except Exception as problem:
            cause = problem.__cause__
            lane.device.task_error(cause if isinstance(cause, Exception) else problem)
            lane.device.check()
            self._give_up(str(problem).splitlines()[0])
        results = take.give_back(arrays, places, program.mutated)
        if take.recording is None:
            take.free_pending()
        else:
            self._takes.append(take)
            workspace.lends.update(take.own)
            self._make += 1
            if self._make > MOST_EVER:
                self._give_up("its arrays lie elsewhere at nearly every call")
        return results

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._forget()
        self._function = None


def _bury(takes: list[CapturedGraph]) -> None:
    while takes:
        takes.pop().free_pending()
