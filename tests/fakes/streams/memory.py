"""Memory of the simulated GPUs: CuPy's pools, and pointers that copy.

A pool has an arena of free blocks for each stream, as CuPy's has. When the last array on a block is
deleted, the block returns at once to the arena it came from, even while work of another stream
still reads it; the next allocation of that stream gets the block that was used last. So the reuse
that is a data race in wrong programs happens early and always. A block that is given out again is
full of NaN.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from labs.streams import POISON, OrderError

from d2lmini.base.scopes import contextmanager
from fakes.streams import machine as machines
from fakes.streams.errors import CUDARuntimeError
from fakes.streams.machine import Machine
from fakes.streams.order import Block, Queue, Region, Work

#: Sizes are rounded up to a multiple of this.
UNIT = 512


class OutOfMemoryError(MemoryError):
    """The memory of the device is used up. In CuPy's words."""

    def __init__(self, size: int, total: int):
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes)."
        )


class Hold:
    """Calls `end` when the memory that holds it is gone, not before. The garbage collector calls
    `__del__` of all that is in a cycle, also of what another `__del__` then saves. It sees nothing
    behind an array of NumPy: memory keeps its hold there."""

    __array_interface__ = np.zeros(1).__array_interface__

    def __init__(self, end: Callable[[], None]):
        self.end = end

    def __del__(self) -> None:
        self.end()  # on any thread, between any two lines: it must not acquire a lock


class PooledMemory:
    """Memory of a pool: it returns to the pool when nothing refers to it any more."""

    def __init__(self, block: Block, pool: MemoryPool, arena: tuple[int, int], size: int):
        self.block = block
        self.start = 0
        self.size = size
        self.device_id = block.device
        self.ptr = block.address
        self._hold = np.asarray(Hold(partial(pool._given_back.append, (arena, block))))


class UnownedMemory:
    """`cupy.cuda.UnownedMemory`: a piece of memory that `owner` keeps alive."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1):
        region = machines.current().region_at(ptr, size)
        if region is None or region.block.device is None:
            raise CUDARuntimeError(1)
        self.block = region.block
        self.start = region.start
        self.size = size
        self.device_id = region.block.device
        self.ptr = ptr
        self._owner = owner


class MemoryPool:
    """`cupy.cuda.MemoryPool`: an arena for each device and stream."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, int], list[Block]] = {}
        self._given_back: deque[tuple[tuple[int, int], Block]] = deque()
        self._blocks: list[Block] = []  # all of them, given out or free

    def malloc(self, size: int) -> MemoryPointer:
        """Memory from the arena of this thread's current stream. OutOfMemoryError if there is
        none."""
        machine = machines.current()
        device = machine.current_device
        queue = machine.current_queue
        with machine.call(device):
            try:
                machine.strike(device, "malloc", "malloc")
            except CUDARuntimeError as error:
                raise OutOfMemoryError(size, self._total(device)) from error
            block = self._reuse(device, queue, size) or self._fresh(machine, device, size)
            block.begin_life()
            self._poison(queue, block)
            return MemoryPointer(PooledMemory(block, self, (device, queue.ptr), size), 0)

    def _reuse(self, device: int, queue: Queue, size: int) -> Block | None:
        self._collect()
        free = self._free.get((device, queue.ptr), [])
        for block in reversed(free):
            if size <= len(block.bytes) <= max(4 * size, UNIT):
                free.remove(block)
                return block
        return None

    def _fresh(self, machine: Machine, device: int, size: int) -> Block:
        nbytes = max(UNIT, -(-size // UNIT) * UNIT)
        if machine.used[device] + nbytes > machine.memory:
            self.free_all_blocks()
        if machine.used[device] + nbytes > machine.memory:
            gc.collect(1)  # CuPy looks through all generations, which costs tests seconds
            self.free_all_blocks()
        if machine.used[device] + nbytes > machine.memory:
            raise OutOfMemoryError(nbytes, self._total(device))
        block = Block(nbytes, device)
        machine.used[device] += nbytes
        machine.add_block(block)
        self._blocks.append(block)
        return block

    def _poison(self, queue: Queue, block: Block) -> None:
        """Fill with NaN, in the order of the stream, unless other work has used it meanwhile."""
        earlier = block.earlier

        def poison() -> None:
            if not any(old.work.done for old in block.accesses if old not in earlier):
                block.bytes.fill(POISON)

        if block.is_idle:
            poison()
        elif queue.capture is None:
            machine = machines.current()
            machine.enqueue(Work(queue, "poison", poison, machine.implicit_waits(queue)))

    def _collect(self) -> None:
        while self._given_back:
            arena, block = self._given_back.popleft()
            self._free.setdefault(arena, []).append(block)

    def _total(self, device: int) -> int:
        return sum(len(block.bytes) for block in self._blocks if block.device == device)

    def free_all_blocks(self, stream: Any = None) -> None:
        """Return free blocks to the driver, which waits for their device first."""
        machine = machines.current()
        with machine.lock:
            self._collect()
            for (device, ptr), free in self._free.items():
                if not free or (stream is not None and stream.ptr != ptr):
                    continue
                queues = [queue for queue in machine.queues if queue.device == device]
                machine.synchronize_queues(queues, "free_all_blocks")
                for block in free:
                    self._release(machine, block)
                free.clear()

    def _release(self, machine: Machine, block: Block) -> None:
        for work in (access.work for access in block.accesses):
            if machine.checks and not machine.is_over(work):
                raise OrderError(
                    f"{block} goes back to the driver while {work} still uses it\n"
                    f"  {work.name!r}: {work.where}\n"
                    f"Missing: before the last array on it is deleted, the stream that owns it has "
                    f"to wait for {work.queue}"
                )
        machine.used[block.device or 0] -= len(block.bytes)
        machine.remove_block(block)
        block.is_gone = True
        self._blocks.remove(block)

    def total_bytes(self) -> int:
        return self._total(machines.current().current_device)


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`: an address in memory that it keeps alive; `raw`: its bytes."""

    def __init__(self, mem: PooledMemory | UnownedMemory, offset: int):
        self.mem = mem
        self.ptr = mem.ptr + offset
        self._offset = offset

    @property
    def raw(self) -> np.ndarray:
        mem = self.mem
        return mem.block.bytes[mem.start + self._offset : mem.start + mem.size]

    @property
    def device_id(self) -> int:
        return self.mem.device_id  # type: ignore[return-value]

    @property
    def device(self) -> Any:
        from fakes.streams.stream import Device  # which imports graphs, but not this module

        return Device(self.device_id)

    def __add__(self, n: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self._offset + n)

    def __int__(self) -> int:
        return self.ptr

    def _bytes(self, size: int) -> tuple[np.ndarray, Region]:
        raw, start = self.raw[:size], self.mem.start + self._offset
        if len(raw) < size:
            raise CUDARuntimeError(1)
        return raw, Region(self.mem.block, start, start + size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copy `size` bytes from `src`, on any device, by `stream` or the current one."""
        machine, (target, written), (source, read) = (
            machines.current(),
            self._bytes(size),
            src._bytes(size),
        )
        queue = machine.queue_of(stream)
        machine.issue(queue, "copy", lambda: np.copyto(target, source), [read], [written])

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Fill `size` bytes with a byte, by `stream` or the current one."""
        machine, (target, written) = machines.current(), self._bytes(size)
        queue = machine.queue_of(stream)
        machine.issue(queue, "fill", lambda: target.fill(value), [], [written])


# -- the allocator of a thread ---------------------------------------------------------------------


def get_allocator() -> Callable[[int], MemoryPointer]:
    """The function that gives this thread memory: a pool's `malloc`."""
    machine = machines.current()
    return getattr(machine.local, "allocator", None) or machine.allocator


@contextmanager
def using_allocator(allocator: Callable | None = None) -> Iterator[None]:
    """A scope in which this thread uses another allocator."""
    local = machines.current().local
    before = getattr(local, "allocator", None)
    local.allocator = allocator
    try:
        yield
    finally:
        local.allocator = before


def alloc(size: int) -> MemoryPointer:
    """`size` bytes of the current device, from this thread's allocator."""
    return get_allocator()(size)
