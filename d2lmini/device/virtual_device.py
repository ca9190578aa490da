"""Virtual GPUs: GPUs simulated on the CPU.

Each has its own memory with a limit, its own worker to compute, and a link with a worker for each
direction. A copy takes as long as the link would need; the worker sleeps for that time, so a copy
costs no core. Programs for several GPUs run on any laptop, and overlap, run out of memory and fail
as they do on real GPUs.

>>> from d2lmini import cpu, gpu, nd, virtual_gpus
>>> with virtual_gpus(2):
...     a, b = nd.ones(3, ctx=gpu(0)), nd.ones(3, ctx=gpu(1))
...     c = (a * 2).as_in_context(gpu(1)) + b       # one copy, on the link of gpu(1)
...     print(c)
<BLANKLINE>
[3. 3. 3.]
<NDArray 3 @gpu(1)>

Virtual GPUs share the machine's cores: n devices with t threads leave the CPU max(1, cores - n * t)
workers meanwhile. BLAS computes every product, a user's own products too, on the calling thread
(`blas`), so the threads of a device are also its BLAS threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from d2lmini import engine, forks
from d2lmini.base import MXNetError
from d2lmini.context import Context, gpu
from d2lmini.device import blas, devices
from d2lmini.device.interface import Device
from d2lmini.engine.threaded import default_workers

#: GB/s that PCI Express 3.0 with 16 lanes moves in one direction, about.
LINK_GB_S = 12.0


class VirtualDevice(Device):
    """A virtual GPU: `threads` workers that compute, `memory` bytes, a link of `link_gb_s`."""

    kind = "virtual"

    def __init__(self, ctx: Context, threads: int, memory: int, link_gb_s: float):
        super().__init__(ctx, threads, memory)
        self.link_gb_s = link_gb_s

    def lanes(self) -> dict[tuple[Context, str], int]:
        return {(self.ctx, "compute"): self.threads, (self.ctx, "in"): 1, (self.ctx, "out"): 1}

    def copy(self, target: Any, source: Any) -> None:
        """Takes as long as the link would, or as the real copy if that is longer."""
        end = time.perf_counter() + source.nbytes / (self.link_gb_s * 1e9)
        self.xp.copyto(target, source)
        left_s = end - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes: the total is the limit."""
        pool = self.pool
        if pool is None:
            return self.memory or 0, self.memory or 0
        stats = pool.stats()
        total = stats.limit or 0
        return max(total - stats.live, 0), total

    def __repr__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return (
            f"<virtual device {self.ctx}: {threads}, {(self.memory or 0) / 1e9:.3g} GB, "
            f"link {self.link_gb_s:g} GB/s>"
        )


class virtual_gpus:
    """Make `n` virtual GPUs, gpu(0) to gpu(n - 1), in place of the existing GPUs.

    Called, they stay until the process ends or until `virtual_gpus(0)`, which restores the GPUs of
    this machine; as a scope, until its end, which restores the GPUs from before. `as` gives the
    list of contexts.

    threads    workers, and so BLAS threads, of each
    link_gb_s  GB/s that its link to the others moves in each direction
    memory     bytes of each; None: an equal share of the machine's memory, one for the CPU

    Waits for everything pending first, as the end of the scope does; after the scope, using an
    array that lies on one of the GPUs is an MXNetError. Copy what you need to cpu() before.
    """

    def __init__(
        self,
        n: int,
        threads: int = 1,
        link_gb_s: float = LINK_GB_S,
        memory: int | None = None,
    ):
        self._check(n, threads, link_gb_s, memory)
        if memory is None and n:
            with forks.importing:
                import psutil

            memory = psutil.virtual_memory().total // (n + 1)
        self.devices: list[Device] = [
            VirtualDevice(gpu(i), threads, int(memory or 0), link_gb_s) for i in range(n)
        ]
        engine.current.wait_idle("virtual_gpus")
        self._before = devices.state()
        cpu_workers = max(1, default_workers() - n * threads) if n else None
        _install(self.devices, cpu_workers)

    @staticmethod
    def _check(n: int, threads: int, link_gb_s: float, memory: int | None) -> None:
        wrong = None
        if not isinstance(n, int) or n < 0:
            wrong = f"n is a number of devices, got {n!r}"
        elif not isinstance(threads, int) or threads < 1:
            wrong = f"threads of a device are 1 or more, got {threads!r}"
        elif not link_gb_s > 0:
            wrong = f"link_gb_s is a rate in GB/s above 0, got {link_gb_s!r}"
        elif memory is not None and memory < 1:
            wrong = f"memory is in bytes, 1 or more, got {memory!r}"
        if wrong:
            raise MXNetError(f"virtual_gpus: {wrong}")

    def __enter__(self) -> list[Context]:
        return [device.ctx for device in self.devices]

    def __exit__(self, *exc: object) -> None:
        try:
            engine.current.wait_idle("virtual_gpus")
        finally:  # after Ctrl-C the pending work is computed all the same
            _install(*self._before)

    def __repr__(self) -> str:
        return f"<{len(self.devices)} virtual GPUs>"


def _install(new: Sequence[Device], cpu_workers: int | None) -> None:
    blas.stay_serial(any(device.kind == VirtualDevice.kind for device in new))
    devices.install(new, cpu_workers)


def from_environment() -> None:
    """Make D2LMINI_VIRTUAL_GPUS virtual GPUs; called when the library is imported."""
    text = os.environ["D2LMINI_VIRTUAL_GPUS"]
    if not text.isdigit():
        raise ValueError(f"D2LMINI_VIRTUAL_GPUS is a number of devices, got {text!r}")
    virtual_gpus(int(text))
