"""What a device is: memory with a limit, threads that compute, and a way to copy to and from it.

Three kinds share this interface: the CPU (`devices`), virtual GPUs (`virtual_device`), and
GPUs through CuPy (the add-on `cuda`). The engine knows only the lanes of a device, the storage only
its pool, arrays only how to compute and copy: a new kind is one new class. `device_of(ctx)` in
`devices` finds the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.engine.scheduler import LaneTime

if TYPE_CHECKING:
    from d2lmini.device.storage import Pool


def sharing_error(ctx: Context, by: str) -> MXNetError:
    """The error for lending a device's memory to another library, where that is impossible."""
    return MXNetError(
        f"{by}: the array is on {ctx}, whose memory is not shared with other libraries; "
        "copy it first: x.as_in_context(cpu())"
    )


class Device:
    """A place where arrays live and are computed.

    ctx      its context
    kind     "cpu", "virtual", "cuda"
    xp       the array module that computes there
    threads  number of tasks it runs at once, and of threads that share a large operation
    memory   bytes that arrays may take there; None: all there is
    pool     its memory (`storage.pool_of` makes the pool at its first use)
    formulas the compiled programs of composed ops (`graph/program.py`), once there are some
    sums     the lane on which a library sums over this device and others; None without one
    """

    kind = "?"
    xp: Any = np

    def __init__(self, ctx: Context, threads: int, memory: int | None = None):
        self.ctx = ctx
        self.threads = threads
        self.memory = memory
        self.pool: Pool | None = None
        self.sums: Any = None
        self.formulas: Any = None

    def lanes(self) -> dict[tuple[Context, str], int]:
        """The number of threads of each of its lanes; empty where it shares the CPU's."""
        return dict.fromkeys(self.runners(), 1)

    def runners(self) -> dict[tuple[Context, str], Any]:
        """The runners of its lanes, where the device works asynchronously to the host; see
        `engine.worker_pools`."""
        return {}

    def lane_times(self) -> dict[tuple[Context, str], LaneTime]:
        """The times of tasks on its lanes, where the device is simulated; see
        `engine.scheduler`."""
        return {}

    def launcher(self, program: Any, static: bool) -> Callable[..., Any] | None:
        """A function that makes calls of a compiled program, as replays of a recording if `static`;
        None where a call is a task like any other."""
        return None

    def copy(self, target: Any, source: Any) -> None:
        """Fill `target` with `source`, arrays of one shape and dtype; at least one of them lies
        here. Called by a task on a copy lane of this device; on return later tasks may read
        `target` (on a device with an order of its own: later tasks in that order)."""
        self.xp.copyto(target, source)

    def alloc_pinned(self, nbytes: int) -> np.ndarray | None:
        """Host memory, as bytes, that this device reads and writes by itself; None where that
        would be no faster."""
        return None

    def synchronize(self) -> None:
        """Block until everything pushed so far is done, here and wherever it needs. Errors of
        operations stay with their results."""
        engine.current.wait_idle("synchronize")

    def lend(self, array: Any, owner: Any, **options: Any) -> Any:
        """A DLPack capsule of an array that lies here; it keeps `owner` alive."""
        raise sharing_error(self.ctx, "dlpack")

    def borrow(self, source: Any, take: Callable[[Any], Any]) -> Any:
        """`take(array)` of a DLPack source that lies here; waits."""
        raise sharing_error(self.ctx, "from_dlpack")

    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's (kind, number) of this device."""
        raise sharing_error(self.ctx, "dlpack")

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.kind} device {self.ctx}>"
