"""Where every value of a program lies: in an input, an output, the arena, or fresh memory.

Statements run in a fixed order, so it is known beforehand from when to when each value is needed.

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

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from d2lmini.device.storage import SMALL
from d2lmini.graph.backward import MIRRORED
from d2lmini.graph.constant import CONSTANT
from d2lmini.graph.fusion import Statement, statements
from d2lmini.graph.ir import Entry, Node, mutated_by, spec_of
from d2lmini.graph.plan import Life, arrange
from d2lmini.graph.steps import may_overwrite, steps_of
from d2lmini.graph.text import try_view, view_text
from d2lmini.ndarray.plan import BYTES_PER_US, FLOPS_PER_US, PRODUCT_FLOPS_PER_US
from d2lmini.ops.spec import Spec


class Placement(Enum):
    """How a value comes to its memory."""

    INPUT = "input"
    CONSTANT = "constant"
    BUFFER = "buffer"
    VIEW = "view"
    FRESH = "fresh"
    BLOCK = "block"


class Buffer:
    """Memory for one value, or for several that follow each other in place.

    entries     those values, in time
    begin, end  the first and last statement that need it
    output      the number of the output whose place it is; None: it is in the arena
    offset      in the arena
    """

    __slots__ = ("begin", "end", "entries", "offset", "output")

    def __init__(self, entry: Entry, begin: int, end: int):
        self.entries = [entry]
        self.begin = begin
        self.end = end
        self.output: int | None = None
        self.offset = 0

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
        assert node.op is not None
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
        assert base is not None
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
                buffer = Buffer(entry, when, self.last[entry])
            else:
                buffer.entries.append(entry)
                buffer.end = self.last[entry]
            self.buffers[entry] = buffer

    def _in_place(self, node: Node, when: int, statement: Statement) -> Buffer | None:
        """The buffer of something that dies here and that the result may overwrite."""
        if not _is_pointwise(node):
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
            if all(self._overwrites(reader, owner, node) for reader in before) and not any(
                self._reads(reader, owner) for reader in after
            ):
                return buffer
        return None

    def _reads(self, node: Node, owner: Entry) -> bool:
        return any(e is not None and owner in self.owners[e] for e in node.inputs)

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


def lay_out(inputs: Sequence[Node], outputs: Sequence[Entry], on_gpu: bool = False) -> Layout:
    """The layout with the smaller arena: what comes last may just as well be computed first.

    Gradients of weights are asked for from the first layer to the last, and become known from the
    last to the first: in that order what each of them needs does not have to wait for the others.
    More statements count only where values are computed again, which is done for memory.
    """
    layout = Layout(inputs, outputs, statements(outputs, on_gpu))
    if layout.mutated or len(outputs) == 1:
        return layout  # who reads before a change must go on doing so
    if layout.plan.nbytes <= SMALL:
        return layout  # no arena takes less
    other = Layout(inputs, outputs, statements(outputs[::-1], on_gpu))
    better = other.plan.nbytes < layout.plan.nbytes
    mirrored = any(MIRRORED in node.labels for s in layout.statements for node in s.nodes)
    fewer = len(other.statements) <= len(layout.statements)
    return other if better and (fewer or mirrored) else layout


def _is_pointwise(node: Node) -> bool:
    op = node.op
    assert op is not None
    return op.elementwise and not op.mutates and len(node.specs or ()) == 1


# -- what a statement takes ------------------------------------------------------------------------

#: A statement without its work, in microseconds; what a product of a matrix with a vector reads.
STATEMENT_US = 0.4
READ_PER_US = 6e4


class Cost(NamedTuple):
    """Arithmetic, bytes read and written, and the predicted run time in microseconds."""

    flops: float
    nbytes: float
    us: float


def cost_of(layout: Layout, statement: Statement) -> Cost:
    """Of one statement."""
    flops = compute_us = 0.0
    bytes_per_us = BYTES_PER_US
    moved: dict[Entry, int] = {}
    for node in statement.nodes:
        if layout.kinds[node, 0] in (Placement.VIEW, Placement.CONSTANT):
            continue
        op = node.op
        assert op is not None and node.specs is not None
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
    nbytes = sum(moved.values())
    us = STATEMENT_US + max(compute_us, nbytes / bytes_per_us) if moved else 0.0
    return Cost(flops, nbytes, us)
