"""Pinned host memory, through which copies between host and GPU go.

A GPU can read and write memory of the host by itself, while everybody goes on, only where the
system promises not to move it: pinned memory, which is costly to get and to have. So there is
little of it, in pieces that are used over and over. A piece that a copy is still reading or writing
is taken again when the mark behind that copy has passed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from d2lmini.cuda.streams import Mark

#: Larger arrays travel in pieces of so many bytes, one being filled while another is on its way.
PIECE = 8 << 20
#: So many pieces of one direction are on their way at most; then its worker waits for the oldest.
MOST = 8
_SMALLEST = 1 << 12


class Staging:
    """The pinned pieces of one direction; used by one thread at a time."""

    def __init__(self, cuda: Any):
        self._cuda = cuda
        self._free: dict[int, list[np.ndarray]] = {}
        self._away: deque[tuple[Mark, np.ndarray]] = deque()

    def take(self, nbytes: int) -> np.ndarray:
        """A piece of at least `nbytes`, as bytes. At most `PIECE`."""
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length())
        while self._away and (self._away[0][0].passed or len(self._away) >= MOST):
            mark, piece = self._away[0]
            mark.wait()
            self._away.popleft()
            self.give(piece)
        free = self._free.get(size)
        if free:
            return free.pop()
        return pinned(self._cuda, size)

    def give(self, piece: np.ndarray) -> None:
        """Nobody uses it any more."""
        self._free.setdefault(piece.nbytes, []).append(piece)

    def give_after(self, mark: Mark, piece: np.ndarray) -> None:
        """Nobody uses it any more once `mark` has passed."""
        self._away.append((mark, piece))


class Pinned(np.ndarray):
    """Bytes of pinned memory. Arrays made in there have it as their base, and are known by it."""


def pinned(cuda: Any, nbytes: int) -> np.ndarray:
    """New pinned memory, which CuPy gets back with the last array in there."""
    return np.frombuffer(cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes).view(Pinned)


def is_pinned(array: np.ndarray) -> bool:
    """Does an array lie in memory from `pinned`?"""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, Pinned):
            return True
        base = base.base
    return False


def pieces(n: int, itemsize: int) -> list[slice]:
    """n elements cut into stretches that a piece can hold.

    >>> pieces(3, 4), len(pieces(5 << 20, 4))
    ([slice(0, 3, None)], 3)
    """
    step = PIECE // itemsize
    return [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]
