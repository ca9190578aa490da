"""The module `cupy.cuda.nccl` of the fake: sums over GPUs, which must meet.

A collective runs when every rank of its clique has it next on its stream, and on all of them at
once, as NCCL's kernels do, which wait for each other on the GPUs. So streams that meet two cliques
in different order never go on, and the host's next wait explains why. What NCCL leaves undefined is
an error here: one thread that calls several ranks outside a group, ranks that call different
things, a communicator used by two threads.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from labs.streams import merge

from fakes.streams import machine as machines
from fakes.streams.errors import CUDARuntimeError
from fakes.streams.machine import Machine
from fakes.streams.order import Queue, Region, Work

#: NCCL's numbers of its types.
_TYPES = {0: "i1", 1: "u1", 2: "i4", 3: "u4", 4: "i8", 5: "u8", 6: "f2", 7: "f4", 8: "f8"}


class NcclError(RuntimeError):
    """`status` is NCCL's number: 4 an invalid argument, 5 an invalid use."""

    def __init__(self, status: int, why: str):
        names = {4: "NCCL_ERROR_INVALID_ARGUMENT", 5: "NCCL_ERROR_INVALID_USAGE"}
        super().__init__(f"{names[status]}: {why}")
        self.status = status


class _Clique:
    """The ranks that were made together; `calls[r]`: how many collectives rank r has called."""

    def __init__(self, devices: Sequence[int]):
        self.devices = list(devices)
        self.calls = [0] * len(self.devices)
        self.meetings: dict[int, _Meeting] = {}


class _Meeting:
    """One collective: what was called, and the works of the ranks that have called it so far."""

    def __init__(self, what: tuple):
        self.what = what
        self.works: list[Work] = []
        self.sides: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def run(self) -> None:
        values = sum([self.sides[rank][0] for rank in range(len(self.sides))])
        for _, target in self.sides.values():
            target[...] = values


class NcclCommunicator:
    """`cupy.cuda.nccl.NcclCommunicator`: a rank of a clique."""

    def _begin(self, clique: _Clique, rank: int) -> NcclCommunicator:
        self._clique = clique
        self._rank = rank
        self._thread: threading.Thread | None = None
        return self

    @staticmethod
    def initAll(devices: int | Sequence[int]) -> list[NcclCommunicator]:
        """One for each of the devices, all within this process."""
        numbers = list(range(devices)) if isinstance(devices, int) else list(devices)
        machine = machines.current()
        if len(set(numbers)) < len(numbers):
            raise NcclError(4, f"a device may have one rank, got {numbers}")
        if not all(0 <= i < machine.devices for i in numbers):
            raise CUDARuntimeError(101)
        clique = _Clique(numbers)
        make = NcclCommunicator.__new__
        return [make(NcclCommunicator)._begin(clique, rank) for rank in range(len(numbers))]

    def device_id(self) -> int:
        return self._clique.devices[self._rank]

    def size(self) -> int:
        return len(self._clique.devices)

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        """`recvbuf` of each rank gets the sum of all `sendbuf`."""
        name = "allReduce"
        here = threading.current_thread()
        self._thread = self._thread or here
        if self._thread is not here:
            raise NcclError(
                5,
                f"{name}: rank {self._rank} was used by thread {self._thread.name!r} and is now by "
                f"{here.name!r}; a communicator belongs to one thread",
            )
        if datatype not in _TYPES:
            raise NcclError(4, f"{name}: no datatype {datatype}")
        machine = machines.current()
        queue = machine.queue_at(stream, self.device_id())
        if queue.device != self.device_id():
            raise NcclError(
                4,
                f"{name}: rank {self._rank} is on device {self.device_id()}, its stream is {queue}",
            )

        def issue() -> None:
            self._issue(machine, queue, sendbuf, recvbuf, count, datatype)

        group = _groups.calls
        if group is not None:
            group.append((self, issue))
        elif self.size() > 1 and _groups.seen.setdefault(id(self._clique), self) is not self:
            raise NcclError(
                5,
                f"{name}: this thread calls several ranks one after another, and NCCL may wait in "
                "the first for the second; put them between groupStart() and groupEnd()",
            )
        else:
            issue()

    def _issue(
        self, machine: Machine, queue: Queue, source: int, target: int, count: int, datatype: int
    ) -> None:
        name = "allReduce"
        if queue.capture is not None:
            raise NotImplementedError("the fake captures no collectives")
        clique, dtype = self._clique, np.dtype(_TYPES[datatype])
        (read, values), (written, place) = (
            self._memory(machine, name, address, count, dtype) for address in (source, target)
        )
        with machine.call(queue.device):
            machine.strike(queue.device, name, "issue")
            number = clique.calls[self._rank]
            what = (name, count, datatype)
            meeting = clique.meetings.setdefault(number, _Meeting(what))
            if meeting.what != what:
                raise NcclError(
                    5,
                    f"collective {number} of rank {self._rank} is {what}, other ranks called "
                    f"{meeting.what}: all ranks must call the same, in the same order",
                )
            work = Work(queue, name)
            for other in meeting.works:  # it comes after what they come after
                merge(work.clock, other.clock)
            machine.access(work, [read], [written])
            clique.calls[self._rank] += 1
            meeting.sides[self._rank] = values, place
            meeting.works.append(work)
            work.party, work.size = meeting.works, self.size()
            machine.enqueue(work)
            for other in meeting.works:  # a rank is done when it has what all have sent
                merge(other.clock, work.clock)
            if len(meeting.works) == self.size():
                meeting.works[0].run = meeting.run
                del clique.meetings[number]

    def _memory(
        self, machine: Machine, name: str, address: int, count: int, dtype: np.dtype
    ) -> tuple[Region, np.ndarray]:
        region = machine.region_at(address, count * dtype.itemsize)
        if region is None or region.block.device != self.device_id():
            raise NcclError(
                4,
                f"{name}: {count} {dtype} at {address:#x} are not in memory of device "
                f"{self.device_id()}, where rank {self._rank} is",
            )
        return region, region.block.bytes[region.start : region.stop].view(dtype)


class _Groups(threading.local):
    """Of this thread: the calls of the open group, and which rank of a clique it called alone."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[tuple[NcclCommunicator, Callable[[], None]]] | None = None
        self.seen: dict[int, NcclCommunicator] = {}


_groups = _Groups()


def groupStart() -> None:
    """What this thread calls from now on begins together, at `groupEnd`."""
    _groups.depth += 1
    _groups.calls = _groups.calls or []


def groupEnd() -> None:
    if not _groups.depth:
        raise NcclError(5, "groupEnd without groupStart")
    _groups.depth -= 1
    if _groups.depth == 0:
        calls, _groups.calls = _groups.calls or [], None
        for _, issue in calls:
            issue()


def namespace(available: bool) -> Any:
    """The names of `cupy.cuda.nccl` that the fake has; without the library CuPy has one of them."""
    if not available:
        return types.SimpleNamespace(available=False)
    names = "INT8 UINT8 INT32 UINT32 INT64 UINT64 FLOAT16 FLOAT32 FLOAT64"
    kinds = {f"NCCL_{name}": number for number, name in enumerate(names.split())}
    return types.SimpleNamespace(
        NcclCommunicator=NcclCommunicator,
        NcclError=NcclError,
        available=True,
        get_version=lambda: 22304,
        groupStart=groupStart,
        groupEnd=groupEnd,
        NCCL_SUM=0,
        **kinds,
    )
