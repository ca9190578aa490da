"""What the compiled programs of a net have in common: arenas, and a bound on how many there are.

A net that sees ever new shapes, sentences of every length or images of every size, is compiled for
each. Programs take memory too: their text, code and graphs. So only those are kept that were used
last, as many as `MOST_BYTES` hold, but always `LEAST`; and all take turns in the same arenas.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from d2lmini.context import Context
from d2lmini.graph.arena import Arenas

#: The programs of one net take about so many bytes at most.
MOST_BYTES = 64 << 20
#: So many are kept, however large they are.
LEAST = 16

#: Counts up: what was used later has the higher number.
now = count(1).__next__


class ProgramCache:
    """The programs of a net, and their arenas.

    A program in it has `nbytes`, about how much it takes, and `used`, when it was asked for last.
    """

    def __init__(self, static_alloc: bool = False):
        self.static_alloc = static_alloc
        self._arenas: dict[Context, Arenas] = {}
        self._programs: list[tuple[Any, Callable[[], None]]] = []

    def arenas(self, ctx: Context) -> Arenas:
        """Those of a context."""
        found = self._arenas.get(ctx)
        return found or self._arenas.setdefault(ctx, Arenas(ctx, self.static_alloc))

    def add(self, compiled: Any, forget: Callable[[], None]) -> None:
        """Keep one more; those that were not used for longest may have to go, which `forget` sees
        to. One thread at a time (`trace.one_at_a_time`)."""
        self._programs.append((compiled, forget))
        nbytes = sum(program.nbytes for program, _ in self._programs)
        while nbytes > MOST_BYTES and len(self._programs) > LEAST:
            oldest = min(self._programs, key=lambda key: key[0].used)
            self._programs.remove(oldest)
            nbytes -= oldest[0].nbytes
            oldest[1]()

    def remove(self, compiled: Any) -> None:
        """It is not used any more."""
        self._programs = [program for program in self._programs if program[0] is not compiled]
