"""Devices: where arrays live and are computed.

Reading order: `interface` (what a device is), `numpy_device`, `virtual_device`, `devices` (the
devices of this process), `storage` (their memory), `parallel` (one operation on many cores). GPUs
are in the add-on `cuda`.

`allow_tf32(True)` lets GPUs multiply float32 matrices in TF32; the default is full float32.
"""

from __future__ import annotations

from typing import Any

from d2lmini import addons


def __getattr__(name: str) -> Any:
    return addons.attribute_of(__name__, name)
