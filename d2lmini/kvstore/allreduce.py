"""Sums over devices as one task, where a library computes them: NCCL, on CUDA devices.

`KVStore.pushpull` without an updater is an allreduce: each device gives an array and gets the sum
of all. Without a library the arrays travel to one device, which adds them up, and back.

A sum costs some microseconds in addition to its traffic, and a net has many small parameters: so
the sums of several keys share one call. Only their sizes and order decide which keys share a call,
and each is summed as it would be alone: two runs agree to the bit.

>>> together([400, 40, 1 << 20, 400, 40, 8 << 20, 40])
[[0, 1, 3, 4, 6], [2], [5]]
>>> together([SMALL] * 5, most=2 * SMALL)
[[0, 1], [2, 3], [4]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.device.devices import device_of
from d2lmini.device.storage import check_there
from d2lmini.engine.core import Task, Var
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import note_writes
from d2lmini.ops.spec import Cost

#: Arrays of up to SMALL bytes share a call, of up to BUCKET bytes in all: with more, the first
#: arrays would wait long for the last.
SMALL = 1 << 16
BUCKET = 1 << 20


class Sum(NamedTuple):
    """Every target becomes the sum of all sources; source i and target i lie on one device."""

    sources: Sequence[NDArray]
    targets: Sequence[NDArray]


class Side(NamedTuple):
    """One device's part in the sums: the Vars that are read and written there."""

    ctx: Context
    reads: Sequence[Var]
    writes: Sequence[Var]


class AllReduce(Task):
    """Several sums over the same devices, as one task."""

    __slots__ = ("contexts", "lanes", "sides", "sums")

    defers = True

    lane = "sum"

    def __init__(self, lanes: Any, sums: Sequence[Sum]):
        reads = tuple(x._chunk for one_sum in sums for x in one_sum.sources)
        writes = tuple(y._chunk for one_sum in sums for y in one_sum.targets)
        super().__init__("AllReduce", reads, writes, lanes.ctx)
        self.lanes = lanes
        self.contexts = [x.context for x in sums[0].sources]
        self.sums = [
            [tuple((a._chunk, a._offset, a._spec) for a in pair) for pair in zip(*one_sum)]
            for one_sum in sums
        ]
        self.sides = [
            Side(ctx, [s.sources[i]._chunk for s in sums], [s.targets[i]._chunk for s in sums])
            for i, ctx in enumerate(self.contexts)
        ]

    def keeps(self, var: Any) -> bool:
        return False  # each target is a sum: the device's own array is not a result

    def footprint(self) -> Any:
        """With n devices of N bytes each, all links together carry 2 (n - 1) N: on a ring every
        device passes on n - 1 parts of N / n bytes that are summed on the way, then n - 1 complete
        ones (Patarasuk and Yuan, 2009)."""
        more = len(self.contexts) - 1
        specs = [row[0][0][2] for row in self.sums]
        flops, nbytes = more * sum(s.size for s in specs), 2 * more * sum(s.nbytes for s in specs)
        return lambda: Cost(float(flops), float(nbytes))

    def run(self) -> None:
        self.lanes.sum_up(
            self.contexts, [[(array_of(x), array_of(y)) for x, y in row] for row in self.sums]
        )


def find_summer(contexts: Sequence, dtypes: Sequence) -> Any:
    """The library that sums arrays of these dtypes over these devices; None: the KVStore does."""
    if any(ctx.is_cpu for ctx in contexts) or len(set(dtypes)) > 1:
        return None
    lanes = device_of(contexts[0]).sums
    return lanes if lanes is not None and lanes.can_sum(contexts, dtypes[0]) else None


def takes(sources: Sequence[NDArray], targets: Sequence[NDArray]) -> bool:
    """True if a library computes this sum."""
    contexts = [x.context for x in sources]
    dtypes = [a._spec.dtype for a in (*sources, *targets)]
    return contexts == [y.context for y in targets] and find_summer(contexts, dtypes) is not None


def all_reduce(sums: Sequence[Sum]) -> None:
    """Push sums that are all over the same devices and that `takes` accepts."""
    lanes = device_of(sums[0].sources[0].context).sums
    assert lanes is not None
    check_there(a._chunk for one_sum in sums for arrays in one_sum for a in arrays)
    task = AllReduce(lanes, sums)
    note_writes([y for one_sum in sums for y in one_sum.targets])
    engine.current.push(task)


def buckets(sums: Sequence[Sum]) -> list[list[int]]:
    """The indices of the sums that go in each call. Each sum goes alone if one writes what another
    writes or reads: then the second must come after the first."""
    writer: dict[Any, int] = {}
    for i, one_sum in enumerate(sums):
        for y in one_sum.targets:
            if writer.setdefault(y._chunk, i) != i:
                return [[i] for i in range(len(sums))]
    if any(writer.get(x._chunk, i) != i for i, one_sum in enumerate(sums) for x in one_sum.sources):
        return [[i] for i in range(len(sums))]
    return together([one_sum.sources[0]._spec.nbytes for one_sum in sums])


def together(nbytes: Sequence[int], most: int = BUCKET) -> list[list[int]]:
    """The indices of the arrays that each call sums, in the order of the first ones: small arrays
    up to `most` bytes together, every other array alone."""
    found: list[list[int]] = []
    small: list[int] = []
    for i, size in enumerate(nbytes):
        if size > SMALL:
            found.append([i])
            continue
        if small and sum(nbytes[k] for k in small) + size > most:
            small = []
        if not small:
            found.append(small)
        small.append(i)
    return found
