"""Memory of the fake GPUs: CuPy's pools, and pointers that copy.

A pool has an arena of free blocks for each stream, as CuPy's has. A block that is let go is back in
the arena it came from at once, whatever still reads it, and the next who asks there gets the block
used last: the reuse that is a race in bad programs happens early and always. Given out again it is
full of NaN.
"""

from __future__ import annotations

import gc
from collections import deque
from typing import Any

import numpy as np

from fakes import machine as machines
from fakes.host_memory import from_host, host_bytes, to_host
from fakes.machine import CUDARuntimeError, Machine
from fakes.order import POISON, Block, OrderError, Queue, Region, Work

#: What sizes are rounded up to.
UNIT = 512


class OutOfMemoryError(MemoryError):
    """As CuPy words it; `limit` 0: the card itself is full."""

    def __init__(self, size: int, total: int, limit: int = 0):
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(text + (f", limit set to: {limit:,} bytes)." if limit else ")."))


class PooledMemory:
    """What a pool gives out: it goes back when nothing refers to it any more."""

    def __init__(self, block: Block, pool: MemoryPool, arena: tuple[int, int], size: int):
        self.block = block
        self.start = 0
        self.size = size
        self.device_id = block.device
        self.ptr = block.address
        self._give_back = pool._given_back.append
        self._arena = arena

    def __del__(self) -> None:
        # On any thread, in the middle of anything: no lock may be taken here.
        self._give_back((self._arena, self.block))


class UnownedMemory:
    """`cupy.cuda.UnownedMemory`: a piece of memory that `owner` keeps."""

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
    """`cupy.cuda.MemoryPool`: arenas by device and stream."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, int], list[Block]] = {}
        self._given_back: deque[tuple[tuple[int, int], Block]] = deque()
        self._blocks: list[Block] = []  # all of them, given out or free
        self._limit: dict[int, int] = {}

    def malloc(self, size: int) -> MemoryPointer:
        """Memory from the arena of this thread's current stream."""
        machine = machines.current()
        device = machine.current_device
        queue = machine.current_queue
        with machine.call(device):
            try:
                machine.strike(device, "malloc", "malloc")
            except CUDARuntimeError as error:
                raise OutOfMemoryError(size, self._total(device)) from error
            block = self._reuse(device, queue, size) or self._fresh(machine, device, size)
            block.life += 1
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
        if not self._has_room(machine, device, nbytes):
            self.free_all_blocks()
        if not self._has_room(machine, device, nbytes):
            gc.collect(1)  # CuPy looks through all generations, which costs tests seconds
            self.free_all_blocks()
        if not self._has_room(machine, device, nbytes):
            raise OutOfMemoryError(nbytes, self._total(device), self._limit.get(device, 0))
        block = Block(nbytes, device)
        machine.used[device] += nbytes
        machine.add_block(block)
        self._blocks.append(block)
        return block

    def _has_room(self, machine: Machine, device: int, nbytes: int) -> bool:
        limit = self._limit.get(device, 0)
        return machine.used[device] + nbytes <= machine.memory and not (
            limit and self._total(device) + nbytes > limit
        )

    def _poison(self, queue: Queue, block: Block) -> None:
        """Fill with NaN, in the order of the stream, unless somebody is already in there."""
        life = block.life

        def poison() -> None:
            if not any(old.work.done and old.life == life for old in block.accesses):
                block.bytes.fill(POISON)

        if block.is_idle:
            poison()
        elif queue.capture is None:
            machines.current().enqueue(Work(queue, "poison", poison))

    def _collect(self) -> None:
        while self._given_back:
            arena, block = self._given_back.popleft()
            self._free.setdefault(arena, []).append(block)

    def _total(self, device: int) -> int:
        return sum(len(block.bytes) for block in self._blocks if block.device == device)

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give free blocks back to the driver, which waits for their device first."""
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
            if not machine.is_over(work):
                raise OrderError(
                    f"{block} goes back to the driver while {work} still uses it: whoever gave it "
                    f"back had to make its stream wait for {work.queue} first"
                )
        machine.used[block.device or 0] -= len(block.bytes)
        machine.remove_block(block)
        block.is_gone = True
        self._blocks.remove(block)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """At most this much of the current device, in bytes or as a part of it; 0: no limit."""
        machine = machines.current()
        if (size is None) == (fraction is None):
            raise ValueError("set_limit takes size or fraction, one of them")
        limit = size if size is not None else int((fraction or 0) * machine.memory)
        self._limit[machine.current_device] = limit

    def get_limit(self) -> int:
        return self._limit.get(machines.current().current_device, 0)

    def total_bytes(self) -> int:
        return self._total(machines.current().current_device)

    def free_bytes(self) -> int:
        self._collect()
        device = machines.current().current_device
        free = (blocks for (place, _), blocks in self._free.items() if place == device)
        return sum(len(block.bytes) for blocks in free for block in blocks)

    def used_bytes(self) -> int:
        return self.total_bytes() - self.free_bytes()

    def n_free_blocks(self) -> int:
        self._collect()
        device = machines.current().current_device
        return sum(len(free) for (place, _), free in self._free.items() if place == device)


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`: an address in memory that it keeps. `raw`: the bytes there."""

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
        from fakes.streams import Device

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
        """`size` bytes from `src`, on any device, by `stream` or the current one."""
        machine, (target, written), (source, read) = (
            machines.current(),
            self._bytes(size),
            src._bytes(size),
        )
        queue = machine.queue_of(stream)
        machine.issue(queue, "copy", lambda: np.copyto(target, source), [read], [written])

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """`size` bytes from the host's address `mem`: see `from_host`."""
        from_host(*self._bytes(size), host_bytes(mem, size), stream)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """`size` bytes to the host's address `mem`: see `to_host`."""
        to_host(*self._bytes(size), host_bytes(mem, size), stream)
