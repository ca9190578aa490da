"""The short road of a call that is over sooner than it could be handed to a worker.

What the engine's `run_inline` does for any task, for a compiled net on one example: the whole net
takes fifteen microseconds there, so the way to it must not take ten. Nothing is queued; when
something is pending, failed, a view, or watched event by event, the call goes the long road. So it
does when the program fails, for there the error is kept on the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from d2lmini import engine, instrument
from d2lmini.context import Context
from d2lmini.device.quiet import run_locked
from d2lmini.device.storage import SMALL, Chunk, Pool, pool_of
from d2lmini.engine.core import lock
from d2lmini.engine.road import here
from d2lmini.graph.program import Program, Run
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ndarray.short import is_all, tell
from d2lmini.ops.spec import Spec

new = object.__new__


class ShortRoad:
    """Calls of one program in one context, computed where they are made.

    `run` is used with the lock held, so one arena serves all of the program's arenas for that; it
    owns that memory. None before the first call.
    """

    __slots__ = ("ctx", "pool", "program", "run")

    def __init__(self, program: Program, ctx: Context):
        self.program = program
        self.ctx = ctx
        self.pool = pool_of(ctx)
        self.run: Run | None = None

    @staticmethod
    def leads(program: Program) -> bool:
        """Can calls of `program` go it at all? Not if it changes an input, for writes are counted
        and noted, nor if an output counts against the bound on pending memory."""
        return not program.mutated and all(spec.nbytes < SMALL for spec in program.specs)

    def call(self, inputs: Sequence[NDArray], keys: Sequence[Any]) -> list[NDArray] | None:
        """The outputs; None when this call has to go the long road."""
        current = engine.current
        program = self.program
        watched = instrument.all_in_one
        if program.predicted_us >= current.inline_below or here.task or instrument.apart:
            return None
        with lock:
            begin_ns = perf_counter_ns() if watched else 0
            arrays = self._contents(inputs)
            if arrays is None:
                return None
            try:
                run = self.run
                if run is None:
                    run = self.run = program.arenas.function(program)
                results = run_locked(run, arrays, program.anywhere, keys)
            except Exception:
                return None
            outs = _adopted(results, program.specs, self.ctx, self.pool)
            current.inlined = inlined = current.inlined + 1
            if not inlined & 63:
                self.pool.review()
            if watched:
                writes = tuple([y._chunk for y in outs])
                cost = program.cost
                tell(
                    program.name, self.ctx, inputs, writes, program.predicted_us, lambda: cost,
                    begin_ns,
                )  # fmt: skip
        return outs

    def _contents(self, inputs: Sequence[NDArray]) -> list[np.ndarray] | None:
        """The arrays of the inputs, if nothing is pending on them and each is the whole of its
        memory (lock held)."""
        ctx = self.ctx
        arrays: list[Any] = []
        add = arrays.append
        for x in inputs:
            chunk = x._chunk
            if chunk.writer is not None or chunk.queue or chunk.error is not None:
                return None
            if x._ctx is not ctx:
                return None
            if chunk.spec is not x._spec and not is_all(chunk, x):
                return None
            add(chunk.data)
        return arrays


def _adopted(
    results: Sequence[np.ndarray], specs: Sequence[Spec], ctx: Context, pool: Pool
) -> list[NDArray]:
    """Results as arrays of their own, entered in the books (lock held)."""
    outs = []
    for result, spec in zip(results, specs):
        chunk = Chunk(pool, spec.nbytes)
        chunk.data = result
        pool.live += spec.nbytes
        array = new(NDArray)
        array._chunk = chunk
        array._handle = array._offset = array._node = None
        array._spec = spec
        array._ctx = ctx
        outs.append(array)
    return outs
