"""A GRU cell over many steps, forward and backward, as a workload: its numbers and their check.

Every library unrolls the cell under autograd from zeros and goes back from the sum of all outputs.
A turn returns the gradients of both weights, flat, one after the other. What they say along one
direction is compared with the difference of two sums that NumPy finds here in float64:

>>> check(np.zeros(768 * 384, np.float32), 3)
'along one direction the sum changes by ..., the gradients say 0'

Like `workloads.py` this runs in every library's own environment and imports NumPy alone.
"""

from __future__ import annotations

import numpy as np
from training import Arrays, pattern, weight

BATCH, INPUTS, UNITS = 32, 128, 256


def cell(T: int) -> Arrays:
    """x (T, 32, 128), i2h weight (768, 128), h2h weight (768, 256); biases are 0."""
    return [
        pattern(T, BATCH, INPUTS),
        weight(3 * UNITS, INPUTS),
        weight(3 * UNITS, UNITS)[::-1].copy(),
    ]


def total(x: np.ndarray, i2h: np.ndarray, h2h: np.ndarray) -> float:
    """The sum of all outputs of all steps."""
    h = np.zeros((BATCH, UNITS))
    y = 0.0
    for step in x:
        (ar, az, an), (cr, cz, cn) = np.split(step @ i2h.T, 3, 1), np.split(h @ h2h.T, 3, 1)
        r, z = 1 / (1 + np.exp(-ar - cr)), 1 / (1 + np.exp(-az - cz))
        h = (1 - z) * np.tanh(an + r * cn) + z * h
        y += h.sum()
    return y


def check(gradients: np.ndarray, T: int) -> str | None:
    """What is wrong with the gradients, for `Workload.check`."""
    x, i2h, h2h = (a.astype(np.float64) for a in cell(T))
    if gradients.shape != (i2h.size + h2h.size,):
        return f"shape is {gradients.shape}, expected {(i2h.size + h2h.size,)}"
    direction = np.cos(np.arange(gradients.size, dtype=np.float64))
    di, dh = direction[: i2h.size].reshape(i2h.shape), direction[i2h.size :].reshape(h2h.shape)
    step = 1e-5
    change = total(x, i2h + step * di, h2h + step * dh) - total(x, i2h - step * di, h2h - step * dh)
    found, expected = float(gradients.astype(np.float64) @ direction), change / (2 * step)
    if abs(found - expected) <= 1e-3 * abs(expected):
        return None
    return f"along one direction the sum changes by {expected:g}, the gradients say {found:g}"
