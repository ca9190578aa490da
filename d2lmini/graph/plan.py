"""The memory plan: intermediate results that are never alive at once share a place.

A buffer is needed from the step that writes it to the last one that reads it. Knowing this for all
of them before the program runs, we give each an offset in one piece of memory, the arena: the
largest first, each at the lowest place that is free during its life.

>>> plan = arrange([Life("conv0", 4096, 0, 1), Life("pool0", 1024, 1, 2), Life("fc0", 64, 2, 3)])
>>> plan.offsets
[0, 4096, 0]
>>> plan.nbytes, plan.separately                # of the arena, and if all had a place of their own
(5120, 5184)
>>> print(plan)
conv0         0  4096  ==
pool0      4096  1024   ==
fc0           0    64    ==
5120 bytes in place of 5184

Finding the smallest arena is hard (it is bin packing with a time axis); largest first is within a
few percent on real nets. After Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020), greedy by size.

**Arenas** are memory in which programs keep intermediate results, one call at a time. A program is
written for any arena. Bound to one (`Arena.function`), its function has views of the arena's
memory, and these own it: a Chunk lives as long as one view of it does. So whoever can write there,
because he holds such a function, holds the memory too.

Programs that never run at the same time may take turns in one arena, whatever shapes they are
for. So all programs of a net share `Arenas`:

>>> from d2lmini import cpu
>>> arenas = Arenas(cpu())
>>> first = arenas.take(100_000)
>>> arenas.give_back(first)
>>> arenas.take(50_000) is first
True
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from d2lmini.context import Context
from d2lmini.device import storage
from d2lmini.device.storage import SMALL, Chunk, pool_of

if TYPE_CHECKING:
    from d2lmini.graph.program import Program

#: Offsets are multiples of this: a cache line, and what vector instructions like.
ALIGNMENT = 64


class Life(NamedTuple):
    """A buffer of `nbytes`, written at step `begin` and last read at step `end`."""

    name: str
    nbytes: int
    begin: int
    end: int

    def meets(self, other: Life) -> bool:
        """True if both are needed at some step."""
        return self.begin <= other.end and other.begin <= self.end


class MemoryPlan(NamedTuple):
    """Where each buffer lies in the arena, and the size of that."""

    lives: list[Life]
    offsets: list[int]
    nbytes: int

    @property
    def separately(self) -> int:
        """Bytes if every buffer had a place of its own."""
        return sum(life.nbytes for life in self.lives)

    def __str__(self) -> str:
        """A line for each buffer: name, offset, bytes, and the steps at which it is needed."""
        width = max((len(life.name) for life in self.lives), default=0)
        columns = max(len(str(self.nbytes)), 5)
        lines = [
            f"{life.name:{width}} {offset:{columns + 4}} {life.nbytes:{columns}}  "
            + " " * life.begin + "=" * (life.end + 1 - life.begin)
            for life, offset in zip(self.lives, self.offsets)
        ]  # fmt: skip
        return "\n".join([*lines, f"{self.nbytes} bytes in place of {self.separately}"])


def arrange(lives: Sequence[Life]) -> MemoryPlan:
    """Offsets such that no two buffers that are alive at once overlap."""
    offsets = [0] * len(lives)
    placed: list[int] = []  # by offset
    nbytes = 0
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, lives[i].begin)):
        offset = 0
        for j in placed:
            if lives[i].meets(lives[j]):
                if offset + lives[i].nbytes <= offsets[j]:
                    break  # it fits in the gap before j
                offset = max(offset, align(offsets[j] + lives[j].nbytes))
        offsets[i] = offset
        nbytes = max(nbytes, align(offset + lives[i].nbytes))
        placed.append(i)
        placed.sort(key=offsets.__getitem__)
    return MemoryPlan(list(lives), offsets, nbytes)


def align(nbytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# -- arenas ----------------------------------------------------------------------------------------

#: An arena of up to so many bytes is kept from call to call.
KEPT = 1 << 20
#: So many are kept: for as many calls at once.
MOST_KEPT = 4

Run = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]


class Arena:
    """Memory of so many bytes, and the functions of programs that work there."""

    __slots__ = ("__weakref__", "_block", "_functions", "nbytes")

    def __init__(self, ctx: Context, nbytes: int):
        self.nbytes = nbytes
        self._block: Any = None
        if nbytes:
            memory = Chunk(pool_of(ctx), max(nbytes, SMALL))
            memory.allocate((memory.nbytes,), np.dtype(np.uint8))
            self.nbytes = memory.nbytes
            self._block = memory.lease()
        # By the program's id, as long as that lives: a function and who notices its end.
        self._functions: dict[int, tuple[Run, weakref.ref]] = {}

    def function(self, program: Program) -> Run:
        """That of `program`, bound to this arena: one call at a time may run in it."""
        found = self._functions.get(id(program))
        if found is None:
            run = program.bind(None if self._block is None else self._array)
            if storage.checker is not None and isinstance(self._block, np.ndarray):
                lease: Any = self._block.base
                root = lease.chunk.block.base
                run = storage.checker.guard(run, getattr(program, "name", "a program"), root)
            found = self._functions[id(program)] = run, weakref.ref(program, self._forgetting())
        return found[0]

    def _forgetting(self) -> Callable[[weakref.ref], None]:
        """What forgets the functions of programs that are no more."""
        mine = weakref.ref(self)

        def forget(_gone: weakref.ref) -> None:
            arena = mine()
            if arena is not None:
                for key, (_, program) in list(arena._functions.items()):
                    if program() is None:
                        arena._functions.pop(key, None)

        return forget

    def _array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        block = self._block
        if type(block) is np.ndarray:
            return np.ndarray(shape, dtype, block, offset)
        return type(block)(shape, dtype, block.data + offset)


class Arenas:
    """The arenas of programs that may share them, in one context.

    With `static_alloc` arenas of any size are kept from call to call, else those up to `KEPT`.
    What is kept is bounded by the largest program: `MOST_KEPT` arenas that it fits, and twice as
    much for calls under the engine's lock.
    """

    def __init__(self, ctx: Context, static_alloc: bool = False):
        self.ctx = ctx
        self._most = float("inf") if static_alloc else KEPT
        self._free: list[Arena] = []
        self._locked: Arena | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept for later calls."""
        return sum(arena.nbytes for arena in [*self._free, self._locked] if arena is not None)

    def take(self, nbytes: int) -> Arena:
        """An arena of at least so many bytes, the caller's until it is given back."""
        if nbytes <= self._most:
            try:
                arena = self._free.pop()
            except IndexError:
                pass
            else:
                if nbytes <= arena.nbytes:
                    return arena
                # Else let go of it: a larger one takes its place, in which it has room too.
        return Arena(self.ctx, nbytes)

    def give_back(self, arena: Arena) -> None:
        """The call is over."""
        if arena.nbytes <= self._most and len(self._free) < MOST_KEPT:
            self._free.append(arena)

    def release(self) -> None:
        """Let go of what is kept for later calls, but for those under the engine's lock."""
        self._free.clear()

    def function(self, program: Program) -> Run:
        """A function for calls under the engine's lock, which are one at a time: all those of these
        programs work in the same arena."""
        arena, nbytes = self._locked, program.arena_nbytes
        if arena is None or arena.nbytes < nbytes:
            # What is bound to the old one keeps that: twice as large each time, so that all that
            # there ever were are no more than the last one.
            most = 0 if arena is None else 2 * arena.nbytes
            arena = self._locked = Arena(self.ctx, max(nbytes, most))
        return arena.function(program)
