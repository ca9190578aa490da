"""Host memory: pinned memory and other memory, and the copies between it and the devices.

As for CUDA, copies to and from *pinned* memory return before they are done: until the copy has run
its target holds NaN, and a change of its source or its target meanwhile is an OrderError. Other
host memory is copied before the call returns.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

import numpy as np
from labs.streams import POISON, OrderError

from fakes.streams import machine as machines
from fakes.streams.errors import CUDARuntimeError
from fakes.streams.machine import Machine
from fakes.streams.order import Block, Queue, Region


def from_host(target: np.ndarray, written: Region, source: np.ndarray, stream: Any) -> None:
    """Copy `source`, an array of the host, to a device. Pinned memory must not change until the
    copy has run; other memory has been copied when this returns."""
    machine, queue = _at_host(stream)
    pinned, source = _pinned(machine, source)
    is_snapshot = pinned is None or (pinned.block.is_idle and machine.checks)
    was = source.copy() if is_snapshot else None

    def run() -> None:
        if pinned and was is not None and source.tobytes() != was.tobytes():
            raise OrderError(
                f"the host changed {pinned.block} while a copy to {written.block} was still to "
                "read it: it has to wait for an event recorded after the copy first"
            )
        np.copyto(target, source if was is None else was)

    machine.issue(queue, "copy from host", run, [pinned] if pinned else [], [written])


def to_host(source: np.ndarray, read: Region, target: np.ndarray, stream: Any) -> None:
    """Copy to `target`, an array of the host. Pinned memory is full of NaN until the copy has run,
    and this returns before that; with other memory it waits."""
    machine, queue = _at_host(stream)
    pinned, target = _pinned(machine, target)
    poison = None
    if pinned is not None and pinned.block.is_idle:
        poison = np.full(target.nbytes, POISON, np.uint8).view(target.dtype).reshape(target.shape)
        np.copyto(target, poison)

    def run() -> None:
        if (
            pinned
            and machine.checks
            and poison is not None
            and target.tobytes() != poison.tobytes()
        ):
            raise OrderError(
                f"the host wrote into {pinned.block} while a copy from {read.block} was still to "
                "fill it: it has to wait for an event recorded after the copy first"
            )
        np.copyto(target, source)

    work = machine.issue(queue, "copy to host", run, [read], [pinned] if pinned else [])
    if pinned is None and work is not None:
        machine.synchronize(work, "a copy to memory that is not pinned")


def _at_host(stream: Any) -> tuple[Machine, Queue]:
    """The machine, and the queue that a copy is issued on."""
    machine = machines.current()
    queue = machine.queue_of(stream)
    machine.refuse_capture(queue)
    return machine, queue


def _pinned(machine: Machine, host: np.ndarray) -> tuple[Region | None, np.ndarray]:
    """The region of pinned memory in which `host` lies, and the same array without a reference to
    the pool's memory; None and `host` if it is not pinned."""
    region = machine.region_at(*bounds(host))
    if region is None:
        return None, host
    block = region.block
    if block.device is not None:
        raise CUDARuntimeError(1)  # memory of a device
    offset = host.ctypes.data - block.address
    return region, np.ndarray(host.shape, host.dtype, block.bytes, offset, host.strides)  # type: ignore


def bounds(array: np.ndarray) -> tuple[int, int]:
    """The address of an array's first byte, and how many bytes it spans."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, (high - low if array.size else 0)


# -- pinned memory ---------------------------------------------------------------------------------


class PinnedMemory:
    """Memory of the pool of pinned memory."""

    def __init__(self, block: Block, pool: PinnedMemoryPool):
        self.block = block
        self.ptr = block.address
        self._give_back = pool.given_back.append

    def __del__(self) -> None:
        self._give_back(self.block)


class PinnedMemoryPool:
    """`cupy.cuda.PinnedMemoryPool`: sizes are powers of two.

    As in CuPy, a buffer is given out again as soon as nothing refers to it, even while a copy still
    reads it."""

    def __init__(self) -> None:
        self._free: dict[int, list[Block]] = {}
        self.given_back: deque[Block] = deque()

    def malloc(self, size: int) -> Any:
        machine = machines.current()
        nbytes = 1 << max(size - 1, 511).bit_length()
        with machine.call():
            self._collect(machine)
            free = self._free.get(nbytes)
            block = free.pop() if free else Block(nbytes, None)
            if not block.life:
                machine.add_block(block)
            block.begin_life()
            return _pinned_pointer(PinnedMemory(block, self), size)

    def _collect(self, machine: Machine) -> None:
        while self.given_back:
            block = self.given_back.popleft()
            for work in (access.work for access in block.accesses):
                if not machine.is_over(work):
                    machine.report(
                        OrderError(
                            f"{block} was given back while {work} may still use it\n"
                            f"  {work.name!r}: {work.where}\n"
                            "Missing: keep the buffer until the host has waited for an event that "
                            "is recorded after this work"
                        )
                    )
            block.accesses.clear()
            self._free.setdefault(len(block.bytes), []).append(block)


def _pinned_pointer(mem: PinnedMemory, size: int) -> Any:
    """A `PinnedMemoryPointer`: a buffer, so a ctypes array, with `mem`, `ptr` and `size()`."""
    nbytes = len(mem.block.bytes)
    if nbytes not in _pointer_types:
        fields = {"_type_": ctypes.c_uint8, "_length_": nbytes, "size": lambda self: self.nbytes}
        _pointer_types[nbytes] = type("PinnedMemoryPointer", (ctypes.Array,), fields)
    pointer: Any = _pointer_types[nbytes].from_address(mem.ptr)
    pointer.mem, pointer.ptr, pointer.nbytes = mem, mem.ptr, size
    return pointer


_pointer_types: dict[int, Any] = {}


def alloc_pinned_memory(size: int) -> Any:
    """`size` bytes of pinned memory, as a buffer."""
    return machines.current().pinned_pool.malloc(size)
