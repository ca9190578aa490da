"""A sum over devices as one task, where a library has it: NCCL, over CUDA's.

`KVStore.pushpull` without an updater is such a sum: each device gives an array and gets the sum of
all. Where no library has it the arrays travel to one device, which adds them up, and back.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini import engine
from d2lmini.device.cuda.nccl import Side, SumLane, sums_of
from d2lmini.device.devices import device_of
from d2lmini.device.storage import check_there
from d2lmini.engine.core import Task
from d2lmini.ndarray import NDArray
from d2lmini.ndarray.apply import array_of, note_writes


class AllReduce(Task):
    """Every target becomes the sum of all sources; the i-th of both lie on one device."""

    __slots__ = ("lanes", "operands", "sides")

    lane = "sum"

    def __init__(self, lanes: SumLane, sources: Sequence[NDArray], targets: Sequence[NDArray]):
        reads = tuple(x._chunk for x in sources)
        super().__init__("AllReduce", reads, tuple(y._chunk for y in targets), lanes.ctx)
        self.lanes = lanes
        self.sides = [Side(x.context, x._chunk, y._chunk) for x, y in zip(sources, targets)]
        self.operands = [
            tuple((a._chunk, a._offset, a._spec) for a in pair) for pair in zip(sources, targets)
        ]

    def run(self) -> None:
        contexts = [side.ctx for side in self.sides]
        self.lanes.sum_up(contexts, [(array_of(x), array_of(y)) for x, y in self.operands])


def all_reduce(sources: Sequence[NDArray], targets: Sequence[NDArray]) -> bool:
    """Push the sum, if a library can take it; False if not, and nothing is done."""
    contexts = [x.context for x in sources]
    if any(ctx.is_cpu for ctx in contexts) or contexts != [y.context for y in targets]:
        return False
    lanes = sums_of(device_of(contexts[0]))
    dtypes = {a._spec.dtype for a in (*sources, *targets)}
    if lanes is None or len(dtypes) > 1 or not lanes.takes(contexts, *dtypes):
        return False
    for a in (*sources, *targets):
        check_there(a.context, (a._chunk,))
    task = AllReduce(lanes, sources, targets)
    task.site = note_writes(list(targets))
    engine.current.push(task)
    return True
