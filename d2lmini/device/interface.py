"""What a device is: memory with a limit, threads that compute, and a way to copy to and from it.

Three kinds share this interface: the CPU (`numpy_device`), virtual GPUs (`virtual_device`), and
GPUs through CuPy (the add-on `cuda`). The engine knows only the lanes of a device, the storage only
its pool, arrays only how to compute and copy; who adds a kind writes one class. `device_of(ctx)` in
`devices` finds the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context

if TYPE_CHECKING:
    from d2lmini.device.storage import Pool


def not_shared(ctx: Context, by: str) -> MXNetError:
    """The error where memory of a device would have to be lent to another library."""
    return MXNetError(
        f"{by}: the array is on {ctx}, whose memory is not shared with other libraries; "
        "copy it first: x.as_in_context(cpu())"
    )


class Device:
    """One place where arrays live and are computed.

    ctx      its name
    kind     "cpu", "virtual", "cuda"
    xp       the array module that computes there
    threads  how many tasks it runs at once; pieces of one large operation are shared by as many
    memory   the bytes that arrays may take there; None: as much as there is
    pool     its memory (`storage.pool_of` makes it when first asked)
    sums     the lane on which a library sums over this device and others; None without such
    """

    kind = "?"
    xp: Any = np

    def __init__(self, ctx: Context, threads: int, memory: int | None = None):
        self.ctx = ctx
        self.threads = threads
        self.memory = memory
        self.pool: Pool | None = None
        self.sums: Any = None

    def lanes(self) -> dict[tuple[Context, str], int]:
        """The threads of each of its lanes; none of its own where it shares the CPU's."""
        return {}

    def runners(self) -> dict[tuple[Context, str], Any]:
        """Who runs the tasks of those lanes, where the device works behind the host; see
        `engine.lanes`."""
        return {}

    def replay_calls(self, program: Any) -> Callable[..., Any] | None:
        """What pushes calls of a compiled program as replays of a recording; None where a device
        records nothing."""
        return None

    def copy(self, target: Any, source: Any) -> None:
        """Fill `target` with `source`, arrays of one shape and dtype; at least one of them lies
        here. Called by a task on a copy lane of this device; on return `target` may be read, by
        those that come after on a device that keeps an order of its own."""
        raise NotImplementedError

    def pinned(self, nbytes: int) -> np.ndarray | None:
        """Memory of the host, as bytes, that this device reads and writes by itself; None where
        that would be no faster."""
        return None

    def synchronize(self) -> None:
        """Block until everything pushed so far is done, here and wherever it needs. Errors of
        operations are kept for those who read their results."""
        engine.current.wait_idle("synchronize")

    def lend(self, array: Any, owner: Any, **options: Any) -> Any:
        """A DLPack capsule of an array that lies here, which keeps `owner` alive."""
        raise not_shared(self.ctx, "dlpack")

    def borrow(self, source: Any, take: Callable[[Any], Any]) -> Any:
        """`take(array)` of what another library offers by DLPack, which lies here; waits."""
        raise not_shared(self.ctx, "from_dlpack")

    def dlpack_device(self) -> tuple[int, int]:
        """What DLPack calls this device."""
        raise not_shared(self.ctx, "dlpack")

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.kind} device {self.ctx}>"
