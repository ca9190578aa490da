"""The recorded launches of a call, ready to be repeated: all arguments but addresses are prepared.

A call is one of a program or of an op. `record` runs it once on stand-ins (`recorder`); `Launches`
binds what was written down to a lane: kernels are compiled, numbers packed, calls of cuBLAS made
ready. To repeat it, the host fills in where the arrays begin.

Some numbers differ from call to call: the keys of random numbers, the learning rates of an
optimizer's step. Launches with such numbers were made by functions that the recorder has kept
(`current.outside`); before a call with other numbers these functions are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from d2lmini.context import Context
from d2lmini.cuda.current import recording_into
from d2lmini.cuda.kernels.launch import THREADS
from d2lmini.cuda.products import library_of
from d2lmini.cuda.recorder import (
    CopyStep,
    GemmStep,
    NotRecorded,
    RecordedKey,
    Recorder,
    Step,
    ZeroStep,
)
from d2lmini.graph.ir import Draw, Node, spec_of
from d2lmini.graph.passes import simplify
from d2lmini.graph.plan import Arenas
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import OpTask
from d2lmini.ndarray.plan import CallPlan

#: The threads of a block of all launches.
BLOCK = (THREADS, 1, 1)
#: Bytes that a GPU moves in a microsecond, roughly.
BYTES_PER_US = 2e6
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
    run           puts the launches on the stream; takes where the inputs and outputs begin
    given         what differed between calls at the last one; None if nothing does
    graphs        the CUDA graphs made of them, for a program that wants some
    inputs        the specs of the inputs
    steps         the launches, as functions of `places`
    ranges        the first and the last step, exclusively, of launches with other numbers each time
    """

    __slots__ = (
        "_beyond", "_fixed", "_numbers", "_recorder", "given", "graphs", "inputs", "is_map",
        "mutated", "name", "predicted_us", "ranges", "run", "spares", "specs", "steps",
    )  # fmt: skip

    def __init__(self, lane: Any, call: Any, task: Any):
        given = [*given_of(task)]
        recorder, n = record(call, lane.device.ctx, task, given)
        places, steps = recorder.places, recorder.steps
        self.name = call.name
        self.specs = [spec for _, _, spec in task.outputs]
        self.spares: list[list[Any] | None] = [
            lane.spares.setdefault(spec, []) if spec.nbytes < MOST_SPARE else None
            for spec in self.specs
        ]
        inputs = [operand for operand in task.inputs if operand is not None]
        self.inputs = [spec for _, _, spec in inputs]
        self.mutated = [i for i, (chunk, _, _) in enumerate(inputs) if chunk in task.writes]
        self.is_map = recorder.maps == len(steps) == 1
        self.predicted_us = 2.0 + sum([place.nbytes for place in places]) / BYTES_PER_US
        xp = lane.device.xp
        scratch = {
            number: xp.asarray(recorder.constants[number])
            if number in recorder.constants
            else lane.scratch(number - n, place.nbytes)
            for number, place in enumerate(places)
            if number >= n
        }
        used = dict.fromkeys([at for step in steps for at in step.memory])
        self._beyond = [at for at in used if at.base < n and at.offset]
        fixed = [at for at in used if at.base >= n]
        self._fixed = [scratch[at.base].data + at.offset for at in fixed]
        index = {at: at.base for at in used}
        index |= {at: n + i for i, at in enumerate([*self._beyond, *fixed])}
        numbers: list[list[Any]] = [[()] for _ in steps]
        self.steps = [
            _bind(lane, step, [index[at] for at in step.memory], cell)
            for step, cell in zip(steps, numbers)
        ]
        is_plain = len(steps) == 1 and not self._beyond and not fixed
        self.run = self.steps[0] if is_plain else self._run_all
        self.given = given if recorder.calls and given else None
        self._numbers = numbers
        self._recorder = recorder if recorder.calls else None
        self.ranges = [(first, last) for _, first, last in recorder.calls]
        self.graphs = call.replays if isinstance(call, Program) else None
        if self.graphs is not None:
            self.graphs.restart()

    def renew(self, given: Sequence[Any], xp: Any) -> bool:
        """Pack the numbers of a call for which `given` is something else. False if such a call
        needs other launches."""
        if self.given != [*given]:
            self.given[:] = given  # type: ignore[index]
            for call, first, last in self._recorder.calls:  # type: ignore[union-attr]
                try:
                    steps = self._recorder.launch_again(call, first, last)  # type: ignore[union-attr]
                except NotRecorded:
                    return False
                for step, cell in zip(steps, self._numbers[first:last]):
                    cell[0] = step.kernel.pack(xp, step.numbers)
        return True

    def places(self, memory: list[Any]) -> list[Any]:
        """Where the arrays of the steps begin."""
        if self._beyond or self._fixed:
            beyond = [memory[base] + offset for base, offset in self._beyond]
            memory = [*memory, *beyond, *self._fixed]
        return memory

    def _run_all(self, memory: list[Any]) -> None:
        places = self.places(memory)
        for step in self.steps:
            step(places)


def _bind(lane: Any, step: Step, places: list[int], numbers: list[Any]) -> Callable[[list], None]:
    """A step as a function of where all arrays begin. `numbers` holds those of a kernel, packed."""
    take: Any = (
        itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
    )
    stream = lane.stream.handle
    if isinstance(step, ZeroStep):
        nbytes = step.nbytes
        return lambda memory: take(memory)[0].memset_async(0, nbytes, stream)
    if isinstance(step, CopyStep):
        nbytes = step.nbytes

        def copy(memory: list) -> None:
            target, source = take(memory)
            target.copy_from_device_async(source, nbytes, stream)

        return copy
    if isinstance(step, GemmStep):
        gemm = library_of(lane.device.xp).prepare(lane, step.call, step.turned, step.dtype)
        return lambda memory: gemm(*take(memory))
    function, grid = step.kernel.function_on(lane.device.xp), step.grid
    numbers[0] = step.kernel.pack(lane.device.xp, step.numbers)
    return lambda memory: function(grid, BLOCK, (*take(memory), *numbers[0]), 0, stream)


def record(call: Any, ctx: Context, task: Any, given: list[Any]) -> tuple[Recorder, int]:
    """The launches of a call as `task` makes it, and how many of the arrays are its inputs and
    outputs: the others are scratch. `given` gets what differs between calls: random keys, or the
    steps of an optimizer. NotRecorded if it asks for something else."""
    recorder = Recorder()
    if isinstance(call, CallPlan):
        if not call.outputs:
            arrays = [recorder.empty(*spec) for spec in call.inputs]
            attrs = {**task.attrs, "steps": given} if "steps" in task.attrs else task.attrs
            with recording_into(recorder):
                call.kernel_on("cuda")(recorder, *arrays, **attrs)
            return recorder, len(arrays)
        call = program_of(call, ctx, Arenas(ctx), task)
    program: Program = call
    arrays = [recorder.empty(*spec_of((node, 0))) for node in program.inputs]
    outs = [recorder.empty(*spec) for spec in program.specs]
    keys = [RecordedKey(recorder, given, i) for i in range(len(given))]
    with recording_into(recorder):
        results = recorder.run_program(program, arrays, outs, keys)
    if any([result is not out for result, out in zip(results, outs)]):
        raise NotRecorded("a result in another place")
    return recorder, len(arrays) + len(outs)


def program_of(plan: CallPlan, ctx: Context, arenas: Arenas, task: OpTask) -> Program:
    """The call of an op as a program."""
    op = plan.op
    names = op.input_names if not op.variadic else [f"x{i}" for i in range(len(task.inputs))]
    variables = [
        None if operand is None else Node(None, name, specs=(operand[2],))
        for name, operand in zip(names, task.inputs)
    ]
    attrs = dict(task.attrs)
    if attrs.get("rng") is not None:
        attrs["rng"] = Draw(0)
    inputs = tuple([None if v is None else (v, 0) for v in variables])
    node = Node(op, "y", inputs, attrs, plan.outputs)
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
