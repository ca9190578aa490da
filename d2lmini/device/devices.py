"""Which devices there are, and the one that a context means.

>>> from d2lmini import cpu
>>> from d2lmini.device.devices import device_of
>>> device_of(cpu())
<cpu device cpu(0)>

CPU contexts are there as soon as they are named. What `gpu(i)` means is decided by `install`:
virtual GPUs are such devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.device.interface import Device
from d2lmini.device.numpy_device import NumpyDevice
from d2lmini.engine import lanes

_devices: dict[Context, Device] = {}


def device_of(ctx: Context) -> Device:
    """The device that `ctx` names; MXNetError when it does not exist."""
    device = _devices.get(ctx)
    if device is None:
        if not ctx.is_cpu:
            raise MXNetError(_missing(ctx))
        device = _devices.setdefault(ctx, NumpyDevice(ctx))
    return device


def exists(ctx: Context) -> bool:
    """Is there such a device?"""
    return ctx.is_cpu or ctx in _devices


def gpus() -> list[Device]:
    """The devices that are no CPU, in their order."""
    return [device for ctx, device in list(_devices.items()) if not ctx.is_cpu]


def install(devices: Sequence[Device], cpu_workers: int | None) -> None:
    """Let these be the devices beside the CPU, and no others; the engine must be idle.
    `cpu_workers`: how many workers the CPU keeps, None for all."""
    for device in gpus():
        del _devices[device.ctx]
    threads: dict[tuple[Context, str], int] = {}
    for device in devices:
        _devices[device.ctx] = device
        threads.update(device.lanes())
    lanes.install(threads, cpu_workers)


def _missing(ctx: Context) -> str:
    found = len(gpus())
    count = f"{found or 'no'} GPU{'' if found == 1 else 's'}"
    return (
        f"{ctx} is not available: this process has {count}. Use ctx=cpu(), or make virtual GPUs, "
        f"which compute on the CPU's cores: d2lmini.virtual_gpus({ctx.device_id + 1}), or the "
        f"environment variable D2LMINI_VIRTUAL_GPUS={ctx.device_id + 1}. "
        "Real ones will need CuPy (the extra 'gpu')"
    )
