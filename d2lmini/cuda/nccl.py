"""Sums over GPUs by NCCL: every array gets the sum of all, one collective call instead of copies.

NCCL has rules: if one thread drives several GPUs, its calls for all of them form one group; a
communicator is used by one thread; and all GPUs must run collectives in the same order. So all sums
of the process are tasks of one lane, "sum", of the first GPU: one thread, with a stream on every
GPU. The order of this thread's calls is the order on every GPU.

A sum reads and writes memory of several devices, and leaves a mark on a stream of each device: it
is ordered like any other task (`streams`), each array on its own device.

NCCL is available if CuPy finds it (`pip install nvidia-nccl-cu12`). Without NCCL, or where two
devices share a GPU, a KVStore sums by copies, as on any devices.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.context import Context
from d2lmini.cuda import module
from d2lmini.cuda.stream_worker import StreamWorker

_DTYPES = frozenset("int8 uint8 int32 int64 float16 float32 float64".split())


class NcclWorker:
    """The lane that runs the sums; see this module."""

    def __init__(self, devices: Sequence[Any]):
        self.ctx = devices[0].ctx  # the device that the lane belongs to
        self._library = module.nccl()
        self._lanes = {device.ctx: StreamWorker(device, "sum") for device in devices}
        self._cliques: dict[tuple[int, ...], list[Any]] = {}
        self._busy = threading.Lock()

    def can_sum(self, contexts: Sequence[Context], dtype: np.dtype) -> bool:
        """True if NCCL can sum arrays of this dtype over these devices."""
        lanes = [self._lanes.get(ctx) for ctx in contexts]
        ordinals = {lane.device.ordinal for lane in lanes if lane is not None}
        is_apart = len(ordinals) == len(lanes) > 1
        return self._library is not None and is_apart and dtype.name in _DTYPES

    # -- called by the engine ----------------------------------------------------------------------

    def run(self, task: Any) -> None:
        """Run `task`, which has `sides` and calls `sum_up`, behind all its arrays' dependencies."""
        lanes = [self._lanes[side.ctx] for side in task.sides]
        for lane in lanes:
            lane.device.check()
        with self._busy, lanes[0].enter_scope():
            try:
                for lane, side in zip(lanes, task.sides):
                    lane.stream.begin(side.reads, side.writes)
                # Before any order is overwritten.
                unverified = [lane.stream.unverified(task.reads) for lane in lanes]
                try:
                    task.run()
                finally:
                    for lane, side, marks in zip(lanes, task.sides, unverified):
                        lane.stream.end(side.reads, side.writes, marks)
            except Exception as problem:
                # The device that failed explains the error; if none has, NCCL's own message does.
                for lane in lanes:
                    lane.ask(lane.stream.last.query)
                raise lanes[0].device.task_error(problem) from None

    def finish(self, deadline: float | None = None) -> bool:
        """Block until all sums are done; False at the deadline."""
        return all([lane.finish(deadline) for lane in self._lanes.values()])

    # -- called by tasks ---------------------------------------------------------------------------

    def sum_up(
        self, contexts: Sequence[Context], sums: Sequence[Sequence[tuple[Any, Any]]]
    ) -> None:
        """Put the sums on the streams as one NCCL group: in each sum every device's second array
        becomes the sum of all first arrays."""
        lanes = [self._lanes[ctx] for ctx in contexts]
        nccl = self._library
        communicators = self._clique([lane.device.ordinal for lane in lanes])
        nccl.groupStart()
        try:
            for arrays in sums:
                dtype = getattr(nccl, f"NCCL_{arrays[0][0].dtype.name.upper()}")
                for lane, communicator, (source, target) in zip(lanes, communicators, arrays):
                    communicator.allReduce(
                        source.data.ptr, target.data.ptr, source.size, dtype, nccl.NCCL_SUM,
                        lane.stream.handle.ptr,
                    )  # fmt: skip
        finally:
            nccl.groupEnd()

    def _clique(self, ordinals: list[int]) -> list[Any]:
        """The communicators over these GPUs, made once by the thread that uses them."""
        key = (threading.get_ident(), *ordinals)
        if key not in self._cliques:
            self._cliques[key] = self._library.NcclCommunicator.initAll(ordinals)
        return self._cliques[key]
