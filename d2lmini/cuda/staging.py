"""Pinned host memory, through which copies between host and GPU go.

A GPU can read and write host memory by itself, while the host goes on, only if the system never
moves that memory: pinned memory, which is expensive to allocate and to hold. So there is little of
it, in pieces that are reused. A piece that a copy still reads or writes is reused when the mark
behind the copy has passed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from d2lmini.cuda.streams import StreamMark

#: Bytes of a piece. Larger arrays are copied piece by piece, one filled while another is on its
#: way.
PIECE = 8 << 20
#: Most pieces of one direction under way; at this number the worker waits for the oldest.
MOST = 8
_SMALLEST = 1 << 12


class Staging:
    """The pinned pieces of one direction; used by one thread at a time."""

    def __init__(self, cuda: Any):
        self._cuda = cuda
        self._free: dict[int, list[np.ndarray]] = {}
        self._away: deque[tuple[StreamMark, np.ndarray]] = deque()

    def take(self, nbytes: int) -> np.ndarray:
        """A piece of at least `nbytes`, as bytes. At most `PIECE`."""
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length())
        while self._away and (self._away[0][0].passed or len(self._away) >= MOST):
            mark, piece = self._away[0]
            mark.wait()
            self._away.popleft()
            self.give_back(piece)
        free = self._free.get(size)
        if free:
            return free.pop()
        return alloc_pinned(self._cuda, size)

    def give_back(self, piece: np.ndarray) -> None:
        """Return a piece that is not in use."""
        self._free.setdefault(piece.nbytes, []).append(piece)

    def give_after(self, mark: StreamMark, piece: np.ndarray) -> None:
        """Return a piece that is in use until `mark` has passed."""
        self._away.append((mark, piece))


class Pinned(np.ndarray):
    """Bytes of pinned memory. Arrays in it have it as their base, by which they are recognized."""


def alloc_pinned(cuda: Any, nbytes: int) -> np.ndarray:
    """New pinned memory, which goes back to CuPy when the last array in it is gone."""
    return np.frombuffer(cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes).view(Pinned)


def is_pinned(array: np.ndarray) -> bool:
    """True if an array lies in memory from `alloc_pinned`."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, Pinned):
            return True
        base = base.base
    return False


def pieces(n: int, itemsize: int) -> list[slice]:
    """Slices that cut n elements into pieces.

    >>> pieces(3, 4), len(pieces(5 << 20, 4))
    ([slice(0, 3, None)], 3)
    """
    step = PIECE // itemsize
    return [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]
