"""Devices: where memory comes from and who computes.

To be read in this order: `interface` (what a device is), `numpy_device`, `virtual_device`,
`devices` (which there are), `storage` (their memory), `parallel` (one operation on many cores).
GPUs are in the add-on `cuda`.

`allow_tf32(True)` lets GPUs multiply float32 matrices in TF32, which they do not do by themselves.
"""

from __future__ import annotations

from typing import Any

from d2lmini import addons


def __getattr__(name: str) -> Any:
    return addons.attribute_of(__name__, name)
