"""The short road of a call that is over sooner than it could be handed to a worker.

What the engine's `run_inline` does for any task, for a compiled net on one example: the whole net
takes fifteen microseconds there, so the way to it must not take ten. Nothing is queued; when
something is pending, failed, watched, or a view, the call goes the long road. So it does when the
program fails, for there the error is kept on the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini import engine, instrument
from d2lmini.context import Context
from d2lmini.device import quiet
from d2lmini.device.storage import SMALL, Chunk, Pool, pool_of
from d2lmini.engine.core import lock
from d2lmini.engine.road import here
from d2lmini.graph.program import Program
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.spec import Spec

new = object.__new__


class ShortRoad:
    """Calls of one program in one context, computed where they are made."""

    __slots__ = ("_ctx", "_nowhere", "_pool", "_predicted_us", "_run", "_specs")

    def __init__(self, program: Program, ctx: Context):
        self._run = program.run
        self._predicted_us = program.predicted_us
        self._specs = program.specs
        self._nowhere = [None] * len(program.specs)
        self._ctx = ctx
        self._pool = pool_of(ctx)

    @staticmethod
    def leads(program: Program) -> bool:
        """Can calls of `program` go it at all? Not if it changes an input, for writes are counted
        and noted, nor if an output counts against the bound on pending memory."""
        return not program.mutated and all(spec.nbytes < SMALL for spec in program.specs)

    def call(self, inputs: Sequence[NDArray], keys: Sequence[Any]) -> list[NDArray] | None:
        """The outputs; None when this call has to go the long road."""
        current = engine.current
        context = quiet.here.context
        if (
            self._predicted_us >= current.inline_below
            or context is None
            or here.task
            or instrument.listeners
        ):
            return None
        with lock:
            arrays = _contents(inputs, self._ctx)
            if arrays is None:
                return None
            try:
                results = context.run(self._run, arrays, self._nowhere, keys)
            except Exception:
                return None
            pool = self._pool
            outs = _adopted(results, self._specs, self._ctx, pool)
            current.inlined = inlined = current.inlined + 1
            if not inlined & 63:
                pool.review()
        return outs


def _contents(inputs: Sequence[NDArray], ctx: Context) -> list[np.ndarray] | None:
    """The arrays of the inputs, if nothing is pending on them and each is the whole of its memory
    (lock held)."""
    arrays = []
    for x in inputs:
        chunk = x._chunk
        a = chunk.data
        if a is None or chunk.writer is not None or chunk.queue or chunk.error is not None:
            return None
        if x._offset is not None or a.shape != x._spec.shape:
            return None
        if x._ctx is not ctx and x._ctx != ctx:
            return None
        arrays.append(a)
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
