"""Devices: where memory comes from and who computes.

To be read in this order: `interface` (what a device is), `numpy_device`, `virtual_device`,
`devices` (which there are), `storage` (their memory), `parallel` (one operation on many cores).
"""
