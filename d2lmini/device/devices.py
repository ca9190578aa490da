"""The devices of this process, and the one that a context means.

>>> from d2lmini import cpu
>>> from d2lmini.device.devices import device_of
>>> device_of(cpu())
<cpu device cpu(0)>

CPU contexts exist as soon as they are named. `gpu(i)` is CUDA's device i, searched for when a GPU
is first needed, unless `install` decides otherwise: virtual GPUs replace real ones.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from d2lmini import addons, engine
from d2lmini.base import MXNetError, forks
from d2lmini.context import Context
from d2lmini.device.interface import Device
from d2lmini.engine import worker_pools


class NumpyDevice(Device):
    """A context of the CPU: NumPy computes, on as many workers as there are cores. All CPU contexts
    share the cores and the memory; each has its own account."""

    kind = "cpu"

    def __init__(self, ctx: Context):
        super().__init__(ctx, engine.current.workers)

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the machine."""
        with forks.importing:
            import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total


_devices: dict[Context, Device] = {}
_lock = forks.guard(threading.RLock())
_looked = False  # has this process looked for the machine's GPUs?


def device_of(ctx: Context) -> Device:
    """The device that `ctx` names; MXNetError when it does not exist."""
    device = _devices.get(ctx)
    if device is None:
        if not ctx.is_cpu:
            _look()
            if ctx not in _devices:
                raise MXNetError(_missing(ctx))
            return _devices[ctx]
        device = _devices.setdefault(ctx, NumpyDevice(ctx))
    return device


def exists(ctx: Context) -> bool:
    """True if there is such a device."""
    if not (ctx.is_cpu or ctx in _devices):
        _look()
    return ctx.is_cpu or ctx in _devices


def find_known(ctx: Context) -> Device | None:
    """The device that `ctx` names, if it was found before; searches for none."""
    return _devices.get(ctx)


def gpus() -> list[Device]:
    """The devices that are not CPUs, in order."""
    _look()
    return _known_devices()


def list_named() -> list[Device]:
    """All devices that were used so far."""
    return list(_devices.values())


def _known_devices() -> list[Device]:
    return [device for ctx, device in list(_devices.items()) if not ctx.is_cpu]


def state() -> tuple[list[Device], int | None]:
    """The arguments with which `install` restores the present devices."""
    return _known_devices(), worker_pools.most_for_cpu


def install(devices: Sequence[Device], cpu_workers: int | None) -> None:
    """Replace all devices but the CPU; the engine must be idle. None: the devices of this machine,
    searched for when needed. `cpu_workers`: number of workers the CPU keeps, None for all."""
    global _looked
    for device in _known_devices():
        del _devices[device.ctx]
        if device.pool is not None:
            device.pool.there = False
    for device in devices:
        _devices[device.ctx] = device
        if device.pool is not None:  # it was installed before
            device.pool.there = True
    _looked = bool(devices)
    threads, runners, times = _lanes(devices)
    worker_pools.install(threads, cpu_workers, runners, times)


def _look() -> None:
    """Find the GPUs of this machine, once."""
    global _looked
    if _looked:
        return
    with _lock:
        if not _looked:
            cuda = addons.find("gpu", required=False)
            found = cuda.find() if cuda is not None else []
            threads, runners, _ = _lanes(found)
            worker_pools.add(threads, runners)
            _devices.update((device.ctx, device) for device in found)
            _looked = True


def _lanes(devices: Sequence[Device]) -> tuple[dict, dict, dict]:
    """By lane: the numbers of threads, the runners, the times."""
    threads: dict[Any, int] = {}
    runners: dict[Any, Any] = {}
    times: dict[Any, Any] = {}
    for device in devices:
        threads.update(device.lanes())
        runners.update(device.runners())
        times.update(device.lane_times())
    return threads, runners, times


def _reason() -> str:
    """Why no GPUs were found."""
    try:
        return addons.find("gpu").module.look().missing
    except MXNetError as problem:
        return str(problem)


def _missing(ctx: Context) -> str:
    found = _known_devices()
    count = f"{len(found) or 'no'} GPU{'' if len(found) == 1 else 's'}"
    why = "" if found else f". {_reason()}"
    return (
        f"{ctx} is not available: this process has {count}. Use ctx=cpu(), or make virtual GPUs, "
        f"which compute on the CPU's cores: d2lmini.virtual_gpus({ctx.device_id + 1}), or the "
        f"environment variable D2LMINI_VIRTUAL_GPUS={ctx.device_id + 1}{why}"
    )
