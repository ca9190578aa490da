"""Tasks that may be replays (`cuda_graph`): a call of a program, and a whole bulk segment.

    with engine.bulk(20):
        with autograd.record():
            loss = net(x, y)        # hybridized with static_alloc and static_shape
        loss.backward()
        trainer.step(n)

A segment of `engine.bulk` is a list of tasks that run one after the other. If one of the tasks is a
call of a program that may be replayed, the whole segment is replayed: a `SegmentProgram` describes
the tasks, with numbers for arrays, and `CapturedGraphs` records it like any other program. Its
inputs are the arrays that existed before, including those that the tasks change; its outputs are
the arrays that the tasks make.

Segments that run the same tasks on arrays connected in the same way have the same `key`. The first
segment with a key runs task by task, the second is recorded, later ones are replayed. A segment
with a task that cannot be part of a graph always runs task by task, and so does every segment while
a listener is attached to the engine, because it must receive every task. An error in a segment that
runs as one task is stored on the outputs of all its tasks.

After MXNet 1.x, whose bulk segments are CUDA graphs with MXNET_USE_CUDA_GRAPHS=1.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.context import Context
from d2lmini.cuda.cuda_graph import CapturedGraphs
from d2lmini.cuda.ops.update import numbers_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import Chunk
from d2lmini.engine.bulk import BulkSegment
from d2lmini.engine.core import Task
from d2lmini.graph.arena import Run
from d2lmini.graph.call import ProgramTask, push
from d2lmini.graph.lazy_graph import words_of
from d2lmini.graph.program import Program
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.dispatch import OpTask, array_of
from d2lmini.ops.core import Spec, registry

_UPDATE = registry["_fused_update"]

#: Recorded segments that begin with a call of one program, at most; others run task by task.
MAX_SEGMENTS = 8


class ReplayTask(ProgramTask):
    """A call of a program that may be a replay."""

    __slots__ = ()

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


# -- bulk segments ---------------------------------------------------------------------------------


class _Memory:
    """Stands for a chunk in the tasks of a `SegmentProgram`: the array of one recording."""

    __slots__ = ("data", "nbytes")

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self.data: Any = None


class _Call(ProgramTask):
    """A call of a program in the memory of one recording."""

    __slots__ = ("function",)

    function: Run

    def _results(self, arrays: list[Any], places: list[Any]) -> list[Any]:
        return self.program.run_in(self.function, arrays, places, self.keys)


class Wiring:
    """The tasks of a segment, and how arrays connect them.

    key      equal for segments that do the same; None if a task cannot be part of a graph
    inputs   the operands that the tasks read; a chunk for an input that tasks change, at `mutated`
    outputs  the chunks whose contents the tasks make, with their `specs`
    keys     the random keys of the programs
    numbers  numbers that the optimizer's steps read from memory, such as a learning rate
    owner    the CapturedGraphs of the first program, which also keep those of the segment
    """

    def __init__(self, segment: BulkSegment):
        self.tasks: list[Any] = list(segment.parts)
        numbers: dict[Any, int] = {}  # of chunks and operands
        made: dict[Chunk, Spec] = {}
        self.keys: list[Any] = []
        self.numbers: list[float] = []
        self.key: tuple | None = None
        self.owner: CapturedGraphs | None = None
        key: list[Any] = []
        for task in self.tasks:
            if type(task) in (ProgramTask, ReplayTask):
                key.append(id(task.program))
                self.keys += task.keys
                self.owner = self.owner or task.program.replays
            elif type(task) is OpTask and task.op is _UPDATE:
                specs = [spec for _, _, spec in task.inputs]
                found = numbers_of(task.attrs["steps"], specs)
                if found is None:
                    return
                key.append(found[0])
                self.numbers += found[1]
            elif type(task) is OpTask and not task.op.random:
                key += [task.op, *words_of(task.attrs)]
            else:
                return
            for operand in (*task.inputs, None, *task.outputs):
                if operand is None:
                    key.append(None)
                    continue
                chunk, offset, spec = operand
                if chunk.data is None or chunk in segment.writes:
                    key += [numbers.setdefault(chunk, len(numbers)), offset, chunk.nbytes]
                else:  # the next segment may pass another part of another chunk here
                    key.append(numbers.setdefault(operand, len(numbers)))
                key.append(spec.number)
            for chunk, _, spec in task.outputs:
                if chunk.data is None:
                    made.setdefault(chunk, spec)
        key += [slot in made for slot in numbers]
        self.inputs = [slot for slot in numbers if slot not in made]
        self.mutated = [i for i, slot in enumerate(self.inputs) if isinstance(slot, Chunk)]
        self.outputs = list(made)
        self.specs = list(made.values())
        if self.owner is not None and all(self.inputs[i].data is not None for i in self.mutated):
            self.key = tuple(key)

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the inputs, and the numbers if there are any."""
        numbers = [np.array(self.numbers)] if self.numbers else []
        return [s.data if isinstance(s, Chunk) else array_of(s) for s in self.inputs] + numbers

    def chunks(self) -> list[Any]:
        """The chunks of all arrays; None for numbers."""
        chunks = [slot if isinstance(slot, Chunk) else slot[0] for slot in self.inputs]
        return [*chunks, *([None] if self.numbers else []), *self.outputs]


class SegmentProgram:
    """The tasks of a segment as a program for `CapturedGraphs`: from `inputs`, the arrays that
    existed before, to arrays of `specs`, which the tasks make.

    mutated  positions of the inputs that the tasks change
    at       index of the running task
    """

    parts = (None,)  # the segment runs in one part

    def __init__(self, wiring: Wiring):
        self.name = "bulk: " + ", ".join(dict.fromkeys(task.name for task in wiring.tasks))
        self.specs = wiring.specs
        self.mutated = wiring.mutated
        slots = (*wiring.inputs, *wiring.outputs)
        memory = {s: _Memory(s.nbytes if isinstance(s, Chunk) else s[2].nbytes) for s in slots}
        self.inputs = [memory[slot] for slot in wiring.inputs]
        self._numbers = _Memory(0)
        if wiring.numbers:
            self.inputs.append(self._numbers)
        self._outputs = [memory[chunk] for chunk in wiring.outputs]
        self.at = 0
        self._tasks = [_copy_of(task, memory) for task in wiring.tasks]

    def function(self) -> Run:
        """The object that its programs run in and that it keeps alive."""
        functions: list[Any] = [
            task.program.function() if isinstance(task, _Call) else None for task in self._tasks
        ]

        # Weakly: recordings keep this function; a strong reference would make a cycle.
        mine = weakref.ref(self)

        def run(arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
            program = mine()
            assert program is not None
            slots = (*program.inputs, *program._outputs)
            for memory, array in zip(slots, (*arrays, *places)):
                memory.data = array
            try:
                program._run(functions, keys)
            finally:
                for memory in slots:  # the array belongs to the recording
                    memory.data = None
            return list(places)

        return run

    def _run(self, functions: Sequence[Any], keys: Sequence[Any]) -> None:
        drawn = 0
        for i, (task, function) in enumerate(zip(self._tasks, functions)):
            self.at = i
            if isinstance(task, _Call):
                task.function = function
                end = drawn + len(task.keys)
                task.keys, drawn = keys[drawn:end], end
            elif task.op is _UPDATE:
                task = copy.copy(task)
                task.attrs = {**task.attrs, "numbers": self._numbers.data}
            task.run()

    def run_in(
        self, run: Run, arrays: Sequence[Any], places: Sequence[Any], keys: Sequence[Any]
    ) -> list[Any]:
        """As `Program.run_in`."""
        return run(arrays, places, keys)


def _copy_of(task: Any, memory: dict[Any, _Memory]) -> Any:
    """A copy of a task that works on the arrays in `memory`."""
    if isinstance(task, ProgramTask):
        made: Any = _Call(
            task.program,
            _redirect(task.inputs, memory),
            _redirect(task.outputs, memory),
            task.ctx,
            task.keys,
        )
    else:
        made = copy.copy(task)
        made.inputs, made.outputs = _redirect(task.inputs, memory), _redirect(task.outputs, memory)
    made.reads = made.writes = made.shared = ()
    return made


def _redirect(operands: Sequence[Any], memory: dict[Any, _Memory]) -> list[Any]:
    """Operands in `memory`, where each chunk has a whole array."""
    found: list[Any] = []
    for operand in operands:
        if operand is None or operand[0] in memory:
            found.append(operand and (memory[operand[0]], *operand[1:]))
        else:
            found.append((memory[operand], None, operand[2]))
    return found


class SegmentTask(Task):
    """The tasks of a segment as one task. `ran`: True if the tasks have run, False if none has."""

    __slots__ = ("ran", "replays", "wiring")

    def __init__(self, segment: BulkSegment, wiring: Wiring, replays: CapturedGraphs):
        reads = dict.fromkeys(var for task in wiring.tasks for var in task.reads)
        super().__init__(replays.program.name, tuple(reads), (), segment.ctx, segment.priority)
        self.shared, self.writes = tuple(segment.shared), tuple(segment.writes)
        self.seq = segment.seq
        self.wiring = wiring
        self.replays = replays
        self.ran = False

    def run(self) -> None:
        run_quietly(self._replay)

    def _replay(self) -> None:
        wiring = self.wiring
        self.ran = True
        try:
            results = self.replays.replay(
                wiring.arrays, [None] * len(wiring.outputs), wiring.keys, wiring.chunks
            )
        except Exception:
            failed = wiring.tasks[self.replays.program.at]
            self.name, self.site = failed.name, failed.site
            raise
        if results is None:
            self.ran = False
            return
        for chunk, result in zip(wiring.outputs, results):
            chunk.adopt(result)


def as_one(segment: BulkSegment) -> SegmentTask | None:
    """One task for a whole segment; None if its tasks must run one by one."""
    if len(segment.parts) < 2 or not any(type(task) is ReplayTask for task in segment.parts):
        return None
    try:
        wiring = Wiring(segment)
    except Exception:  # a faulty task raises its own error when it runs
        return None
    owner = wiring.owner
    if wiring.key is None or owner is None:
        return None
    replays = owner.segments.get(wiring.key)
    if replays is None:
        if len(owner.segments) >= MAX_SEGMENTS:
            return None
        replays = owner.segments[wiring.key] = CapturedGraphs(SegmentProgram(wiring))
    return SegmentTask(segment, wiring, replays) if replays.reason is None else None


BulkSegment.as_one = as_one
