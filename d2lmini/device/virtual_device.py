"""Virtual GPUs: GPUs simulated on the CPU.

Each has its own memory with a limit, its own worker to compute, and a link with a worker for each
direction. A copy takes as long as the link would need; the worker sleeps for that time, so a copy
costs no core. Programs for several GPUs run on any laptop, and overlap, run out of memory and fail
as they do on real GPUs.

With `gflops=` a device computes in slow motion, too: an operation takes as long as a device of that
speed would need for its FLOPs, and the worker sleeps for the rest. If the speed is low enough that
the cores are idle most of the time, k devices scale on two cores as k GPUs do: overlap, imbalance
and slow links have the effects that they have there. (`engine.scheduler` does the waiting; within
`engine.stepped()` the same times pass on the virtual clock.)

>>> from d2lmini import cpu, gpu, nd, virtual_gpus
>>> with virtual_gpus(2):
...     a, b = nd.ones(3, ctx=gpu(0)), nd.ones(3, ctx=gpu(1))
...     c = (a * 2).as_in_context(gpu(1)) + b       # one copy, on the link of gpu(1)
...     print(c)
<BLANKLINE>
[3. 3. 3.]
<NDArray 3 @gpu(1)>

>>> from d2lmini import engine, profile
>>> with virtual_gpus(2, gflops=[1, 2], link_gb_s=0.5), engine.stepped(), profile() as trace:
...     for ctx in (gpu(0), gpu(1)):
...         x = nd.ones((100, 100), ctx=ctx)
...         y = nd.dot(x, x)                        # 2 * 100**3 FLOPs
...     z = y.as_in_context(gpu(0))                 # 40 kB
>>> [(str(o), o.place, o.run_ns // 1000) for o in trace.operations[1::2]]
[('2 dot', 'gpu(0)', 2000), ('4 dot', 'gpu(1)', 1000)]
>>> trace.operations[-1].run_ns // 1000
80

Virtual GPUs share the machine's cores: n devices with t threads leave the CPU max(1, cores - n * t)
workers meanwhile. BLAS computes every product, a user's own products too, on the calling thread
(`blas`), so the threads of a device are also its BLAS threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.base.scopes import Standing
from d2lmini.context import Context, cpu, gpu
from d2lmini.device import blas, devices
from d2lmini.device.interface import Device
from d2lmini.device.storage import Chunk
from d2lmini.engine.core import Task
from d2lmini.engine.scheduler import LaneTime
from d2lmini.engine.threaded import default_workers

#: GB/s that PCI Express 3.0 with 16 lanes moves in one direction, about.
LINK_GB_S = 12.0

#: A rate of all devices, or one for each; None: no bound.
Rate = float | Sequence[float | None] | None


class VirtualDevice(Device):
    """A virtual GPU: `threads` workers that compute, `memory` bytes, a link of `link_gb_s`.

    gflops, memory_gb_s  what each worker computes in a second at most, and reads and writes; inf:
                         as much as the core of this machine does
    """

    kind = "virtual"

    def __init__(
        self, ctx: Context, threads: int, memory: int, link_gb_s: float,
        gflops: float = inf, memory_gb_s: float = inf,
    ):  # fmt: skip
        super().__init__(ctx, threads, memory)
        self.link_gb_s = link_gb_s
        self.gflops = gflops
        self.memory_gb_s = memory_gb_s

    def lanes(self) -> dict[tuple[Context, str], int]:
        return {(self.ctx, "compute"): self.threads, (self.ctx, "in"): 1, (self.ctx, "out"): 1}

    def lane_times(self) -> dict[tuple[Context, str], LaneTime]:
        times: dict[tuple[Context, str], LaneTime] = {
            (self.ctx, "in"): self._copy_us, (self.ctx, "out"): self._copy_us
        }  # fmt: skip
        if self.gflops < inf or self.memory_gb_s < inf:
            times[self.ctx, "compute"] = self._compute_us
        return times

    def _compute_us(self, task: Task) -> float | None:
        """The larger of the times for the FLOPs and for the bytes of `task`, in microseconds; None
        for a task without a cost, such as a function that the program pushed."""
        footprint = task.footprint()
        if footprint is None:
            return None
        cost = footprint()
        return max(cost.flops / self.gflops, cost.nbytes / self.memory_gb_s) / 1e3

    def _copy_us(self, task: Task) -> float | None:
        """The time of a copy over the slowest link on its way, in microseconds."""
        footprint = task.footprint()
        if footprint is None:
            return None
        ends = {var.pool.ctx for var in task.reads + task.writes if isinstance(var, Chunk)}
        rates = [getattr(devices.find_known(ctx), "link_gb_s", inf) for ctx in ends]
        return footprint().nbytes / min(self.link_gb_s, *rates) / 1e3

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes: the total is the limit."""
        total = self.memory or 0
        return max(total - (self.pool.stats().live if self.pool else 0), 0), total

    def __repr__(self) -> str:
        gigabytes = (self.memory or 0) / 1e9
        return f"<virtual device {self.ctx}: {gigabytes:.3g} GB, link {self.link_gb_s:g} GB/s>"


class virtual_gpus(Standing):
    """Make `n` virtual GPUs, gpu(0) to gpu(n - 1), in place of the existing GPUs.

    Called, they stay until the process ends or until `virtual_gpus(0)`, which restores the GPUs of
    this machine; as a scope, until its end, which restores the GPUs from before. `as` gives the
    list of contexts.

    threads      workers, and so BLAS threads, of each
    link_gb_s    GB/s that its link to the others moves in each direction. A copy between two
                 devices takes the time of the slower link
    memory       bytes of each; None: an equal share of the machine's memory, one for the CPU
    gflops       GFLOP/s that each worker computes at most: an operation takes at least the time
                 for its FLOPs (`op.cost`; `trace.operations` lists them). None: no bound
    memory_gb_s  GB/s that each worker reads and writes at most: an operation takes at least the
                 time for its bytes. None: no bound

    A list of n rates gives each device its own. MXNetError for invalid arguments.

    Waits for everything pending first, as the end of the scope does; after the scope, using an
    array that lies on one of the GPUs is an MXNetError. Copy what you need to cpu() before.
    """

    def __init__(
        self, n: int, threads: int = 1, link_gb_s: float | Sequence[float] = LINK_GB_S,
        memory: int | None = None, gflops: Rate = None, memory_gb_s: Rate = None,
    ):  # fmt: skip
        super().__init__()
        self._check(n, threads, memory)
        links = _rates_of("link_gb_s", link_gb_s, n)
        flops = _rates_of("gflops", gflops, n)
        moves = _rates_of("memory_gb_s", memory_gb_s, n)
        if memory is None and n:
            memory = cpu().memory_info()[1] // (n + 1)
        self.devices: list[Device] = [
            VirtualDevice(gpu(i), threads, int(memory or 0), links[i], flops[i], moves[i])
            for i in range(n)
        ]
        engine.current.wait_idle("virtual_gpus")
        cpu_workers = max(1, default_workers() - n * threads) if n else None
        self.undo.append(partial(_install, *devices.state()))
        self.install(partial(_install, self.devices, cpu_workers))

    @staticmethod
    def _check(n: int, threads: int, memory: int | None) -> None:
        wrong = None
        if not isinstance(n, int) or n < 0:
            wrong = f"n is a number of devices, got {n!r}"
        elif not isinstance(threads, int) or threads < 1:
            wrong = f"threads of a device are 1 or more, got {threads!r}"
        elif memory is not None and memory < 1:
            wrong = f"memory is in bytes, 1 or more, got {memory!r}"
        if wrong:
            raise MXNetError(f"virtual_gpus: {wrong}")

    def __enter__(self) -> list[Context]:
        return [device.ctx for device in self.devices]

    def close(self) -> None:  # after Ctrl-C, pending work that still needs the devices fails
        engine.current.wait_idle("virtual_gpus")

    def __repr__(self) -> str:
        return f"<{len(self.devices)} virtual GPUs>"


def _rates_of(name: str, rate: Rate, n: int) -> list[float]:
    """The rate of each of `n` devices; inf where there is no bound."""
    rates: list[Any] = list(rate) if isinstance(rate, (list, tuple)) else [rate] * n
    valid = len(rates) == n and all(
        rate is None or (isinstance(rate, (int, float)) and rate > 0) for rate in rates
    )
    if not valid:
        unit = "GFLOP/s" if name == "gflops" else "GB/s"
        raise MXNetError(
            f"virtual_gpus: {name} is a rate in {unit} above 0, or a list with the rate of each "
            f"device (n={n}), got {rate!r}"
        )
    return [inf if rate is None else float(rate) for rate in rates]


def _install(new: Sequence[Device], cpu_workers: int | None) -> None:
    blas.stay_serial(any(device.kind == VirtualDevice.kind for device in new))
    devices.install(new, cpu_workers)
