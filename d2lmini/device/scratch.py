"""Scratch memory for intermediate results, kept by each thread from one use to the next.

Fresh memory comes from the system page by page; for a block that fits the cache, asking for memory
costs more than the computation in it.

>>> from d2lmini.device.scratch import scratch
>>> a = scratch.array("sums", 3, "float32")
>>> where = a.ctypes.data
>>> del a
>>> scratch.array("sums", 3, "float32").ctypes.data == where
True

Some blocks are too large for every thread to keep. They are lent to one user after another:

>>> from d2lmini.device.scratch import loan
>>> with loan((1000, 6000), "float32") as a:
...     where = a.ctypes.data
>>> del a
>>> with loan((1000, 5000), "float32") as a:
...     a.shape, a.ctypes.data == where
((1000, 5000), True)

Memory is lent again only if no array looks into it, as in the pool (`storage`). Otherwise the
memory stays with that array, and the next user gets other memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from d2lmini.base.scopes import contextmanager
from d2lmini.context import cache_releasers
from d2lmini.device import storage
from d2lmini.device.storage import RED_ZONE

#: Larger blocks are not kept, unless the caller says so.
MOST_BYTES = 1 << 21
#: Blocks that a thread keeps for `spare`.
MOST_SPARE = 4


class Scratch(threading.local):
    """The buffers of a thread, by name: two buffers in use at once need two names."""

    def __init__(self) -> None:
        self.memory: dict[str | int, np.ndarray] = {}

    def array(
        self, name: str | int, shape: int | tuple[int, ...], dtype: Any, most: int = MOST_BYTES
    ) -> np.ndarray:
        """Room for an array of this shape (or length), contents undefined; kept if it takes no more
        than `most` bytes."""
        dtype = np.dtype(dtype)
        nbytes = (shape if isinstance(shape, int) else prod(shape)) * dtype.itemsize
        if storage.checker is not None:
            block = storage.checker.scratch(self.memory, name, nbytes)
            return block.view(dtype).reshape(shape)
        memory = self.memory.get(name)
        # Three references: the dict, this call, and getrefcount's; any more is a view in use.
        if memory is None or memory.nbytes < nbytes or getrefcount(self.memory[name]) > 3:
            if nbytes > most:
                return np.empty(shape, dtype)
            memory = self.memory[name] = np.empty(nbytes, np.uint8)
        return memory[:nbytes].view(dtype).reshape(shape)

    def spare(self, spec: Any) -> np.ndarray:
        """Room for an array of this shape and dtype, in memory that no other array uses."""
        nbytes = max(spec.nbytes, 2 * MOST_BYTES)  # unused pages take no memory
        for name in range(MOST_SPARE):
            # Two references: the dict and getrefcount's.
            if name not in self.memory or getrefcount(self.memory[name]) < 3:
                room = self.array(name, nbytes, np.uint8, nbytes)
                return np.ndarray(spec.shape, spec.dtype, room)
        return np.empty(spec.shape, spec.dtype)


scratch = Scratch()


#: Larger blocks are lent. (The C library keeps smaller ones, and asks the system for fresh pages
#: at every request for more than 32 MB.)
LEAST_LENT = 1 << 24
#: Number of returned blocks that are kept, the last ones.
MOST_LENT = 8

_blocks: deque[np.ndarray] = deque(maxlen=MOST_LENT)  # every operation on it is atomic


@contextmanager
def loan(shape: tuple[int, ...], dtype: Any) -> Iterator[np.ndarray]:
    """Room for an array of this shape, contents undefined, until the scope ends."""
    dtype = np.dtype(dtype)
    nbytes = prod(shape) * dtype.itemsize
    checker = storage.checker
    is_lent = nbytes >= LEAST_LENT
    block = _find_cached(nbytes) if is_lent else None
    if block is None:
        block = np.empty(nbytes + RED_ZONE, np.uint8)
    if checker is not None:
        checker.lend(block, nbytes, "a loan")
    try:
        yield block[:nbytes].view(dtype).reshape(shape)
    finally:
        if checker is not None:
            checker.take_back(block)
        if is_lent:
            _blocks.append(block)


def _find_cached(nbytes: int) -> np.ndarray | None:
    """A returned block, large enough and not more than twice as large."""
    for _ in range(MOST_LENT):
        try:
            block = _blocks.popleft()
        except IndexError:
            return None
        # Two references: this call and getrefcount's; any more is a view that outlived its scope.
        if getrefcount([block][0]) > 2:
            continue
        if nbytes <= block.nbytes - RED_ZONE <= 2 * nbytes:
            return block
        _blocks.append(block)
    return None


cache_releasers.append(lambda _ctx: _blocks.clear())  # for Context.empty_cache
