"""The legal orders of operations: all of them, or a few that show every freedom.

The engine's own rule decides (`order`): operations that share a Var, which one of them writes, keep
their order. Whatever this leaves open is free.

n operations that share nothing have n! orders, too many to enumerate, and there is no need to. Any
legal order becomes any other by exchanging neighbours, and neighbours that commute may be
exchanged without changing a value. So every two unordered operations need to be seen only once each
way round; for n operations that share nothing, two orders do.

>>> from d2lmini import engine, nd
>>> with engine.stepped() as s:
...     x = [nd.ones((1,)) for _ in range(4)]
...     y = x[0] + x[1]
...     print(len(s.orders()), s.orders(reduced=True))
40 [(1, 2, 3, 4, 5), (4, 3, 2, 1, 5), (2, 1, 5, 4, 3)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from d2lmini.engine.operation import Operation
from d2lmini.engine.order import Ordering


class Orders:
    """The legal orders of operations, given in push order."""

    def __init__(self, operations: Sequence[Operation]):
        self.numbers = [operation.number for operation in operations]
        #: For each operation, the earlier ones that must have ended before it begins; the reverse.
        self.before: dict[int, set[int]] = {}
        ordering = Ordering()
        for operation in operations:
            needs, room = ordering.after(operation)
            self.before[operation.number] = {*needs, *room}.union(
                *(self.before[number] for number in needs + room)
            )
        self.after: dict[int, set[int]] = {number: set() for number in self.numbers}
        for number, early in self.before.items():
            for predecessor in early:
                self.after[predecessor].add(number)

    def some(self, most: int, reduced: bool) -> list[tuple[int, ...]]:
        """All orders, or a few that show every freedom; ValueError for more than `most`."""
        found = list(islice(self.reduced() if reduced else self.all(), most + 1))
        if len(found) > most:
            raise ValueError(
                f"orders: there are more than {most}. Ask for orders(reduced=True), a few in which "
                "every two unordered operations come both ways round, or raise `most`"
            )
        return found

    def all(self) -> Iterator[tuple[int, ...]]:
        """Each legal order once, program order first."""
        order: list[int] = []
        choices = [iter(self._able(order))]
        while choices:
            number = next(choices[-1], None)
            if number is None:
                choices.pop()
                if order:
                    order.pop()
                continue
            order.append(number)
            if len(order) == len(self.numbers):
                yield tuple(order)
                order.pop()
            else:
                choices.append(iter(self._able(order)))
        if not self.numbers:
            yield ()

    def _able(self, order: Sequence[int]) -> list[int]:
        """The operations that may come next."""
        done = set(order)
        return [n for n in self.numbers if n not in done and self.before[n] <= done]

    def reduced(self) -> Iterator[tuple[int, ...]]:
        """Program order, then others until every two unordered operations were seen both ways
        round."""
        yield tuple(self.numbers)
        unseen = {
            (early, late)
            for i, early in enumerate(self.numbers)
            for late in self.numbers[i + 1 :]
            if late not in self.after[early]
        }
        wanted: Iterable[int] = ()
        while unseen:
            order = self._newest_first(wanted)
            place = {number: i for i, number in enumerate(order)}
            unseen = {(a, b) for a, b in unseen if place[a] < place[b]}
            yield tuple(order)
            if unseen:
                late = min(unseen)[1]
                wanted = self.before[late] | {late}

    def _newest_first(self, wanted: Iterable[int]) -> list[int]:
        """The `wanted` as soon as possible; otherwise always the newest that may be next."""
        first, order = set(wanted), []
        waits = {number: len(self.before[number]) for number in self.numbers}
        able = {number for number, n in waits.items() if n == 0}
        while able:
            number = max(able & first or able)
            able.discard(number)
            order.append(number)
            for successor in self.after[number]:
                waits[successor] -= 1
                if waits[successor] == 0:
                    able.add(successor)
        return order
