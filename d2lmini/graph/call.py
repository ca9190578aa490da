"""A call of a program on arrays: computed inline, or one task of the engine.

As calls of ops are, by `ndarray/dispatch.py`. Where a call is queued, outputs are made, a task is
pushed, the call returns. Memory for intermediate results is none of the queue's business: an arena
exists while its program runs, so there are never more than workers. Outputs count as pending until
they are there, as those of any operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.device.errstate import run_quietly
from d2lmini.device.storage import SMALL, Chunk, check_there, pool_of
from d2lmini.engine.core import Task, lock
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, array_of
from d2lmini.ndarray.dispatch import kind_of, note_writes, run_inline, wrap
from d2lmini.ndarray.ndarray import NDArray


class ProgramTask(Task):
    """One call of a program: where its inputs lie, where its outputs go."""

    __slots__ = ("inputs", "keys", "outputs", "program")

    spares = defers = True
    #: Do results get their memory before they are computed?
    fills = True

    def __init__(
        self, program: Program, inputs: list[Operand], outputs: list[Operand], ctx: Context,
        keys: Sequence[Any],
    ):  # fmt: skip
        # The fields of Task, set here: a call saved on every small program.
        self.name = program.name
        self.ctx = ctx
        self.priority = 0
        self.predicted_us = program.predicted_us
        self.site = None
        self.cancelled = None
        self.waits = 0
        reads = [operand[0] for operand in inputs]
        # Only a whole chunk is overwritten; a part of one is changed in place.
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
    def in_steps(self) -> bool:
        return bool(self.program.mutated) or any(c.data is not None for c, _, _ in self.outputs)

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
        results = self._results([array_of(i) for i in self.inputs], places)
        for operand, place, result in zip(self.outputs, places, results):
            if operand[0].data is None:
                operand[0].adopt(result)
            elif place is None:
                np.copyto(array_of(operand), result)

    def _results(self, arrays: list[Any], places: list[Any]) -> list[Any]:
        return self.program.run(arrays, places, self.keys)

    def _places(self) -> list[np.ndarray | None]:
        """Where outputs are computed right into. Not over an input, nor one over another: such an
        output comes to its place when all is computed."""
        seen = {operand[0] for operand in self.inputs}
        places: list[np.ndarray | None] = []
        for operand in self.outputs:
            chunk, _, spec = operand
            place = None
            if chunk not in seen:
                if chunk.data is not None:
                    place = array_of(operand)
                elif chunk.weight and self.fills:
                    place = chunk.allocate(spec.shape, spec.dtype)
            seen.add(chunk)
            places.append(place)
        return places


class Calls:
    """The calls of one program in one context: each computed inline where it is small and its
    inputs are there, else pushed as a task by `way` (see `way_of`).

    A `dispatch.Call`. `run` is used with the engine's lock held, so one arena serves all inline
    calls of programs that share their arenas, and `run` owns that memory; None before the first.
    """

    __slots__ = (
        "cost", "ctx", "name", "nowhere", "outputs", "predicted_us", "program", "run", "tiny",
        "way",
    )  # fmt: skip

    run: Any

    def __init__(self, program: Program, ctx: Context, way: Callable[..., list[NDArray]]):
        self.program = program
        self.ctx = ctx
        self.way = way
        self.name = program.name
        self.outputs = program.specs
        self.tiny = all([spec.nbytes < SMALL for spec in program.specs])
        # Not inline if it changes an input, in several steps, or runs as several tasks.
        never = not ctx.is_cpu or program.mutated or len(program.parts) > 1
        self.predicted_us = float("inf") if never else program.predicted_us
        self.nowhere = program.anywhere
        cost = program.cost
        self.cost = lambda: cost  # traces keep it longer than the program
        self.run = None

    def __call__(
        self, inputs: Sequence[NDArray], keys: Sequence[Any], outs: Sequence[Any] = ()
    ) -> list[NDArray]:
        """The outputs, new arrays where `outs` has none. MXNetError for inputs elsewhere."""
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
        return self.way(self.program, inputs, ctx, keys, outs)


def push(
    program: Program, inputs: Sequence[NDArray], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any] = (), kind: type[ProgramTask] = ProgramTask,
) -> list[NDArray]:  # fmt: skip
    """Push a call of `program`; its outputs, new arrays unless `outs` has one for the place."""
    pool = inputs[0]._chunk.pool if inputs else pool_of(ctx)
    results = []
    for i, spec in enumerate(program.specs):
        given = outs[i] if i < len(outs) else None
        if given is None:
            given = wrap(Chunk(pool, spec.nbytes), spec, ctx, kind=kind_of(inputs))
        results.append(given)
    changed = [inputs[i] for i in program.mutated] + [x for x in outs if x is not None]
    if changed:
        note_writes(changed)
    operands = [(x._chunk, x._offset, x._spec) for x in inputs]
    places = [(y._chunk, y._offset, y._spec) for y in results]
    task = kind(program, operands, places, ctx, keys)
    if not ctx.is_cpu:
        check_there(task.reads + task.writes)
    engine.current.push(task)
    return results
