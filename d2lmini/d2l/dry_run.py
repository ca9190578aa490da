"""A dry run: a program runs, its operations do not, and the memory they would use is counted.

Shapes and dtypes are known before an operation runs (`Op.infer`), and so is which values backward
needs (`Op.keeps`) and when Python drops an array. So the engine of a dry run gives each result a
size and no memory, and skips the computation. The tape, the gradient rules and the compiler are the
real ones.

>>> from d2lmini import nd
>>> with dry_run() as run:
...     x = nd.ones((1000, 1000))
...     y = x * 2 + 1
>>> [(piece.name, piece.nbytes) for piece in run.pieces()]
[('_ones', 4000000), ('_plus_scalar', 4000000)]
>>> sum(piece.nbytes for piece in run.peak(x.context))         # x, x * 2, and the sum
12000000

A value that the program reads is 1 in a dry run, and `reads` names the line. PyTorch has the same
idea as its device "meta", JAX as `jax.eval_shape`.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from d2lmini import callsite, engine, instrument, random_state
from d2lmini.context import Context
from d2lmini.device.storage import SMALL, Chunk, Pool, settle
from d2lmini.engine.core import Task
from d2lmini.engine.naive import NaiveEngine
from d2lmini.graph.arena import MOST_KEPT
from d2lmini.graph.call import ProgramTask
from d2lmini.graph.call_partitions import PartitionTask
from d2lmini.ndarray.compute import Operand, OpTask
from d2lmini.ops.core import modes
from d2lmini.scopes import contextmanager


class Piece:
    """Memory that one array would have.

    ctx, nbytes  the place and the size
    name, site   the operation that allocates it ("" if the program fills the array) and its line
    role         "weights", "gradients", "optimizer state", "activations" or "other"
    """

    __slots__ = ("ctx", "name", "nbytes", "role", "site")

    def __init__(self, ctx: Context, nbytes: int, name: str, site: Any):
        self.ctx = ctx
        self.nbytes = nbytes
        self.name = name
        self.site = site
        self.role = "activations" if modes.recording else "other"


class _Count(Pool):
    """The pool of arrays without memory."""

    def take(self, nbytes: int) -> np.ndarray:
        raise AssertionError("a dry run allocates nothing")


class DryRun(NaiveEngine):
    """The engine of a dry run. Each task that this thread pushes ends at once without a result.

    begin       the memory in use when the count began
    changes     (piece, True) for each allocation, (piece, False) for each free, in order
    flops       predicted arithmetic of all operations
    operations  number of operations
    issued      bytes of all results of operations
    reads       lines that read a value, each once
    """

    kind = "dry"

    def __init__(self, outer: engine.Engine) -> None:
        super().__init__()
        self._outer = outer
        self._thread = threading.get_ident()
        self._pools: dict[Context, _Count] = {}
        self._pieces: dict[int, tuple[weakref.ref, Piece]] = {}  # by the id of their Chunk
        self._arenas: defaultdict[int, list[Chunk]] = defaultdict(list)
        self._owners: list[Any] = []  # so that the ids of Arenas stay theirs
        self.changes: list[tuple[Piece, bool]] = []
        self.count_anew()

    # -- the engine's side -------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        if threading.get_ident() != self._thread:
            self._outer.push(task)
            return
        for var in task.writes:
            if isinstance(var, Chunk) and var.data is None:
                var.pool = self._pool(var.pool.ctx)
        super().push(task)

    def _run_task(self, task: Task) -> None:
        footprint = task.footprint()
        self.flops += 0.0 if footprint is None else footprint().flops
        self.operations += 1
        for chunk, _, spec in _outputs_of(task):
            if chunk.data is None:
                chunk.data = np.broadcast_to(np.ones((), spec.dtype), spec.shape)
                self.note(chunk, task.name, task.site)
                self.issued += chunk.nbytes
        later = isinstance(task, PartitionTask) and task.number > 0
        if isinstance(task, ProgramTask) and task.program.arena_nbytes and not later:
            self._visit_arena(task)

    def read(self, by: str, var: Any, get: Any, write: bool = False) -> Any:
        if threading.get_ident() == self._thread and isinstance(getattr(var, "pool", None), _Count):
            line = f"{by} at {callsite.describe(callsite.find())}"
            if line not in self.reads:
                self.reads.append(line)
        return super().read(by, var, get, write)

    def _pool(self, ctx: Context) -> _Count:
        return self._pools.setdefault(ctx, _Count(ctx))

    # -- the count ---------------------------------------------------------------------------------

    def count_anew(self) -> None:
        """Begin the count here: what is in use stays in use, all figures begin at 0."""
        self.begin = self.pieces()
        self.changes.clear()  # the same list: `note` has given it to the pieces that are in use
        self.reads: list[str] = []
        self.flops = 0.0
        self.operations = self.issued = 0

    def note(self, chunk: Chunk, name: str, site: Any) -> None:
        """Count the memory of `chunk` until the chunk dies."""
        piece, key = Piece(chunk.pool.ctx, chunk.nbytes, name, site), id(chunk)
        changes, pieces = self.changes, self._pieces

        def forget(_gone: weakref.ref) -> None:
            changes.append((piece, False))
            pieces.pop(key, None)

        pieces[key] = weakref.ref(chunk, forget), piece
        changes.append((piece, True))

    def _visit_arena(self, task: ProgramTask) -> None:
        """A program takes an arena and gives it back, as `graph.arena.Arenas` does."""
        arenas, nbytes = task.program.arenas, task.program.arena_nbytes
        if arenas not in self._owners:
            self._owners.append(arenas)
        free, most = self._arenas[id(arenas)], arenas._most
        arena = free.pop() if nbytes <= most and free else None
        if arena is None or arena.nbytes < nbytes:
            larger = Chunk(self._pool(task.ctx), max(nbytes, SMALL))
            self.note(larger, task.name, task.site)
            arena = larger
        if arena.nbytes <= most and len(free) < MOST_KEPT:
            free.append(arena)

    def pieces(self) -> list[Piece]:
        """What is allocated now, in the order of allocation."""
        return [piece for _, piece in list(self._pieces.values())]

    def piece_of(self, array: Any) -> Piece | None:
        """The memory of an array that was made in this run; None for other arrays."""
        known = self._pieces.get(id(array._chunk))
        return known and known[1]

    def peak(self, ctx: Context) -> list[Piece]:
        """What is allocated on a device when it has the most bytes in use, for the first time."""
        live = {piece: None for piece in self.begin if piece.ctx == ctx}
        now = most = sum(piece.nbytes for piece in live)
        found = list(live)
        for piece, allocated in self.changes:
            if piece.ctx != ctx:
                continue
            if allocated:
                live[piece] = None
                now += piece.nbytes
                if now > most:
                    most, found = now, list(live)
            elif piece in live:
                del live[piece]
                now -= piece.nbytes
        return found


def _outputs_of(task: Task) -> Sequence[Operand]:
    """The arrays that a task writes."""
    if isinstance(task, (OpTask, ProgramTask)):
        return task.outputs
    target = getattr(task, "target", None)  # of a copy between devices
    return (target,) if isinstance(target, tuple) else ()


class _Listener(instrument.Instrument):
    """Tells a dry run of arrays that the program fills itself, and of roles."""

    def __init__(self, run: DryRun):
        self.run = run

    def alloc(self, ctx: Context, nbytes: int, var: Any) -> None:
        if threading.get_ident() == self.run._thread:
            self.run.note(var, "", callsite.find())

    def role(self, var: Any, role: str) -> None:
        known = self.run._pieces.get(id(var))
        if known is not None:
            known[1].role = role


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
    run = DryRun(outer)
    engine.current = run
    try:
        with random_state.rewound(), instrument.listening(_Listener(run)):
            yield run
    finally:
        engine.current = outer
        for listener in others:
            instrument.add(listener)
