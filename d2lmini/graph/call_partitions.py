"""A call of a program in parts: a task for each, which run one after the other.

Each task writes a Var that the next one reads: so they keep their order, and where one fails those
behind it have its error. What a part has finished is nobody's concern any more: whoever waits for
it goes on while the next part runs, and if that fails, it stands. An input is let go of by the last
part that reads it.

The arena belongs to the call from its first part to its last. A worker takes the oldest task first,
so a call that has begun ends before another one begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.storage import Chunk, check_there, pool_of
from d2lmini.engine.core import Var
from d2lmini.graph.call import ProgramTask, push
from d2lmini.graph.program import Program
from d2lmini.ndarray.compute import Operand, array_of
from d2lmini.ndarray.dispatch import kind_of, note_writes, wrap
from d2lmini.ndarray.ndarray import NDArray


class PartitionedCall:
    """What the tasks of a call share.

    done     of each part, a Var that says so
    places   of all outputs, each known once the part runs that begins with it
    results  what the parts finish, from the first part on
    """

    __slots__ = ("done", "places", "results")

    def __init__(self, program: Program):
        self.done = [Var() for _ in program.parts]
        self.places: list[np.ndarray | None] = [None] * len(program.outputs)
        self.results: Iterator[list[tuple[int, np.ndarray]]] | None = None


class PartitionTask(ProgramTask):
    """One part of a call; `inputs` and `outputs` are those that it uses."""

    __slots__ = ("call", "number")

    def __init__(
        self, program: Program, number: int, call: PartitionedCall, inputs: Sequence[Operand],
        outputs: Sequence[Operand], ctx: Context, keys: Sequence[Any],
    ):  # fmt: skip
        part = program.parts[number]
        # The first is given all, and so waits for all; the others see what they hold.
        given = inputs if number == 0 else [inputs[i] for i in part.inputs]
        super().__init__(program, list(given), [outputs[i] for i in part.holds], ctx, keys)
        self.name = f"{program.name} ({number + 1} of {len(program.parts)})"
        self.predicted_us = part.cost.us
        self.reads = (*self.reads, *call.done[max(number - 1, 0) : number])
        self.writes = (*self.writes, call.done[number])
        self.call = call
        self.number = number

    @property
    def cost(self) -> Any:
        """Predicted FLOPs and bytes."""
        return self.program.parts[self.number].cost

    def _compute(self) -> None:
        call, part = self.call, self.program.parts[self.number]
        places = self._places()
        for i, place in zip(part.holds, places):
            call.places[i] = place
        if call.results is None:
            arrays = [array_of(operand) for operand in self.inputs]
            call.results = self.program.begin(arrays, call.places, self.keys)
        finished = dict(next(call.results))
        for i, operand in zip(part.holds, self.outputs):
            if i in finished and operand[0].data is None:
                operand[0].adopt(finished[i])
        if self.number + 1 == len(self.program.parts):
            call.results.close()  # type: ignore[attr-defined]


def push_parts(
    program: Program, inputs: Sequence[NDArray], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any],
) -> list[NDArray]:  # fmt: skip
    """Push the parts of a call; its outputs, new arrays where `outs` has None. One task for all if
    an output is a view, or lies where an input does: it comes there when everything is computed."""
    given = [x for x in outs if x is not None]
    taken = {x._chunk for x in (*inputs, *given)}
    read = {x._chunk for x in inputs}
    if len(taken) < len(read) + len(given) or any([x._offset is not None for x in given]):
        return push(program, inputs, ctx, keys, outs)
    pool = inputs[0]._chunk.pool if inputs else pool_of(ctx)
    results = [
        wrap(Chunk(pool, spec.nbytes), spec, ctx, kind=kind_of(inputs)) if out is None else out
        for spec, out in zip(program.specs, outs)
    ]
    operands = [(x._chunk, x._offset, x._spec) for x in inputs]
    places = [(y._chunk, y._offset, y._spec) for y in results]
    call = PartitionedCall(program)
    for number, part in enumerate(program.parts):
        task = PartitionTask(program, number, call, operands, places, ctx, keys)
        note_writes([outs[i] for i in part.holds if outs[i] is not None])
        if not ctx.is_cpu:
            check_there([x._chunk for x in (*inputs, *results)])
        engine.current.push(task)
    return results


def way_of(program: Program, ctx: Context, static: bool) -> Callable[..., list[NDArray]]:
    """How calls of a program are pushed; `static`: whether shapes and memory stay what they are."""
    push_replayed = device_of(ctx).replay_calls(program) if static else None
    if push_replayed is not None:
        return push_replayed
    return push_parts if len(program.parts) > 1 else push
