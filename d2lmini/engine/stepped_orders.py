"""The legal orders of operations: all of them, or a few that show every freedom.

The engine's own rule decides (`order`): operations that share a Var, which one of them writes, keep
their order. Whatever this leaves open is free.

n operations that share nothing have n! orders. Many differ in nothing that matters: an operator
touches only the arrays that it names, so two neighbouring operators that share no written array
may be exchanged without changing a value. `all(classes=True)` gives one order of each class of
such equal orders (a Mazurkiewicz trace), by Godefroid's sleep sets. A pushed function may touch
what it does not name, and is exchanged with nothing.

`reduced` gives a few orders in which every two unordered operations come both ways round; for n
operations that share nothing, two orders do. They show every pair that does not commute, but not an
effect that needs a third operation between the two.

>>> from d2lmini import engine, nd
>>> with engine.stepped() as s:
...     x = [nd.ones((1,)) for _ in range(4)]
...     y = x[0] + x[1]
...     print(len(s.orders()), s.orders(reduced=True))
40 [(1, 2, 3, 4, 5), (4, 3, 2, 1, 5), (2, 1, 5, 4, 3)]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from d2lmini.engine.operation import Operation
from d2lmini.engine.order import Ordering

Order = tuple[int, ...]
#: The search for classes of orders gives up after this many steps for each class it may give.
_STEPS = 50


class Orders:
    """The legal orders of operations, given in push order.

    numbers   of the operations. Inside, an operation is its place in this list, and a set of
              operations the bits of an integer
    """

    def __init__(self, operations: Sequence[Operation]):
        self.numbers = [operation.number for operation in operations]
        #: Which of the operations touch nothing but the arrays that they name.
        self._operators = [operation.footprint is not None for operation in operations]
        self._functions = sum(1 << i for i, known in enumerate(self._operators) if not known)
        self._everything = (1 << len(operations)) - 1
        self._direct = _direct_predecessors(operations)
        n = len(operations)
        self._next: list[list[int]] = [[] for _ in range(n)]
        self._before = [0] * n  # all that come before, directly or not
        self._after = [0] * n
        for i, those in enumerate(self._direct):
            for j in those:
                self._next[j].append(i)
                self._before[i] |= self._before[j] | 1 << j
        for i in reversed(range(n)):
            for j in self._next[i]:
                self._after[i] |= self._after[j] | 1 << j

    @property
    def only_operators(self) -> bool:
        """Is every operation an operator of the library, with no state but its arrays?"""
        return all(self._operators)

    def some(self, most: int, reduced: bool) -> list[Order]:
        """All orders, or a few that show every freedom; ValueError for more than `most`."""
        orders: Iterator[Order | None] = self.reduced() if reduced else self.all()
        found = [order for order in islice(orders, most + 1) if order is not None]
        if len(found) > most:
            raise ValueError(
                f"orders: there are more than {most}. Ask for orders(reduced=True), a few in which "
                "every two unordered operations come both ways round, or raise `most`"
            )
        return found

    def classes(self, most: int) -> list[Order] | None:
        """One order of each class; None if there are more than `most`, or the search is long."""
        found: list[Order] = []
        for order in self.all(classes=True, steps=_STEPS * most + 2 * len(self.numbers)):
            if order is None or len(found) == most:
                return None
            found.append(order)
        return found

    def all(self, classes: bool = False, steps: int = -1) -> Iterator[Order | None]:
        """Each legal order once, program order first; with `classes` one order of each class. After
        `steps` steps of the search, if not negative, None is the last."""
        n = len(self.numbers)
        if not n:
            yield ()
            return
        order: list[int] = []
        waits = [len(those) for those in self._direct]
        # For each depth: the operations that may come next, those of them that are yet to be tried,
        # in reverse, and those that sleep, because every order that goes on with them is known.
        able = [i for i in range(n) if not waits[i]]
        stack = [(able, able[::-1], 0)]
        done = 0
        while stack:
            able, todo, sleep = stack[-1]
            if not todo or (sleep and self._is_stuck(sleep, done)):
                stack.pop()
                if order:
                    done ^= 1 << order[-1]
                    self._count(order.pop(), waits, 1)
                continue
            i = todo.pop()
            if sleep >> i & 1:
                continue
            if steps == 0:
                yield None
                return
            steps -= 1
            if classes:
                stack[-1] = able, todo, sleep | 1 << i
            order.append(i)
            done |= 1 << i
            self._count(i, waits, -1)
            if len(order) == n:
                yield tuple(self.numbers[k] for k in order)
            then = sorted([j for j in able if j != i] + [j for j in self._next[i] if not waits[j]])
            stack.append((then, then[::-1], self._exchangeable(i, sleep)))

    def _count(self, i: int, waits: list[int], by: int) -> None:
        """Operation i is done (by = -1), or is taken back (1)."""
        for j in self._next[i]:
            waits[j] += by

    def _exchangeable(self, i: int, those: int) -> int:
        """Of `those`, unordered with operation i, the ones that may be exchanged with it."""
        return those & ~self._functions if self._operators[i] else 0

    def _is_stuck(self, sleep: int, done: int) -> bool:
        """Can a sleeping operation never wake, because all that may still come before it may be
        exchanged with it? Then every order from here on is known."""
        for j in _places(sleep):
            wakers = self._functions if self._operators[j] else self._everything
            if not wakers & ~(done | self._after[j] | 1 << j):
                return True
        return False

    def reduced(self) -> Iterator[Order]:
        """Program order, then others until every two unordered operations were seen both ways
        round."""
        n = len(self.numbers)
        yield tuple(self.numbers)
        # For each operation the later ones that have not been seen before it and may come so.
        unseen = [self._everything >> i + 1 << i + 1 & ~self._after[i] for i in range(n)]
        wanted, first = 0, 0
        while any(unseen[first:]):
            placed, order = 0, self._newest_first(wanted)
            for i in order:
                unseen[i] &= ~placed
                placed |= 1 << i
            yield tuple(self.numbers[i] for i in order)
            while first < n and not unseen[first]:
                first += 1
            if first < n:
                late = next(_places(unseen[first]))
                wanted = self._before[late] | 1 << late

    def _newest_first(self, wanted: int) -> list[int]:
        """The `wanted` as soon as possible; otherwise always the newest that may be next."""
        waits = [len(those) for those in self._direct]
        able = [(not wanted >> i & 1, -i) for i, those in enumerate(self._direct) if not those]
        heapify(able)
        order = []
        while able:
            i = -heappop(able)[1]
            order.append(i)
            for j in self._next[i]:
                waits[j] -= 1
                if not waits[j]:
                    heappush(able, (not wanted >> j & 1, -j))
        return order

    def drawn(self, seed: int) -> Order:
        """A legal order at random: the next is any that may be next."""
        rng = random.Random(seed)
        waits = [len(those) for those in self._direct]
        able = [i for i, those in enumerate(self._direct) if not those]
        order = []
        while able:
            k = rng.randrange(len(able))
            able[k], able[-1] = able[-1], able[k]
            order.append(i := able.pop())
            for j in self._next[i]:
                waits[j] -= 1
                if not waits[j]:
                    able.append(j)
        return tuple(self.numbers[i] for i in order)


def _direct_predecessors(operations: Sequence[Operation]) -> list[set[int]]:
    """For each operation, by place, those that it directly comes after."""
    places = {operation.number: i for i, operation in enumerate(operations)}
    ordering = Ordering()
    return [
        {places[number] for before in ordering.after(operation) for number in before}
        for operation in operations
    ]


def _places(bits: int) -> Iterator[int]:
    """The places of the bits that are set, the lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
