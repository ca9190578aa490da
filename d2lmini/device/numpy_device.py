"""The CPU as a device: NumPy computes, on as many workers as there are cores.

All CPU contexts share the cores and the memory; each has its own account.
"""

from __future__ import annotations

from typing import Any

from d2lmini import engine, forks
from d2lmini.context import Context
from d2lmini.device.interface import Device


class NumpyDevice(Device):
    """A context of the CPU."""

    kind = "cpu"

    def __init__(self, ctx: Context):
        super().__init__(ctx, engine.current.workers)

    def copy(self, target: Any, source: Any) -> None:
        self.xp.copyto(target, source)

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the machine."""
        with forks.importing:
            import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total
