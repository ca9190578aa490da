"""The memory of a GPU: CuPy's pool keeps the blocks, ours the books and the order of reuse.

CuPy gives a freed block at once to the next one who asks on the stream that it came from. That is
right as long as only this stream used it. So an array that was dropped is not freed where it
happened, which may be any thread: it is laid in the grave of its lane, whose worker, before its
next task, lets go of it if all who used the memory on other streams are done. What another stream
still reads is kept a while; only when memory is short the stream is made to wait for that reader.
The host waits for nothing, and finalizers call no CUDA.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini.cuda.streams import Order
from d2lmini.device.storage import Chunk, Pool
from d2lmini.engine.core import lock

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice
    from d2lmini.cuda.lanes import CudaLane


class Block:
    """Memory that a chunk lives in: the array that keeps it, on whose stream it was allocated, who
    used it, and whether it belongs to another library: that may use it on streams of its own as
    soon as we let go, so first all who used it here have to be done."""

    __slots__ = ("array", "foreign", "lane", "order")

    def __init__(self, array: Any, lane: CudaLane):
        self.array = array
        self.foreign = False
        self.lane = lane
        self.order = Order()

    @property
    def is_done_with(self) -> bool:
        """Is all done that was to use it?"""
        for mark in self.order.marks(True):
            try:
                if not (mark.passed or mark.ask()):
                    return False
            except Exception as problem:
                # A GPU that failed, this one or another, does nothing with it any more.
                mark.stream.lane.device.explained(problem)
        return True


class CudaPool(Pool):
    """The memory of one CUDA device; the books are those of `storage.Pool`."""

    def __init__(self, device: CudaDevice):
        self.device = device
        super().__init__(device.ctx, device.memory)
        self.keep = 0
        self.xp = device.xp
        self.reserved = 0  # bytes that CuPy's pool has from CUDA, in arrays or kept for reuse

    @property
    def cached(self) -> int:  # type: ignore[override]
        """Bytes kept for reuse: what CUDA gave and no array has. At the last look of a worker."""
        return max(0, self.reserved - self.live)

    @cached.setter
    def cached(self, nbytes: int) -> None:
        """Whoever begins new books: CuPy's own are kept."""

    def new(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """A new array on the stream of this thread's task, contents undefined. MemoryError where
        the limit would be passed, or CUDA has no more."""
        with lock:
            self.check_limit(prod(shape) * dtype.itemsize)
        return self.xp.empty(shape, dtype)

    def leased(self, array: Any, chunk: Chunk) -> Any:
        cuda, at = self.xp.cuda, array.data
        memory = cuda.UnownedMemory(at.ptr, max(array.nbytes, 1), chunk, at.device_id)
        return self.xp.ndarray(array.shape, array.dtype, cuda.MemoryPointer(memory, 0))

    def block_of(self, array: Any) -> Block:
        return Block(array, self.device.lane_here())

    def drain(self) -> None:
        """Take note of what finalizers have left, and leave it to the worker of its lane (lock
        held)."""
        while self.freed:
            nbytes, block = self.freed[0]
            self.live -= nbytes
            self.freed.popleft()
            block.lane.graves.append(block)
        if self.gone:
            self.tell_gone()

    def release_cached(self, keep: int = 0) -> None:
        """Nothing that could be done here, with the lock held: CuPy looks for memory itself before
        it gives up, and `empty` asks a worker."""

    def empty(self) -> None:
        """Give what is kept for reuse back to CUDA; waits for the worker that does it."""
        with lock:
            self.drain()
        self.device.ask(self.device.trim, "empty_cache")

    def explain(self, nbytes: int) -> str:
        """What a MemoryError says of an allocation of `nbytes`."""
        return self._explain(nbytes)
