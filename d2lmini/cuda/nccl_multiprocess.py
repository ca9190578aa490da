"""Sums over the GPUs of several processes as one call each, by NCCL.

Where all gradients lie on CUDA GPUs and NCCL is installed, `dist_sync` sums by NCCL: gradients go
from GPU to GPU over the available link, and never through the host. All GPUs of all processes form
one clique. To create the clique, rank 0 gets a name from NCCL, and MPI broadcasts the name. MPI
also checks that all processes are at the same sum (the job's `agree`) before any process launches
the sum on its GPUs: a launched sum can report no mismatch and cannot be ended.

A sum is a task of the lane on which NCCL sums within a process (`cuda.nccl`), so all NCCL calls of
a process come from one thread; and the sum writes the Var that orders all communication. NCCL
chooses the order of addition: two runs agree to the bit if they use equally many GPUs, connected
alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.cuda import module
from d2lmini.cuda.nccl import NcclWorker
from d2lmini.device.devices import device_of
from d2lmini.engine import worker_pools
from d2lmini.kvstore.allreduce import AllReduce, Sum
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import note_writes
from d2lmini.ops.spec import Cost


class AllReduceAcross(AllReduce):
    """Sums over the GPUs of all processes; `sums` describes those of this process."""

    __slots__ = ("job", "plan")

    def __init__(self, lane: NcclWorker, sums: Sequence[Sum], job: Any, plan: Any):
        super().__init__(lane, sums)
        self.reads = (*self.reads, job.order)
        self.writes = (*self.writes, job.order)
        self.job, self.plan = job, plan

    def footprint(self) -> Any:
        """As `AllReduce`, for the part of the ring that this process's GPUs form, if all processes
        have equally many GPUs."""
        here = len(self.contexts)
        n, specs = here * self.job.size, [operands[0][0][2] for operands in self.sums]
        flops, nbytes = (sum(s.size for s in specs), sum(s.nbytes for s in specs))
        return lambda: Cost(flops * here * (n - 1) / n, 2.0 * nbytes * here * (n - 1) / n)

    def run(self) -> None:
        self.job.agree(self.plan)
        key = tuple(self.contexts)
        clique = self.lanes.cliques_across.get(key)
        if clique is None:
            name, before, n = self.job.meet(module.nccl().get_unique_id, len(self.contexts))
            clique = self.lanes.join(self.contexts, name, before, n)
            self.lanes.cliques_across[key] = clique
        pairs = [[(array_of(x), array_of(y)) for x, y in operands] for operands in self.sums]
        self.lanes.sum_up(self.contexts, pairs, clique)


def lane_of(values: Sequence[NDArray], outs: Sequence[NDArray]) -> NcclWorker | None:
    """The lane that can sum these arrays, one of each GPU, into the targets; None if NCCL
    cannot."""
    contexts = [x.context for x in values]
    dtypes = {x._spec.dtype for x in (*values, *outs)}
    if contexts != [y.context for y in outs] or len(dtypes) > 1:
        return None
    if any(ctx.is_cpu for ctx in contexts) or module.nccl() is None:
        return None
    lane = _lane(contexts[0])
    return lane if lane is not None and lane.covers(contexts, np.dtype(dtypes.pop())) else None


def _lane(ctx: Context) -> NcclWorker | None:
    """The sum lane of a device; made here if the device is the only GPU of its process."""
    device = device_of(ctx)
    if device.kind == "cuda" and device.sums is None:
        lane = device.sums = NcclWorker([device])
        worker_pools.add({(ctx, "sum"): 1}, {(ctx, "sum"): lane})
    return device.sums


def all_reduce(lane: NcclWorker, sums: Sequence[Sum], job: Any, plan: Any) -> None:
    """Push sums over the same devices as one task."""
    task = AllReduceAcross(lane, sums, job, plan)
    note_writes([y for one_sum in sums for y in one_sum.targets])
    engine.current.push(task)
