"""Parts of a program, and what its statements take.

The time of a statement is predicted from the costs of its ops. A group reads what comes from
outside and writes what others read; what stays inside is neither read nor written.

A program is cut where results are finished, so that these can go on their way meanwhile.

Backward computes the gradients of the last layer first. As one task it would keep them until those
of the first layer are there as well; in parts, each a task of its own, what a part has finished
travels to other devices and is summed there while the next part computes.

>>> cuts([200.0, 300.0, 100.0, 400.0], finished={0, 1, 3}, most=4)
[2, 4]

The times are predicted, in microseconds. Behind statement 0 a part would be too short; 1 finishes
something, too, and ends a part; the last one ends with the last statement.

A program is laid out as a whole: the arena and who lies where in it are the same in one part or in
many. A part begins with some outputs and goes on with others, and it lets go of those that no later
statement writes or reads: from then on anybody may change them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from d2lmini.graph.fusion import Statement
from d2lmini.graph.ir import Entry, Node, spec_of
from d2lmini.graph.layout import Layout, Placement
from d2lmini.ndarray.plan import BYTES_PER_US, FLOPS_PER_US, PRODUCT_FLOPS_PER_US

# -- what a statement takes ------------------------------------------------------------------------

#: A statement without its work, in microseconds; what a product of a matrix with a vector reads.
STATEMENT_US = 0.4
READ_PER_US = 6e4


class Cost(NamedTuple):
    """Arithmetic, bytes read and written, and the predicted run time in microseconds."""

    flops: float
    nbytes: float
    us: float


class ProgramCost(NamedTuple):
    """What a call takes: arithmetic, bytes read and written by its statements, memory for
    intermediate results, and how many of the statements are fused groups."""

    flops: float
    nbytes: float
    arena_nbytes: int
    groups: int


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


def together(costs: Sequence[Cost]) -> Cost:
    """Their sum."""
    return Cost(*[sum(figures) for figures in zip(*costs)]) if costs else Cost(0.0, 0.0, 0.0)


# -- parts -----------------------------------------------------------------------------------------

#: Parts of a program, at most.
MOST_PARTS = 6
#: A part takes so long, in microseconds: some ten times what another task costs.
LEAST_US = 300.0


class Partition(NamedTuple):
    """Statements of a program that run as one task.

    begin, end    from which statement to before which
    inputs        positions of the inputs that it reads
    opens         outputs that it begins with
    holds         outputs that it writes or reads, or that are in the making; with those it opens
    finishes      outputs that nothing after it touches
    cost          what they take together
    """

    begin: int
    end: int
    inputs: tuple[int, ...]
    opens: tuple[int, ...]
    holds: tuple[int, ...]
    finishes: tuple[int, ...]
    cost: Cost


def parts_of(layout: Layout, costs: Sequence[Cost], most: int) -> list[Partition]:
    """The parts of a program, up to `most`; `costs` are those of its statements."""
    outputs = range(len(layout.outputs))
    inputs, every = tuple(range(len(layout.inputs))), tuple(outputs)
    whole = Partition(0, len(costs), inputs, every, every, every, together(costs))
    # An input that is changed must be whole when others see it.
    if most == 1 or layout.mutated or whole.cost.us < 2 * LEAST_US or whole.end < 2:
        return [whole]
    uses = _Uses(layout)
    read = [uses.of_input(node) for node in layout.inputs]
    used = [uses.of_output(number) for number in outputs]
    first, last = [min(when) for when in used], [max(when) for when in used]
    ends = cuts([cost.us for cost in costs], set(last), most)
    parts = []
    for begin, end in zip([0, *ends], ends):
        inside = range(begin, end)
        parts.append(Partition(
            begin, end,
            tuple(i for i, when in enumerate(read) if not when.isdisjoint(inside)),
            tuple(i for i in outputs if first[i] in inside),
            tuple(i for i in outputs if first[i] < end and begin <= last[i]),
            tuple(i for i in outputs if last[i] in inside),
            together(costs[begin:end]),
        ))  # fmt: skip
    return parts


def cuts(times_us: Sequence[float], finished: Collection[int], most: int) -> list[int]:
    """Before which statements parts end: all but the last right behind one that finishes something,
    where that is nearest to an even share of what is left, and none shorter than LEAST_US."""
    ends: list[int] = []
    until = list(accumulate(times_us))
    begin_us = 0.0
    for when, later in pairwise(sorted(finished)):
        spent, rest = until[when] - begin_us, until[-1] - until[when]
        share = (spent + rest) / (most - len(ends))
        is_nearest = share - spent <= until[later] - begin_us - share
        if is_nearest and min(spent, rest) >= LEAST_US and len(ends) < most - 1:
            ends.append(when + 1)
            begin_us = until[when]
    return [*ends, len(times_us)]


class _Uses:
    """Which statements use what.

    of_value  of each value, the statements that compute it or read its memory
    made      in which statement each node runs
    copied    of each output that is copied, behind which statement it can be
    """

    def __init__(self, layout: Layout):
        self.layout = layout
        self.of_value: dict[Entry, set[int]] = defaultdict(set)
        self.made: dict[Node, int] = {}
        for when, statement in enumerate(layout.statements):
            for node in statement.nodes:
                self.made[node] = when
                for entry in node.outputs:
                    self.of_value[entry].add(when)
                for entry in node.sources:
                    self._read(entry, when)
        # What is copied is copied at the end of the part that computes it; an input in the first.
        self.copied = {number: self.made.get(entry[0], 0) for entry, number in layout.copied}
        for entry, number in layout.copied:
            self._read(entry, self.copied[number])

    def _read(self, entry: Entry, when: int) -> None:
        for owner in self.layout.owners[entry]:
            self.of_value[owner].add(when)

    def of_input(self, node: Node) -> set[int]:
        """The statements that read an input, or a view of it."""
        return self.of_value[node, 0]

    def of_output(self, number: int) -> set[int]:
        """The statements that use the place of an output, for whatever lies there."""
        if number in self.copied:
            return {self.copied[number]}
        (owner,) = self.layout.owners[self.layout.outputs[number]]
        buffer = self.layout.buffers[owner]
        return set().union(*[self.of_value[entry] for entry in buffer.entries])
