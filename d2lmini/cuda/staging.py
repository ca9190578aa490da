"""Pinned host memory, through which copies between host and GPU go.

A GPU can read and write host memory by itself, while the host goes on, only if the system never
moves that memory. Such memory is called pinned; it is expensive to allocate and to hold. So there
are few pieces of pinned memory, which are reused. A piece that a copy still reads or writes is
reused when the mark behind the copy has passed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from d2lmini.cuda.streams import StreamMark

#: Bytes of a piece. Larger arrays are copied piece by piece: the host fills one piece while the GPU
#: reads another.
PIECE = 8 << 20
#: Pieces of one direction in use at a time; at this number the worker waits for the oldest.
MAX_IN_USE = 8
_MIN_NBYTES = 1 << 12


class Staging:
    """The pinned pieces of one direction; used by one thread at a time."""

    def __init__(self, cuda: Any):
        self._cuda = cuda
        self._free: dict[int, list[np.ndarray]] = {}
        self._in_use: deque[tuple[StreamMark, np.ndarray]] = deque()

    def acquire(self, nbytes: int) -> np.ndarray:
        """A piece of at least `nbytes` bytes, which is at most `PIECE`, as an array of uint8."""
        size = max(_MIN_NBYTES, 1 << (nbytes - 1).bit_length())
        while self._in_use and (self._in_use[0][0].passed or len(self._in_use) >= MAX_IN_USE):
            mark, piece = self._in_use[0]
            mark.wait()
            self._in_use.popleft()
            self.release(piece)
        free = self._free.get(size)
        if free:
            return free.pop()
        return alloc_pinned(self._cuda, size)

    def release(self, piece: np.ndarray) -> None:
        """Make a piece that is not in use available again."""
        self._free.setdefault(piece.nbytes, []).append(piece)

    def release_after(self, mark: StreamMark, piece: np.ndarray) -> None:
        """Make a piece available again when `mark` has passed."""
        self._in_use.append((mark, piece))


class Pinned(np.ndarray):
    """Bytes of pinned memory. `is_pinned` finds this class among the bases of an array."""


def alloc_pinned(cuda: Any, nbytes: int) -> np.ndarray:
    """New pinned memory; CuPy gets the memory back when the last array in it is dropped."""
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
