"""The legal orders of operations: all of them, or a few that show every freedom.

The engine's own rule decides. `Orders` makes a shadow task for every operation, with shadow Vars,
claims all of them by the rule (`core.claim`), and completes all but one: the tasks that still wait
must always come after that one. Whatever this leaves open is free.

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

from d2lmini.engine import core
from d2lmini.engine.core import Task, Var
from d2lmini.engine.operation import Operation


class Orders:
    """The legal orders of operations, given in push order."""

    def __init__(self, operations: Sequence[Operation]):
        self.numbers = [operation.number for operation in operations]
        self._operations = operations
        #: For each operation, the later ones that can only begin when it has ended; the reverse.
        self.after = {number: self._blocked_by(number) for number in self.numbers}
        self.before: dict[int, set[int]] = {number: set() for number in self.numbers}
        for number, late in self.after.items():
            for successor in late:
                self.before[successor].add(number)

    def _blocked_by(self, number: int) -> set[int]:
        """The operations that never begin if `number` never ends. Works on shadows without lock."""
        variables: dict[int, Var] = {}
        shadows: dict[Task, int] = {}
        ready = []
        for operation in self._operations:
            reads, writes = (
                tuple([variables.setdefault(v, Var()) for v in numbers])
                for numbers in (operation.reads, operation.writes)
            )
            shadow = Task(operation.name, reads, writes)
            shadow.prepare()
            shadows[shadow] = operation.number
            if core.claim(shadow):
                ready.append(shadow)
        begun = set()
        while ready:
            shadow = ready.pop()
            begun.add(shadows[shadow])
            if shadows[shadow] != number:
                ready += core.release(shadow)
        return set(self.numbers) - begun

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
