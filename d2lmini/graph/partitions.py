"""Parts of a program: cut where results are finished, so that these can go on their way meanwhile.

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

from d2lmini.graph.costs import Cost, together
from d2lmini.graph.ir import Entry, Node
from d2lmini.graph.layout import Layout

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
