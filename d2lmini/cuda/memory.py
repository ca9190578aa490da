"""The memory of a GPU: CuPy's pool holds the blocks; our pool counts bytes and orders reuse.

CuPy gives a freed block at once to the next allocation on the stream that the block came from. That
is correct as long as only this stream used the block. So an array that was dropped, on whatever
thread, is not freed there: its block joins the pending frees of its lane. Before the next task, the
lane's worker frees the blocks whose uses on other streams are done. A block that another stream
still reads is kept for a while; only when memory is short does the stream wait for that reader. The
host never waits, and finalizers call no CUDA.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini.cuda.streams import StreamOrder
from d2lmini.device.storage import Chunk, Pool
from d2lmini.engine.core import lock

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice
    from d2lmini.cuda.stream_worker import StreamWorker


#: Errors of CUDA and its libraries that say so: each numbers its errors in its own way; the class
#: of CuPy's error names the library.
_NO_MEMORY = {
    ("CUDARuntimeError", 2), ("CUDADriverError", 2), ("CUBLASError", 3), ("CUSOLVERError", 2),
    ("CURANDError", 102),
}  # fmt: skip


def is_short_of_memory(problem: BaseException) -> bool:
    """True if an error of CuPy, or of a CUDA library, says that memory is short."""
    kind = type(problem).__name__, getattr(problem, "status", None)
    return isinstance(problem, MemoryError) or kind in _NO_MEMORY


class Pinned(np.ndarray):
    """Bytes of pinned host memory, which the GPU reads and writes while the host goes on."""


def is_pinned(array: Any) -> bool:
    """True if an array lies in pinned memory."""
    while isinstance(array, np.ndarray) and not isinstance(array, Pinned):
        array = array.base
    return isinstance(array, Pinned)


#: So many arrays of a shape are kept for the next results.
MOST_SPARES = 32


class Block:
    """Memory of a chunk.

    array    the array that keeps the memory
    foreign  True if the memory belongs to another library, which may use it on its own streams as
             soon as it is freed: then all users here must be done first
    lane     the lane on whose stream the memory was allocated
    order    the marks of the users
    spares   where the array is kept for the next results of its shape; None if it is not kept
    stays    True if a CUDA graph's next results will lie here, too
    """

    __slots__ = ("array", "foreign", "lane", "order", "spares", "stays")

    def __init__(
        self, array: Any, lane: StreamWorker, spares: list[Any] | None = None, stays: bool = False
    ):
        self.array = array
        self.foreign = False
        self.spares = spares
        self.stays = stays
        self.lane = lane
        self.order = StreamOrder()

    def free(self) -> None:
        """Give the memory back: to the spare arrays, or to CuPy's pool."""
        array, self.array = self.array, None
        spares = self.spares
        if spares is not None and len(spares) < MOST_SPARES and getrefcount(array) == 2:
            spares.append(array)

    @property
    def is_unused(self) -> bool:
        """True if all work that uses the memory is done."""
        for mark in self.order.marks(True):
            try:
                if not (mark.passed or mark.query()):
                    return False
            except Exception as problem:
                # A failed GPU, this one or another, does no more work on the memory.
                mark.stream.lane.device.task_error(problem)
        return True


class CudaPool(Pool):
    """The memory of one CUDA device; bookkeeping is that of `storage.Pool`."""

    def __init__(self, device: CudaDevice):
        self.device = device
        super().__init__(device.ctx, device.memory)
        self.xp = device.xp
        self.reserved = 0  # bytes that CuPy's pool holds from CUDA, in arrays or cached

    @property
    def cached(self) -> int:  # type: ignore[override]
        """Bytes cached for reuse: reserved from CUDA and in no array, when a worker last looked."""
        return max(0, self.reserved - self.live)

    def make_lease(self, array: Any, chunk: Chunk) -> Any:
        # CuPy's pointer to the same memory, which keeps `chunk` alive and does not use the pool.
        cuda, at = self.xp.cuda, array.data
        memory = cuda.UnownedMemory(at.ptr, max(array.nbytes, 1), chunk, at.device_id)
        return self.xp.ndarray(array.shape, array.dtype, cuda.MemoryPointer(memory, 0))

    def block_of(self, array: Any) -> Block:
        return Block(array, self.device.lane_here())

    def drain(self) -> None:
        """Pass the blocks that finalizers have queued to the pending frees of their lanes (lock
        held)."""
        while self.freed:
            nbytes, block = self.freed[0]
            self.live -= nbytes
            self.freed.popleft()
            block.lane.pending_free.append(block)
        if self.gone:
            self.tell_gone()

    def empty(self) -> None:
        """Give cached memory back to CUDA; waits for the worker that does it."""
        with lock:
            self.drain()
        self.device.ask(self.device.trim, "empty_cache")
