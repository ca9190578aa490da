"""Memory of arrays: pooled, aligned, and counted to the byte.

A fresh 16 MB result costs as much in page faults as the addition that fills it, so the memory of a
freed array is kept and given to the next array of its size class. `Chunk` is one piece of memory
together with the engine Var that orders access to it: an NDArray lives in a Chunk.

>>> from d2lmini import cpu, nd, storage
>>> nd.waitall()
>>> before = storage.stats(cpu()).live
>>> x = nd.ones((1024, 1024))
>>> x.wait_to_read()
>>> storage.stats(cpu()).live - before
4194304
>>> del x
>>> storage.stats(cpu()).live - before
0

Finalizers. A Chunk dies on whatever thread drops it, perhaps while that thread holds the lock. So
`Chunk.__del__` only appends to a deque; the counts are updated (`Pool.drain`) at the next
allocation or question. Arrays under 4 KiB are left to NumPy's own small-block cache, which is
faster than the pool; they are counted too.

Ownership. A block is lent again only if no array looks into it: NumPy's views hold references to
their memory, so the reference count tells. A view that outlives its Chunk (a bug) keeps the memory
for itself.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from itertools import islice
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError, instrument
from d2lmini.context import Context, cache_releasers, current_context, gpu
from d2lmini.device.devices import device_of, exists, find_known, list_named
from d2lmini.device.interface import Device
from d2lmini.engine.budget import ByteAccount, WeightedVar
from d2lmini.engine.core import _NO_QUEUE, _NOBODY, lock
from d2lmini.engine.failure import OutOfMemoryError

#: Arrays below this many bytes lie in NumPy's own memory.
SMALL = 4096
ALIGNMENT = 64
#: Bytes behind each block that nothing may write.
RED_ZONE = 64


#: The memory checker of our tests (`make memory`), which hears of each use of memory: `lend`,
#: `take_back`, `scratch`, `guard`, `note_adoption`, `mark_shared`. None: there is none.
checker: Any = None


class Memory(NamedTuple):
    """Bytes of a device: in arrays now, kept for reuse, the most ever in arrays, the bound."""

    live: int
    cached: int
    peak: int
    limit: int | None


class Pool(ByteAccount):
    """The memory of one context: free blocks by size class, and the counts.

    Arrays of `xp` live there. If `xp` is not NumPy, the module takes memory itself, and the pool
    only counts; `block_of(array)` is then the block that `drain` gets for a dropped array, with an
    `order`.

    Guarded by the one lock of `engine.core`. Ctrl-C may end a method at any call or jump, and a
    finalizer may allocate there: so the counts are right at every call and jump.
    """

    xp: Any = np
    #: May an array that was made elsewhere become the contents of a chunk?
    adopts = True
    cached = 0
    #: Is the device installed? False once the scope of a virtual GPU has ended.
    there = True

    def __init__(self, ctx: Context, limit: int | None = None):
        self.ctx = ctx
        # Filled by finalizers: freed (nbytes, block), and the bytes of freed arrays
        # without a block: tiny ones, and those that were taken over.
        self.freed: deque[tuple[int, Any]] = deque()
        self.freed_tiny: list[int] = []
        # The same for listeners, if there are any: (nbytes, number by which traces know it).
        self.gone: deque[tuple[int, int]] = deque()
        self.live = 0
        self.peak = 0
        self.limit = limit
        self.keep = _default_keep()
        self._blocks: dict[int, list[np.ndarray]] = {}

    @property
    def most_pending(self) -> int | None:  # type: ignore[override]
        """The bound on pending bytes of a device with its own memory: half of the memory."""
        return None if self.limit is None or self.ctx.is_cpu else self.limit // 2

    def take(self, nbytes: int) -> np.ndarray:
        """An aligned block of at least `nbytes` as a uint8 array; OutOfMemoryError if there is none
        even after all cached blocks were given back (lock held)."""
        size = size_class(nbytes)
        self.drain()
        self.check_limit(nbytes)
        blocks = self._blocks.get(size)
        while blocks:
            # The block is free if each count is 2: the list's or the view's reference, and
            # getrefcount's. Otherwise the block belongs to the array that can still write there.
            free = getrefcount(blocks[-1]) == 2 == getrefcount(blocks[-1].base)
            # No call or jump between the next two lines, hence no Ctrl-C.
            self.cached -= size
            block = blocks.pop()
            if free:
                if checker is not None:
                    checker.lend(block, nbytes, "an array")
                return block
        if self.limit is not None and self.live + self.cached + size > self.limit:
            self.release_cached()
        for attempt in (1, 2):
            try:
                raw = self.fresh(size + ALIGNMENT + RED_ZONE)
                break
            except MemoryError:
                if attempt == 2:
                    raise OutOfMemoryError(self.explain(nbytes)) from None
                self.release_cached()
        start = -raw.__array_interface__["data"][0] % ALIGNMENT
        block = raw[start : start + size]
        if checker is not None:
            checker.lend(block, nbytes, "an array")
        return block

    def fresh(self, nbytes: int) -> np.ndarray:
        """Fresh memory of the system, as bytes (lock held)."""
        return np.empty(nbytes, np.uint8)

    def review(self) -> None:
        """Update the counts (lock held)."""
        self.drain()
        if self.live > self.peak:
            self.peak = self.live

    def check_limit(self, nbytes: int) -> None:
        """OutOfMemoryError if an array of `nbytes` would pass the limit (lock held)."""
        if self.limit is not None and self.live + nbytes > self.limit:
            self.drain()
            if self.live + nbytes > self.limit:
                raise OutOfMemoryError(self.explain(nbytes))

    def drain(self) -> None:
        """Take back the memory that finalizers have freed (lock held)."""
        tiny = self.freed_tiny
        n = len(tiny)
        nbytes = sum(tiny[:n])
        # No call or jump between these two lines, hence no Ctrl-C.
        self.live -= nbytes
        del tiny[:n]
        while self.freed:
            nbytes, block = self.freed[0]
            self.live -= nbytes
            self.freed.popleft()
            size = block.nbytes
            if checker is not None:
                checker.take_back(block)
            blocks = self._blocks.setdefault(size, [])
            self.cached += size
            blocks.append(block)
        if self.cached > self.keep:
            self.release_cached(self.keep)
        if self.gone:
            self.tell_gone()

    def tell_gone(self) -> None:
        """Tell listeners which memory was freed; the counts include it already (lock held)."""
        while self.gone:
            instrument.emit("free", self.ctx, *self.gone.popleft())

    def release_cached(self, keep: int = 0) -> None:
        """Give cached blocks back to the system, the largest first, until `keep` bytes are left
        (lock held)."""
        for size in sorted(self._blocks, reverse=True):
            blocks = self._blocks[size]
            while blocks and self.cached > keep:
                self.cached -= size
                blocks.pop()

    def make_lease(self, array: Any, chunk: Chunk) -> Any:
        """The memory of `array`, a view of `chunk`, as an `xp` array that keeps `chunk` alive."""
        if checker is not None:
            checker.mark_shared(chunk)
        return np.asarray(Lease(array, chunk))

    def empty(self) -> None:
        """Give the memory kept for reuse back to the system."""
        with lock:
            self.drain()
            self.release_cached()

    def stats(self) -> Memory:
        """The counts now."""
        with lock:
            self.review()
            return Memory(self.live, self.cached, self.peak, self.limit)

    def explain(self, nbytes: int) -> str:
        """The text of the error that so many bytes are not there."""
        bound = "" if self.limit is None else f" of {self.limit / 1e6:.1f} MB allowed"
        return (
            f"out of memory on {self.ctx}: {nbytes / 1e6:.1f} MB asked for, "
            f"{self.live / 1e6:.1f} MB{bound} are in use by arrays; drop some, use smaller "
            "batches, or bound the run-ahead with engine.limit_pending(nbytes)"
        )


class PinnedPool(Pool):
    """The memory of `cpu_pinned(i)`: memory that `gpu(i)` reads and writes by itself if it is a
    CUDA GPU; otherwise ordinary memory of the CPU."""

    adopts = False

    def fresh(self, nbytes: int) -> np.ndarray:
        device = find_known(gpu(self.ctx.device_id))
        pinned = None if device is None else device.alloc_pinned(nbytes)
        return super().fresh(nbytes) if pinned is None else pinned


class Lease:
    """The base of NumPy arrays that look into the memory of a chunk; it keeps the chunk alive."""

    __slots__ = ("__array_interface__", "chunk")

    def __init__(self, array: np.ndarray, chunk: Chunk):
        self.__array_interface__ = array.__array_interface__
        self.chunk = chunk


class Chunk(WeightedVar):
    """Memory of `nbytes` and the Var that orders access to it.

    data    the contents as an array of the shape it was made with; None until computed
    pool    the pool that the memory comes from and goes back to
    block   the pool's block in which `data` lies; None if NumPy holds the memory itself
    nbytes  size of the memory
    weight  0 below 4 KiB; else the bytes that count as pending until they are computed (`filled`)
    spec    the spec of an array on the CPU that is known to be all of `data`; None before
    saved   the cell of all elements, if the tape has saved the contents; else None
    parts   the cells of views that the tape has saved: (first, last element) -> cell; or None

    Cells. Backward needs values that the program may overwrite before. So a step on the tape holds,
    beside each array that it saves, a cell, which all steps that save the same contents share. A
    cell is [version], the version of the contents (0 for parts, whose contents other writes leave
    as they are). Before a write, each cell that a step holds, and whose elements will change, gets
    a copy of them (`dispatch.note_writes`); then it is [None, copy, line of the write]. A cell that
    only the chunk refers to costs nothing: the reference count tells.
    """

    __slots__ = ("block", "data", "nbytes", "parts", "pool", "saved", "spec")

    def __init__(self, pool: Pool, nbytes: int):
        # The fields of Var are set here: saves a call on every small operation.
        self.data: Any
        self.block: Any
        self.spec: Any
        self.saved: list[Any] | None
        self.parts: dict[tuple[int, int], list[Any]] | None
        self.writer = self.error = self.order = self.data = self.block = self.spec = None
        self.saved = self.parts = None
        self.readers = _NOBODY
        self.queue = _NO_QUEUE
        self.version = 0
        self.pool = pool
        self.nbytes = nbytes
        if nbytes < SMALL:
            self.weight = 0
        else:
            WeightedVar.__init__(self, nbytes)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Allocate the memory and return it as an array; contents undefined."""
        if self.pool.xp is not np:
            with lock:
                self.pool.check_limit(self.nbytes)
            array = self.pool.xp.empty(shape, dtype)  # the module takes memory itself
            self.adopt(array)
            return array
        with lock:
            if self.nbytes < SMALL and checker is None:
                array = np.empty(shape, dtype)
            else:
                self.block = self.pool.take(self.nbytes)
                array = np.ndarray(shape, dtype, self.block)
            self.own(array)
        return array

    def adopt(self, array: np.ndarray) -> None:
        """Make `array` the contents: fresh, contiguous, without another reference. AssertionError
        unless the array is in C order."""
        if not array.flags.c_contiguous:
            raise AssertionError("an array must be in C order, else its views would be copies")
        with lock:
            if self.nbytes >= SMALL:
                self.pool.check_limit(self.nbytes)
            if self.pool.xp is not np:
                self.block = self.pool.block_of(array)
                self.order = self.block.order
            elif checker is not None:
                checker.note_adoption(self, array)
            self.own(array)

    def own(self, array: np.ndarray) -> None:
        """Make `array`, which is in C order, the contents and count it (lock held)."""
        pool = self.pool
        self.data = array
        self.spec = None
        pool.live += self.nbytes
        if pool.live > pool.peak or len(pool.freed) > 64 or len(pool.freed_tiny) > 64:
            pool.review()
        if instrument.listeners:
            pool.drain()
            instrument.emit("alloc", pool.ctx, self.nbytes, self)

    def lease(self) -> Any:
        """The contents as an array that keeps the chunk alive, as do all views made of it."""
        return self.pool.make_lease(self.data, self)

    def cell_of(self, first: int, last: int) -> list[Any]:
        """The cell of elements `first` to `last`, a part of the contents (lock held)."""
        parts = self.parts = self.parts or {}
        if (first, last) not in parts:
            # Each new cell looks at two old ones: so the cells in use are at least about half.
            for key in list(islice(parts, 2)):
                if getrefcount(parts[key]) == 2:
                    del parts[key]
                else:
                    parts[key] = parts.pop(key)
            parts[first, last] = [0]
        return parts[first, last]

    def cells_in(self, begin: int, end: float) -> list[tuple[int | None, int, list[Any]]]:
        """The cells that need a copy before elements `begin` to `end` change, each with its first
        (None: all of the contents) and last element. Forgets those that only the chunk refers to,
        that have a copy, or that are too late for one (lock held)."""
        found: list[tuple[int | None, int, list[Any]]] = []
        if self.saved is not None:
            if getrefcount(self.saved) == 2 or self.saved[0] != self.version:
                self.saved = None
            else:
                found.append((None, 0, self.saved))
        parts = self.parts or {}
        for key in list(parts):
            if getrefcount(parts[key]) == 2 or parts[key][0] is None:
                del parts[key]
            elif key[0] < end and begin < key[1]:
                found.append((*key, parts[key]))
        return found

    def __del__(self) -> None:
        try:
            if self.data is None:
                return
            if self.block is None:
                self.pool.freed_tiny.append(self.nbytes)
            else:
                self.pool.freed.append((self.nbytes, self.block))
            if instrument.listeners:
                self.pool.gone.append((self.nbytes, getattr(self, "serial", 0)))
        except AttributeError:  # Ctrl-C came before __init__
            return


# -- pools by context ------------------------------------------------------------------------------


def pool_of(ctx: Context) -> Pool:
    """The pool of a context; MXNetError when the device does not exist."""
    device = device_of(ctx)
    return device.pool or _begin_pool(device)


def _begin_pool(device: Device) -> Pool:
    kind = PinnedPool if device.ctx.device_type == "cpu_pinned" else Pool
    if kind is PinnedPool:
        exists(gpu(device.ctx.device_id))  # search for GPUs now: `fresh` is called with the lock
    with lock:
        if device.pool is None:
            device.pool = kind(device.ctx, device.memory)
        return device.pool


def check_there(chunks: Iterable[Any]) -> None:
    """MXNetError if one of `chunks` lies on a device that no longer exists (`virtual_gpus`)."""
    for chunk in chunks:
        if not chunk.pool.there:
            raise MXNetError(
                f"the array lies on a {chunk.pool.ctx} that no longer exists: its "
                "virtual_gpus(...) has ended. Copy what you need to cpu() before the end, or leave "
                "the scope later"
            )


def stats(ctx: Context | None = None) -> Memory:
    """Live, cached and peak bytes of a context (default: the current one)."""
    return pool_of(ctx or current_context()).stats()


def settle() -> None:
    """Update the counts of all devices; listeners hear of freed memory."""
    for device in list_named():
        if device.pool is not None:
            device.pool.stats()


def reset_peak(ctx: Context | None = None) -> None:
    """Reset the peak to the bytes that are live now."""
    pool = pool_of(ctx or current_context())
    with lock:
        pool.drain()
        pool.peak = pool.live


def set_limit(ctx: Context, nbytes: int | None) -> None:
    """Let arrays of `ctx` take at most `nbytes` (None: all there is). Arrays under 4 KiB are
    counted, but never refused."""
    pool_of(ctx).limit = nbytes


def release_cached(ctx: Context | None = None) -> None:
    """Give the memory kept for reuse back to the system."""
    pool_of(ctx or current_context()).empty()


cache_releasers.append(release_cached)  # for Context.empty_cache


def size_class(nbytes: int) -> int:
    """`nbytes` rounded up to a quarter step between powers of two: at most 25 % is wasted.

    >>> [size_class(n) for n in (4096, 4097, 5000, 16_000_000)]
    [4096, 5120, 5120, 16777216]
    """
    step = 1 << max((max(nbytes, 1) - 1).bit_length() - 3, 8)
    return -(-nbytes // step) * step


def _default_keep() -> int:
    """The bytes that may stay cached: an eighth of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8
    except (AttributeError, ValueError, OSError):  # Windows
        return 1 << 30
