"""What comes after what, found out from what each operation read and wrote.

The rule is the engine's own: readers together, a writer alone. What needs a value comes after the
operation that made it; what writes an array again comes also after those that read what was there,
for the room and not for a value.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((2,))
...     b = a + 1
...     c = b * 2
...     a[:] = c
>>> order_of(trace.operations)          # (needs, makes room for) of each
[((), ()), ((1,), ()), ((2,), ()), ((3,), (2,))]
>>> implied_left_out(order_of(trace.operations))[3]
({3}, set())

The fourth writes where the second reads; but it comes after the third, which comes after the
second, so that need not be said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2lmini.profiler.records import Operation

#: Numbers of operations: those whose results one needs, those for which it only has to make room.
Before = tuple[tuple[int, ...], tuple[int, ...]]


class Ordering:
    """Of one operation after the other, as they were pushed: what it comes after. It knows of each
    Var who wrote it last and who has read it since; `forget` lets go of an old operation."""

    def __init__(self) -> None:
        self.writer: dict[int, int] = {}  # of each Var, the last operation that wrote it
        self._readers: dict[int, set[int]] = {}  # and who has read it since

    def after(self, each: Operation, later: tuple[int, ...] = ()) -> Before:
        """What `each`, the next one, comes after; of its reads those of `later` do not count."""
        writer, readers = self.writer, self._readers
        reads = set(each.reads).difference(later)
        needs = {writer.get(serial, 0) for serial in reads}
        room: set[int] = set()
        for serial in each.writes:
            room.update(readers.pop(serial, ()) or (writer.get(serial, 0),))
            writer[serial] = each.number
        for serial in reads.difference(each.writes):
            readers.setdefault(serial, set()).add(each.number)
        needs -= {0, each.number}
        room -= {0, each.number} | needs
        return tuple(sorted(needs)), tuple(sorted(room))

    def forget(self, each: Operation) -> None:
        """`each` is long over: nothing that follows is said to come after it."""
        for serial in each.writes:
            if self.writer.get(serial) == each.number:
                del self.writer[serial]
        for serial in each.reads:
            readers = self._readers.get(serial)
            if readers is not None:
                readers.discard(each.number)
                if not readers:
                    del self._readers[serial]


def order_of(
    operations: Sequence[Operation], joined: Mapping[int, tuple[int, ...]] | None = None
) -> list[Before]:
    """What each operation comes after, in time proportional to what they read and write.

    joined: of a meeting, the Vars it came to read after it was pushed; whoever wrote them may have
    a higher number than the meeting.
    """
    joined = joined or {}
    ordering = Ordering()
    order = [ordering.after(each, joined.get(each.number, ())) for each in operations]
    for number, serials in joined.items():
        order[number - 1] = (_writers_until(operations, number, serials), order[number - 1][1])
    return order


def _writers_until(
    operations: Sequence[Operation], number: int, serials: tuple[int, ...]
) -> tuple[int, ...]:
    """Who made the parts of a meeting: the last to write each of them before it was ready."""
    found: dict[int, int] = {}
    ready_ns = operations[number - 1].ready_ns
    for each in operations:
        if each.pushed_ns > ready_ns:
            break
        for serial in each.writes:
            if serial in serials:
                found[serial] = each.number
    return tuple(sorted({*found.values()} - {number}))


def implied_left_out(order: Sequence[Before]) -> list[tuple[set[int], set[int]]]:
    """The same without the room that is implied: an operation that comes after another anyway need
    not be said to make room for it. For the first thousands of a trace: quadratic in bits."""
    comes_after = [0]  # bit n: it comes after operation n, directly or not
    found = []
    for needs, room in order:
        bits = 0
        for k in needs:
            bits |= (comes_after[k] if k < len(comes_after) else 0) | 1 << k
        left: set[int] = set()
        for k in reversed(room):
            if not bits >> k & 1:
                left.add(k)
                bits |= comes_after[k] | 1 << k
        comes_after.append(bits)
        found.append((set(needs), left))
    return found


def ancestors(order: Sequence[Before], number: int) -> set[int]:
    """All that must be over before operation `number` begins."""
    found: set[int] = set()
    left = [number]
    while left:
        needs, room = order[left.pop() - 1]
        new = {*needs, *room} - found
        found |= new
        left += new
    return found
