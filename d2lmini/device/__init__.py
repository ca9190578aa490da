"""Devices: where memory comes from and who computes.

To be read in this order: `interface` (what a device is), `numpy_device`, `virtual_device`, `cuda`
(GPUs through CuPy), `devices` (which there are), `storage` (their memory), `parallel` (one
operation on many cores).

`allow_tf32(True)` lets GPUs multiply float32 matrices in TF32, which they do not do by themselves.
"""

from d2lmini.device.cuda.module import allow_tf32
