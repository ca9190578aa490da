"""Devices: where arrays live and are computed.

Reading order: `interface` (what a device is), `numpy_device`, `virtual_device`, `devices` (the
devices of this process), `storage` (their memory), `parallel` (one operation on many cores). GPUs
are in the add-on `cuda`.
"""
