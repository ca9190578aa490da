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

**The layout** says where every value of a program lies: in an input, an output, the arena, or fresh
memory. Statements run in a fixed order, so it is known beforehand from when to when each value is
needed.

- A *view* lies where its base lies and makes that live longer.
- An elementwise result goes *in place* where an input of it dies with this very statement.
- What the program returns is computed right into the place it is given.
- Ops that make their own result (`takes_out` is False) give *fresh* memory, which may be a view of
  any of their inputs: those live as long.
- All else gets an offset in the arena (`plan`).

Inside a group a value that nobody outside reads has no place at all: it lives in scratch memory
block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from d2lmini.context import Context
from d2lmini.device import storage
from d2lmini.device.storage import SMALL, Chunk, pool_of
from d2lmini.graph.fusion import Statement
from d2lmini.graph.ir import CONSTANT, Entry, Node, mutated_by, spec_of
from d2lmini.graph.lower import may_overwrite, steps_of
from d2lmini.graph.text import try_view, view_text
from d2lmini.ndarray.plan import BYTES_PER_US, FLOPS_PER_US, PRODUCT_FLOPS_PER_US
from d2lmini.ops.spec import Spec

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

    __slots__ = ("_block", "_functions", "nbytes")

    def __init__(self, ctx: Context, nbytes: int):
        self.nbytes = nbytes
        self._block: Any = None
        if nbytes:
            memory = Chunk(pool_of(ctx), max(nbytes, SMALL))
            memory.allocate((memory.nbytes,), np.dtype(np.uint8))
            self.nbytes = memory.nbytes
            self._block = memory.lease()
        self._functions: WeakKeyDictionary[Program, Run] = WeakKeyDictionary()

    def function(self, program: Program) -> Run:
        """That of `program`, bound to this arena: one call at a time may run in it."""
        run = self._functions.get(program)
        if run is None:
            run = program.bind(None if self._block is None else self._array)
            if storage.checker is not None and isinstance(self._block, np.ndarray):
                lease: Any = self._block.base
                root = lease.chunk.block.base
                run = storage.checker.guard(run, getattr(program, "name", "a program"), root)
            self._functions[program] = run
        return run

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


#: How a value comes to its memory.
Placement = Enum("Placement", ("INPUT", "CONSTANT", "BUFFER", "VIEW", "FRESH", "BLOCK"))


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory for one value, or for several that follow each other in place.

    entries     those values, in time
    begin, end  the first and last statement that need it
    output      the number of the output whose place it is; None: it is in the arena
    offset      in the arena
    """

    entries: list[Entry]
    begin: int
    end: int
    output: int | None = None
    offset: int = 0

    @property
    def spec(self) -> Spec:
        """Shape and dtype of the value it is named after: what is returned, else the first."""
        return spec_of(self.entries[-1 if self.output is not None else 0])


class Layout:
    """The places of all values of a program.

    kinds     how each value comes to its memory
    buffers   of the values that are computed into a place
    copied    (value, number of the output) for outputs that must be copied: inputs, constants,
              values returned twice
    plan      the arena
    """

    def __init__(
        self, inputs: Sequence[Node], outputs: Sequence[Entry], ordered: Sequence[Statement]
    ):
        self.inputs = inputs
        self.outputs = outputs
        self.statements = ordered
        self.mutated = mutated_by(node for statement in ordered for node in statement.nodes)
        self.kinds: dict[Entry, Placement] = {}
        self.owners: dict[Entry, frozenset[Entry]] = {}
        self.last: dict[Entry, int] = {}
        self.buffers: dict[Entry, Buffer] = {}
        self._shadows: dict[Entry, np.ndarray] = {}
        self._find_kinds()
        self._find_lives()
        for when, statement in enumerate(ordered):
            for node in statement.nodes:
                self._make_buffers(node, when, statement)
        self.copied = self._place_outputs()
        arena = [b for b in dict.fromkeys(self.buffers.values()) if b.output is None]
        self.plan = arrange(
            [Life(b.entries[0][0].name, b.spec.nbytes, b.begin, b.end) for b in arena]
        )
        for buffer, offset in zip(arena, self.plan.offsets):
            buffer.offset = offset

    # -- what each value is ------------------------------------------------------------------------

    def _find_kinds(self) -> None:
        for node in self.inputs:
            self._enter((node, 0), Placement.INPUT)
        outside = set(self.outputs)
        for statement in self.statements:
            outside.update(statement.inputs)
        for statement in self.statements:
            for node in statement.nodes:
                for entry in node.outputs:
                    stays = statement.shape is not None and entry not in outside
                    self._enter(entry, Placement.BLOCK if stays else self._kind_of(node))

    def _kind_of(self, node: Node) -> Placement:
        if node.op is CONSTANT:
            return Placement.CONSTANT
        view = self._view(node)
        if view is not None:
            self._shadows[node, 0] = view
            return Placement.VIEW
        return Placement.BUFFER if node.op.takes_out else Placement.FRESH

    def _view(self, node: Node) -> np.ndarray | None:
        """What this op sees, if it is a view of something that does not change under it."""
        text = view_text(node)
        if text is None:
            return None
        base = node.inputs[0]
        if self.kinds[base] is Placement.FRESH or self.owners[base] & {
            (v, 0) for v in self.mutated
        }:
            return None
        return try_view(self._shadow(base), text)

    def _shadow(self, entry: Entry) -> np.ndarray:
        """An array with the shape and strides of this value; its contents mean nothing."""
        shadow = self._shadows.get(entry)
        if shadow is None:
            shadow = self._shadows[entry] = np.empty(*spec_of(entry))
        return shadow

    def _enter(self, entry: Entry, kind: Placement) -> None:
        self.kinds[entry] = kind
        if kind is Placement.VIEW:
            self.owners[entry] = self.owners[entry[0].inputs[0]]  # type: ignore[index]
        elif kind is Placement.FRESH:
            bases = [self.owners[e] for e in entry[0].inputs if e is not None]
            self.owners[entry] = frozenset({entry}).union(*bases)
        else:
            self.owners[entry] = frozenset({entry})

    def is_straight(self, entry: Entry) -> bool:
        """True if its elements follow each other in memory."""
        if self.kinds[entry] is Placement.VIEW:
            return self._shadow(entry).flags.c_contiguous
        return self.kinds[entry] is not Placement.FRESH

    def strides(self, entry: Entry) -> tuple[int, ...] | None:
        """Those of a view, in bytes; None where elements follow each other."""
        straight = self.kinds[entry] is not Placement.VIEW
        return None if straight else self._shadow(entry).strides

    def _find_lives(self) -> None:
        """The last statement that needs the memory of each value."""
        for when, statement in enumerate(self.statements):
            for node in statement.nodes:
                self.last.update(dict.fromkeys(node.outputs, when))
                for entry in node.sources:
                    self.last.update(dict.fromkeys(self.owners[entry], when))
        for entry in self.outputs:
            for owner in self.owners[entry]:
                self.last[owner] = len(self.statements)

    # -- buffers -----------------------------------------------------------------------------------

    def _make_buffers(self, node: Node, when: int, statement: Statement) -> None:
        for entry in node.outputs:
            if self.kinds[entry] is not Placement.BUFFER:
                continue
            buffer = self._in_place(node, when, statement)
            if buffer is None:
                buffer = Buffer([entry], when, self.last[entry])
            else:
                buffer.entries.append(entry)
                buffer.end = self.last[entry]
            self.buffers[entry] = buffer

    def _in_place(self, node: Node, when: int, statement: Statement) -> Buffer | None:
        """The buffer of something that dies here and that the result may overwrite."""
        if not node.op.elementwise or node.op.mutates or len(node.specs) != 1:
            return None
        if statement.shape not in (None, spec_of((node, 0)).shape):
            return None  # what a group has of each row may be read by the threads of another part
        at = statement.nodes.index(node) + 1
        before, after = statement.nodes[:at], statement.nodes[at:]
        for base in [e for reader in reversed(before) for e in reader.sources]:
            if len(self.owners[base]) != 1:
                continue
            (owner,) = self.owners[base]
            buffer = self.buffers.get(owner)
            if buffer is None or self.last[owner] != when or buffer.entries[-1] != owner:
                continue
            late = any(owner in self.owners[e] for reader in after for e in reader.sources)
            if not late and all(self._overwrites(reader, owner, node) for reader in before):
                return buffer
        return None

    def _overwrites(self, reader: Node, owner: Entry, writer: Node) -> bool:
        """True if `reader` reads the memory of `owner` only where, and before, `writer` writes."""
        spec = spec_of((writer, 0))
        if spec.nbytes != spec_of(owner).nbytes:
            return False
        steps = steps_of(reader) if reader is writer else None
        for i, entry in enumerate(reader.inputs):
            if entry is not None and owner in self.owners[entry]:
                if spec_of(entry) != spec or not self.is_straight(entry):
                    return False
                if steps is not None and not may_overwrite(steps, i):
                    return False
        return True

    def _place_outputs(self) -> list[tuple[Entry, int]]:
        """Let buffers be the places of outputs; what cannot be must be copied."""
        copied = []
        for number, entry in enumerate(self.outputs):
            buffer = None
            if len(self.owners[entry]) == 1:
                (owner,) = self.owners[entry]
                buffer = self.buffers.get(owner)
            if (
                buffer is not None
                and buffer.output is None
                and buffer.entries[-1] == owner
                and spec_of(entry).nbytes == spec_of(owner).nbytes
                and self.is_straight(entry)
            ):
                buffer.output = number
            else:
                copied.append((entry, number))
        return copied


# -- what a statement takes ------------------------------------------------------------------------

#: A statement without its work, in microseconds; what a product of a matrix with a vector reads.
STATEMENT_US = 0.4
READ_PER_US = 6e4


class ProgramCost(NamedTuple):
    """What a call takes: arithmetic, bytes read and written by its statements, memory for
    intermediate results."""

    flops: float
    nbytes: float
    arena_nbytes: int


def cost_of(layout: Layout) -> tuple[ProgramCost, float]:
    """Of one call of a program: the cost, and the predicted run time in microseconds."""
    flops, nbytes, us = 0.0, 0, 0.0
    for statement in layout.statements:
        compute_us = 0.0
        bytes_per_us = BYTES_PER_US
        moved: dict[Entry, int] = {}
        for node in statement.nodes:
            if layout.kinds[node, 0] in (Placement.VIEW, Placement.CONSTANT):
                continue
            op = node.op
            count = op.count_flops(list(map(spec_of, node.sources)), node.specs, node.own_attrs)
            flops += count
            if callable(op.flops):
                compute_us += count / PRODUCT_FLOPS_PER_US
                bytes_per_us = READ_PER_US
            else:
                compute_us += count / FLOPS_PER_US
            for entry in (*node.sources, *node.outputs):
                if layout.kinds[entry] is not Placement.BLOCK:
                    moved[entry] = spec_of(entry).nbytes
        traffic = sum(moved.values())
        nbytes += traffic
        us += STATEMENT_US + max(compute_us, traffic / bytes_per_us) if moved else 0.0
    return ProgramCost(flops, nbytes, layout.plan.nbytes), us
