"""The order of operations, derived from what each operation read and wrote.

The rule is the engine's own: readers run together, a writer runs alone. A reader comes after the
operation that made the value: a *true dependency*. A writer of an existing array also comes after
the readers of the old value, without needing a value: an *anti-dependency*.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((2,))
...     b = a + 1
...     c = b * 2
...     a[:] = c
>>> order_of(trace.operations)          # (true, anti) of each operation
[((), ()), ((1,), ()), ((2,), ()), ((3,), (2,))]
>>> drop_implied(order_of(trace.operations))[3]
({3}, set())

The fourth operation writes where the second reads; but it comes after the third, which comes after
the second, so that dependency is implied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from d2lmini.engine.operation import Operation

#: Numbers of operations: an operation's true dependencies, its anti-dependencies.
Before = tuple[tuple[int, ...], tuple[int, ...]]
Edge = tuple[int, int]


class Ordering:
    """Derives dependencies of operations in push order. For each Var it keeps the last writer and
    the readers since; `forget` drops an old operation."""

    def __init__(self) -> None:
        self.writer: dict[int, int] = {}  # per Var: the last operation that wrote it
        self._readers: dict[int, set[int]] = {}  # per Var: the operations that read it since

    def after(self, operation: Operation) -> Before:
        """The dependencies of `operation`, the next operation."""
        writer, readers = self.writer, self._readers
        reads = set(operation.reads)
        true = {writer.get(serial, 0) for serial in reads}
        anti: set[int] = set()
        for serial in operation.writes:
            anti.update(readers.pop(serial, ()) or (writer.get(serial, 0),))
            writer[serial] = operation.number
        for serial in reads.difference(operation.writes):
            readers.setdefault(serial, set()).add(operation.number)
        true -= {0, operation.number}
        anti -= {0, operation.number} | true
        return tuple(sorted(true)), tuple(sorted(anti))

    def forget(self, operation: Operation) -> None:
        """`operation` ended long ago: no further operation is said to depend on it."""
        for serial in operation.writes:
            if self.writer.get(serial) == operation.number:
                del self.writer[serial]
        for serial in operation.reads:
            readers = self._readers.get(serial)
            if readers is not None:
                readers.discard(operation.number)
                if not readers:
                    del self._readers[serial]


def order_of(operations: Iterable[Operation]) -> list[Before]:
    """The dependencies of each operation; takes time in proportion to the reads and writes."""
    ordering = Ordering()
    return [ordering.after(operation) for operation in operations]


def drop_implied(order: Sequence[Before]) -> list[tuple[set[int], set[int]]]:
    """The dependencies without implied ones: an operation that comes after another anyway has no
    anti-dependency on it. For the first thousands of a trace: quadratic in bits."""
    comes_after = [0]  # bit n: comes after operation n, directly or not
    found = []
    for true, anti in order:
        bits = 0
        for k in true:
            bits |= (comes_after[k] if k < len(comes_after) else 0) | 1 << k
        left: set[int] = set()
        for k in reversed(anti):
            if not bits >> k & 1:
                left.add(k)
                bits |= comes_after[k] | 1 << k
        comes_after.append(bits)
        found.append((set(true), left))
    return found


def edges_of(after: Iterable[tuple[set[int], set[int]]]) -> dict[Edge, bool]:
    """The edges of a picture of operations, of what `drop_implied` gives for each: (from, to),
    counted from 0 -> does it carry a value?

    >>> edges_of([(set(), set()), ({1}, set()), (set(), {2})])
    {(0, 1): True, (1, 2): False}
    """
    return {
        (number - 1, at): number in true
        for at, (true, anti) in enumerate(after)
        for number in sorted(true | anti)
    }
