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

from d2lmini.device.cuda.streams import Mark

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
        return np.frombuffer(self._cuda.alloc_pinned_memory(size), np.uint8, size)

    def give(self, piece: np.ndarray) -> None:
        """Nobody uses it any more."""
        self._free.setdefault(piece.nbytes, []).append(piece)

    def give_after(self, mark: Mark, piece: np.ndarray) -> None:
        """Nobody uses it any more once `mark` has passed."""
        self._away.append((mark, piece))


def pieces(n: int, itemsize: int) -> list[slice]:
    """n elements cut into stretches that a piece can hold.

    >>> pieces(3, 4), len(pieces(5 << 20, 4))
    ([slice(0, 3, None)], 3)
    """
    step = PIECE // itemsize
    return [slice(begin, min(begin + step, n)) for begin in range(0, n, step)]
