"""A call of a program on arrays: computed inline, or one task of the engine.

Calls of programs are dispatched like calls of ops (`ndarray/dispatch.py`). A queued call makes its
outputs, pushes a task and returns. Queued tasks hold no memory for intermediate results: an arena
is in use only while a program runs, so there are at most as many arenas as workers. The outputs are
pending until the task has run, like the outputs of an op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import SMALL, Chunk, check_there, pool_of
from d2lmini.engine.core import Task, lock
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, array_of
from d2lmini.ndarray.dispatch import kind_of, note_writes, run_inline, wrap
from d2lmini.ndarray.ndarray import NDArray


class ProgramTask(Task):
    """One call of a program on the chunks of its inputs and outputs."""

    __slots__ = ("inputs", "keys", "outputs", "program")

    preserves_old = defers = True

    def __init__(
        self, program: Program, inputs: list[Operand], outputs: list[Operand], ctx: Context,
        keys: Sequence[Any],
    ):  # fmt: skip
        # Sets the fields of Task without Task.__init__, to save a call in every small program.
        self.name = program.name
        self.ctx = ctx
        self.priority = 0
        self.predicted_us = program.predicted_us
        self.site = None
        self.cancelled = None
        self.waits = 0
        reads = [operand[0] for operand in inputs]
        # An output that is a part of a chunk changes the chunk in place, so the chunk is also read.
        reads += [c for c, offset, spec in outputs if offset is not None or spec.nbytes < c.nbytes]
        self.reads = tuple(reads)
        self.writes = tuple(
            [operand[0] for operand in outputs] + [inputs[i][0] for i in program.mutated]
        )
        self.program = program
        self.inputs = inputs
        self.outputs = outputs
        self.keys = keys

    @property
    def multi_step(self) -> bool:
        return bool(self.program.mutated) or any(c.data is not None for c, _, _ in self.outputs)

    @property
    def callee(self) -> Program:
        return self.program

    @property
    def cost(self) -> Any:
        """Predicted FLOPs and bytes."""
        return self.program.cost

    def footprint(self) -> Any:
        cost = self.cost
        return lambda: cost

    def run(self) -> None:
        run_quietly(self._compute)

    def _compute(self) -> None:
        places = self._places()
        results = self.program.run([array_of(i) for i in self.inputs], places, self.keys)
        for operand, place, result in zip(self.outputs, places, results):
            if operand[0].data is None:
                operand[0].adopt(result)
            elif place is None:
                np.copyto(array_of(operand), result)

    def _places(self) -> list[np.ndarray | None]:
        """The arrays that the program writes outputs to. None for an output that would overwrite an
        input or another output: that output is copied to its chunk at the end."""
        seen = {operand[0] for operand in self.inputs}
        places: list[np.ndarray | None] = []
        for operand in self.outputs:
            chunk, _, spec = operand
            place = None
            if chunk not in seen:
                if chunk.data is not None:
                    place = array_of(operand)
                elif chunk.weight:
                    place = chunk.allocate(spec.shape, spec.dtype)
            seen.add(chunk)
            places.append(place)
        return places


class ProgramCall:
    """The calls of one program in one context, for `dispatch.run_inline`. A call is computed inline
    if the program is small and its inputs are ready; otherwise `launch` pushes it (`launcher_of`).

    run  the program's function on its arena; None before the first inline call. `run` is called
         with the engine's lock held, so inline calls of all programs with the same `arenas` use
         the same arena, which `run` keeps alive.
    """

    __slots__ = (
        "cost", "ctx", "launch", "name", "no_outputs", "outputs", "predicted_us", "program", "run",
        "tiny",
    )  # fmt: skip

    run: Any

    def __init__(self, program: Program, ctx: Context, launch: Callable[..., list[NDArray]]):
        self.program = program
        self.ctx = ctx
        self.launch = launch
        self.name = program.name
        self.outputs = program.specs
        self.tiny = all([spec.nbytes < SMALL for spec in program.specs])
        # Never inline if the program changes an input in several steps.
        never = not ctx.is_cpu or program.mutated
        self.predicted_us = float("inf") if never else program.predicted_us
        self.no_outputs = program.no_outputs
        cost = program.cost
        self.cost = lambda: cost  # a trace may keep this function longer than the program
        self.run = None

    def __call__(
        self, inputs: Sequence[NDArray], keys: Sequence[Any], outs: Sequence[Any] = ()
    ) -> list[NDArray]:
        """The outputs; new arrays where `outs` has none. MXNetError if an input is in another
        context."""
        ctx = self.ctx
        if self.run is None and self.predicted_us < engine.current.inline_below:
            with lock:
                self.run = self.program.arenas.function(self.program)
        results = run_inline(self, inputs, ctx, outs, keys)
        if results is not None:
            return results
        for x in inputs:
            if x._ctx is not ctx:
                raise MXNetError(f"{self.name}: inputs are on {ctx} and {x._ctx}")
        return self.launch(self.program, inputs, ctx, keys, outs)


def push(
    program: Program, inputs: Sequence[NDArray], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any] = (),
) -> list[NDArray]:  # fmt: skip
    """Push a call of `program`. Returns the outputs; new arrays where `outs` has none."""
    results = _results_of(program, inputs, ctx, outs)
    note_writes([inputs[i] for i in program.mutated] + [x for x in outs if x is not None])
    task = ProgramTask(program, _operands(inputs), _operands(results), ctx, keys)
    if not ctx.is_cpu:
        check_there(task.reads + task.writes)
    engine.current.push(task)
    return results


def _results_of(
    program: Program, inputs: Sequence[NDArray], ctx: Context, outs: Sequence[Any]
) -> list[NDArray]:
    """The arrays of the outputs: those of `outs`, else new ones."""
    pool = inputs[0]._chunk.pool if inputs else pool_of(ctx)
    kind = kind_of(inputs)
    return [
        wrap(Chunk(pool, spec.nbytes), spec, ctx, kind=kind) if out is None else out
        for spec, out in zip_longest(program.specs, outs)
    ]


def _operands(arrays: Sequence[NDArray]) -> list[Operand]:
    return [(x._chunk, x._offset, x._spec) for x in arrays]


def launcher_of(program: Program, ctx: Context, static: bool) -> Callable[..., list[NDArray]]:
    """How calls of a program are pushed; `static`: whether shapes and memory stay what they are."""
    return device_of(ctx).launcher(program, static) or push
