"""A dry run: a program runs, its operations do not, and traces see the memory they would use.

Shapes and dtypes are known before an operation runs (`Op.infer`), and so is which values backward
needs (`Op.keeps`) and when Python drops an array. So the engine of a dry run gives each result a
size and no memory, and skips the computation. The tape, the gradient rules, the compiler and the
trace are the real ones.

>>> from d2lmini import nd, profile
>>> with dry_run(), profile() as trace:
...     x = nd.ones((1000, 1000))
...     y = x * 2 + 1
>>> trace.memory()[x.context].peak_bytes                       # x, x * 2, and the sum
12000000

A value that the program reads is 1 in a dry run, and `reads` names the line. PyTorch has the same
idea as its device "meta", JAX as `jax.eval_shape`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import callsite, instrument
from d2lmini.base.scopes import contextmanager
from d2lmini.device.devices import list_named
from d2lmini.device.storage import SMALL, Chunk, Pool, pool_of, settle
from d2lmini.engine.core import Task, lock
from d2lmini.engine.engine import NaiveEngine
from d2lmini.graph.plan import MOST_KEPT
from d2lmini.graph.program import ProgramTask
from d2lmini.ndarray.compute import Operand, OpTask
from d2lmini.ops import random_state


class DryRun(NaiveEngine):
    """The engine of a dry run. Each task that this thread pushes ends at once without a result.

    reads       lines that read a value, each once
    """

    kind = "dry"

    def __init__(self, outer: engine.Engine) -> None:
        super().__init__()
        self._outer = outer
        self._thread = threading.get_ident()
        self._arenas: defaultdict[Any, list[Chunk]] = defaultdict(list)
        self.reads: list[str] = []

    def push(self, task: Task) -> None:
        if threading.get_ident() != self._thread:
            self._outer.push(task)
            return
        for var in task.writes:
            if isinstance(var, Chunk) and var.data is None:
                var.pool = pool_of(var.pool.ctx)
        super().push(task)

    def _run_task(self, task: Task) -> None:
        for chunk, _, spec in _outputs_of(task):
            if chunk.data is None:
                chunk.data = np.broadcast_to(np.ones((), spec.dtype), spec.shape)
                _count(chunk)
        if isinstance(task, ProgramTask) and task.program.arena_nbytes:
            self._take_arena(task)

    def read(self, by: str, var: Any, get: Any, write: bool = False) -> Any:
        pool = getattr(var, "pool", None)
        if threading.get_ident() == self._thread and isinstance(pool, _DryPool):
            line = f"{by} at {callsite.describe(callsite.find())}"
            if line not in self.reads:
                self.reads.append(line)
        return super().read(by, var, get, write)

    def _take_arena(self, task: ProgramTask) -> None:
        """A program takes an arena and gives it back, as `graph.arena.Arenas` does."""
        arenas, nbytes = task.program.arenas, task.program.arena_nbytes
        free, most = self._arenas[arenas], arenas._most
        arena = free.pop() if nbytes <= most and free else None
        if arena is None or arena.nbytes < nbytes:
            arena = Chunk(pool_of(task.ctx), max(nbytes, SMALL))
            arena.data = ()
            _count(arena)
        if arena.nbytes <= most and len(free) < MOST_KEPT:
            free.append(arena)


class _DryPool(Pool):
    """The memory of a device in a dry run: counts of arrays, most of which have no memory."""


def _count(chunk: Chunk) -> None:
    """Count the bytes of `chunk`, as if it had memory, until it dies."""
    with lock:
        chunk.pool.live += chunk.nbytes
        chunk.pool.review()
        instrument.emit("alloc", chunk.pool.ctx, chunk.nbytes, chunk)


def _outputs_of(task: Task) -> Sequence[Operand]:
    """The arrays that a task writes."""
    if isinstance(task, (OpTask, ProgramTask)):
        return task.outputs
    target = getattr(task, "target", None)  # of a copy between devices
    return (target,) if isinstance(target, tuple) else ()


@contextmanager
def dry_run() -> Iterator[DryRun]:
    """A scope in which this thread's operations are counted and not computed.

    Arrays made before the scope keep their values; arrays made in it have no values, and are of no
    use afterwards. Random streams continue after the scope as if it had not been."""
    outer = engine.current
    outer.wait_idle("dry_run")
    settle()
    others = instrument.listeners
    for listener in others:
        instrument.remove(listener)
    pools = [(device, device.pool) for device in list_named()]
    run = DryRun(outer)
    try:
        for device, _ in pools:
            device.pool = _DryPool(device.ctx)
        engine.current = run
        with random_state.rewound():
            yield run
    finally:
        engine.current = outer
        for device, pool in pools:
            device.pool = pool
        for listener in others:
            instrument.add(listener)
