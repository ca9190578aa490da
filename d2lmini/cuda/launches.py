"""The recorded launches of a call, ready to be repeated: one by one, or as a CUDA graph.

A call is one of a program or of an op. `record` runs it once on stand-ins (`recorder`); `Launches`
binds what was written down to a lane: kernels are compiled, numbers packed, calls of cuBLAS made
ready. To repeat it, the host fills in where the arrays begin.

Some numbers differ from call to call: the keys of random numbers, the learning rates of an
optimizer's step. The recorder keeps the function that returns them (`Step.more`), which is asked
again before a call with others.

With `hybridize(static_alloc=True, static_shape=True)` a program's launches become CUDA graphs.
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
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from d2lmini.context import Context
from d2lmini.cuda.kernels.launch import BLOCK, NotRecorded
from d2lmini.cuda.memory import Block, is_short_of_memory
from d2lmini.cuda.recorder import RecordedKey, Recorder, Step
from d2lmini.graph.ir import Draw, Node, spec_of
from d2lmini.graph.passes import simplify
from d2lmini.graph.plan import Arenas, Life, arrange
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, OpTask
from d2lmini.ndarray.plan import CallPlan

if TYPE_CHECKING:
    from d2lmini.cuda.stream_worker import StreamWorker

#: Bytes that a GPU moves in a microsecond, roughly.
BYTES_PER_US = 2e6
#: Ops that fill an array with a number. As programs they would keep the array.
FILLS = ("_zeros", "_ones", "_full")
#: Arrays of fewer bytes are kept for the next results.
MOST_SPARE = 1 << 20


class Launches:
    """The launches of a call on one lane, and what they need there.

    name          of the call
    specs         of the outputs, all of them new or given
    spares        arrays like each output whose memory is free; None where they are large
    mutated       which inputs the call changes
    is_map        one elementwise launch: an output may overwrite an input, element by element
    predicted_us  of the GPU's work, roughly
    given         what differed between calls at the last one; None if nothing does
    graphs        the CUDA graphs made of them, for a program that wants some
    inputs        the specs of the inputs
    steps         the launches, as functions of `places`
    fixed         where constants and intermediate results begin, the latter in the lane's scratch
    again         those with other numbers each time: the step, and its numbers as `_bind` has them
    """

    def __init__(self, lane: StreamWorker, key: Any, call: Any, task: Any):
        given = [*given_of(task)]
        recorder, n = record(call, lane.device.ctx, task, given)
        places, steps = recorder.places, recorder.steps
        self.name, self._key = call.name, key
        self.specs = [spec for _, _, spec in task.outputs]
        self.spares: list[list[Any] | None] = [
            lane.spares.setdefault(spec, []) if spec.nbytes < MOST_SPARE else None
            for spec in self.specs
        ]
        inputs = [operand for operand in task.inputs if operand is not None]
        self.inputs = [spec for _, _, spec in inputs]
        self.mutated = [i for i, (chunk, _, _) in enumerate(inputs) if chunk in task.writes]
        self.is_map = len(steps) == 1 and "void element(" in getattr(steps[0].kernel, "source", "")
        self.predicted_us = 2.0 + sum([place.nbytes for place in places]) / BYTES_PER_US
        # Where the arrays of all steps begin: inputs and outputs, parts of these, constants, and
        # intermediate results, which share memory where their lives do not meet.
        lives: dict[int, list[int]] = {}
        for i, step in enumerate(steps):
            for at in step.memory:
                lives.setdefault(at.base, []).append(i)
        xp, constants = lane.device.xp, recorder.constants
        own = [base for base in lives if base >= n and base not in constants]
        plan = arrange([Life("", places[k].nbytes, lives[k][0], lives[k][-1]) for k in own])
        offsets = dict(zip(own, plan.offsets))
        arrays = {base: xp.asarray(constants[base]) for base in lives if base in constants}
        used = dict.fromkeys([at for step in steps for at in step.memory])
        self._parts = [at for at in used if at.base < n and at.offset]
        fixed = [at for at in used if at.base >= n]
        self._fixed = [(arrays.get(at.base), at.offset + offsets.get(at.base, 0)) for at in fixed]
        self.fixed: list[Any] | None = None if fixed else []  # None: the lane's scratch is another
        self._lane, self._nbytes = lane, max(plan.nbytes, 1)
        index = {at: at.base for at in used}
        index |= {at: n + i for i, at in enumerate([*self._parts, *fixed])}
        self._numbers: list[list[Any]] = [[()] for _ in steps]
        self.steps = [
            _bind(lane, step, [index[at] for at in step.memory], cell)
            for step, cell in zip(steps, self._numbers)
        ]
        is_plain = len(steps) == 1 and max(index.values()) < n
        self.run = self.steps[0] if is_plain else self._run_all
        self.changes = [step.more is not tuple for step in steps]
        self.again = [both for both in zip(steps, self._numbers) if both[0].more is not tuple]
        self.given = given if self.again and given else None
        self.graphs = getattr(call, "replays", None)
        if self.graphs is not None:
            self.graphs.restart()

    def renew(self, given: Sequence[Any], xp: Any) -> bool:
        """Pack the numbers of a call for which `given` is something else. False if such a call
        needs other launches: then these are forgotten."""
        if self.given != [*given]:
            self.given[:] = given  # type: ignore[index]
            try:
                numbers = {more: more() for more in {step.more for step, _ in self.again}}
            except NotRecorded:
                self._lane.launches.pop(self._key, None)
                return False
            for step, cell in self.again:
                cell[0] = step.kernel.pack(xp, (*step.numbers, *numbers[step.more]))
        return True

    def places(self, memory: list[Any]) -> list[Any]:
        """Where the arrays of the steps begin."""
        if self.fixed is None:
            scratch = self._lane.scratch(self._nbytes)
            self.fixed = [
                (scratch if array is None else array).data + offset for array, offset in self._fixed
            ]
        parts = [memory[base] + offset for base, offset in self._parts]
        return [*memory, *parts, *self.fixed]

    def _run_all(self, memory: list[Any]) -> None:
        places = self.places(memory)
        for step in self.steps:
            step(places)


def _bind(
    lane: StreamWorker, step: Step, places: list[int], numbers: list[Any]
) -> Callable[[list], None]:
    """A step as a function of where all arrays begin. `numbers` holds those of a kernel, packed."""
    take: Any = (
        itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
    )
    if step.bind is not None:
        call = step.bind(lane)
        return lambda memory: call(*take(memory))
    xp, stream, grid = lane.device.xp, lane.stream.handle, step.grid
    function = step.kernel.function_on(xp)
    numbers[0] = step.kernel.pack(xp, (*step.numbers, *step.more()))
    return lambda memory: function(grid, BLOCK, (*take(memory), *numbers[0]), 0, stream)


def record(call: Any, ctx: Context, task: Any, given: list[Any]) -> tuple[Recorder, int]:
    """The launches of a call as `task` makes it, and how many of the arrays are its inputs and
    outputs: the others are scratch. `given` gets what differs between calls: random keys, or the
    steps of an optimizer. NotRecorded if it asks for something else."""
    recorder = Recorder()
    if isinstance(call, CallPlan):
        if not call.outputs or call.name in FILLS:
            arrays = [recorder.empty(*spec) for spec in (*call.inputs, *call.outputs)]
            attrs = {**task.attrs, "steps": given} if "steps" in task.attrs else {**task.attrs}
            if call.outputs:
                attrs["out"] = arrays[-1]
            call.kernel_on("cuda")(recorder, *arrays[: len(call.inputs)], **attrs)
            return recorder, len(arrays)
        if not (call.inputs or given):
            raise NotRecorded("it makes constants, which need not be kept")
        call = program_of(call, ctx, Arenas(ctx), task)
    program: Program = call
    arrays = [recorder.empty(*spec_of((node, 0))) for node in program.inputs]
    outs = [recorder.empty(*spec) for spec in program.specs]
    keys = [RecordedKey(recorder, given, i) for i in range(len(given))]
    results = recorder.run_program(program, arrays, outs, keys)
    if any([result is not out for result, out in zip(results, outs)]):
        raise NotRecorded("a result in another place")
    recorder.is_open = False
    return recorder, len(arrays) + len(outs)


def program_of(plan: CallPlan, ctx: Context, arenas: Arenas, task: OpTask) -> Program:
    """The call of an op as a program."""
    variables = [
        None if operand is None else Node(None, f"x{i}", specs=(operand[2],))
        for i, operand in enumerate(task.inputs)
    ]
    attrs = dict(task.attrs)
    if attrs.get("rng") is not None:
        attrs["rng"] = Draw(0)
    inputs = tuple([None if v is None else (v, 0) for v in variables])
    node = Node(plan.op, "y", inputs, attrs, plan.outputs)
    results = simplify([(node, i) for i in range(len(plan.outputs))])
    return Program(plan.name, [v for v in variables if v is not None], results, ctx, arenas)


def given_of(task: Any) -> Sequence[Any]:
    """What differs between calls of a task's callee."""
    if type(task) is not OpTask:
        return task.keys  # type: ignore[no-any-return]
    attrs = task.attrs
    if "steps" in attrs:
        return attrs["steps"]  # type: ignore[no-any-return]
    key = attrs.get("rng")
    return () if key is None else (key,)


# -- CUDA graphs -----------------------------------------------------------------------------------

#: Graphs of a program at a time: the results of this many calls may be alive at once.
MAX_GRAPHS = 4
#: After this many captures the program's arrays are assumed to move at every call.
MAX_CAPTURES = 16

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
            self.spares.append(spares)
        self.memory = launches.places(places)
        self.steps: list[Callable[[list[Any]], Any]] = []
        lane.stream.mark()  # the event of an open mark would become a part of the graph
        for changes, pairs in groupby(zip(launches.changes, launches.steps), itemgetter(0)):
            steps = [step for _, step in pairs]
            self.steps += steps if changes else [self._capture(steps)]
        self.calls = sum(launches.changes)
        self.graphs = len(self.steps) - self.calls

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
        """True if the arrays lie where the graph needs them, and the graph is free. memory: where
        they begin; None for a new one."""
        for i, address in self.fixed.items():
            pointer = memory[i]
            if pointer is None or pointer.ptr != address:
                return False
        return self.is_free

    @property
    def is_free(self) -> bool:
        """True if nobody has a result in the graph's own memory."""
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
        if len(self.graphs) == MAX_GRAPHS:
            if not any([graph.is_free for graph in self.graphs]):
                return launches
            _free(self.graphs)  # the arrays have moved
        if not is_worker:
            return None
        pairs = enumerate(zip(blocks, self._before))
        # Where the results of another graph begin, what is there now stays; a view may be another.
        moved = {i for i, (now, before) in pairs if now is not before}
        copied = {i for i in moved if not blocks[i].stays or inputs[i][1]}
        self._before = blocks
        copied.difference_update(launches.mutated)
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
            return self.graphs[-1]
        except Exception as problem:
            lane.device.task_error(problem)
            lane.device.check()
            if is_short_of_memory(problem):
                self.restart("there is no memory for a graph")
            elif isinstance(problem, NotImplementedError) or "CU" in type(problem).__name__:
                self.restart(str(problem).partition("\n")[0])
            else:
                raise
            return None


def _free(graphs: list[Graph]) -> None:
    """Free graphs and their memory, on the threads of their lanes, after all pending work."""
    while graphs:
        graph = graphs.pop()
        lane = graph.lane
        block = Block(graph, lane)
        block.order.writer = lane.stream.last
        lane.pending_free.append(block)
