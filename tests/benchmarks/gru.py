"""A GRU cell over many steps, forward and backward, as a workload: its numbers and its answer.

Every library calls the cell step by step under autograd, from zeros, and goes back from the sum of
all outputs. The answer are the gradients of both weights, flat, one after the other; NumPy finds
them here in float64, by the chain rule written out:

>>> x, i2h, h2h = cell(3)
>>> x.shape, i2h.shape, h2h.shape
((3, 32, 128), (768, 128), (768, 256))
>>> gradients(x, i2h, h2h).shape
(294912,)

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


def gradients(x: np.ndarray, i2h: np.ndarray, h2h: np.ndarray) -> np.ndarray:
    """Those of the sum of all outputs, for i2h and h2h."""
    x, i2h, h2h = (a.astype(np.float64) for a in (x, i2h, h2h))
    h = np.zeros((BATCH, UNITS))
    steps = []
    for a in x @ i2h.T:
        (ar, az, an), (cr, cz, cn) = np.split(a, 3, 1), np.split(h @ h2h.T, 3, 1)
        r, z = 1 / (1 + np.exp(-ar - cr)), 1 / (1 + np.exp(-az - cz))
        n = np.tanh(an + r * cn)
        steps.append((h, r, z, n, cn))
        h = (1 - z) * n + z * h
    dh = np.zeros_like(h)
    das, dcs = [], []
    for h, r, z, n, cn in reversed(steps):
        dh = dh + 1
        dn = dh * (1 - z) * (1 - n**2)
        dr = dn * cn * r * (1 - r)
        dz = dh * (h - n) * z * (1 - z)
        dc = np.hstack([dr, dz, dn * r])
        das.append(np.hstack([dr, dz, dn]))
        dcs.append(dc)
        dh = dh * z + dc @ h2h
    hs = [h for h, *_ in steps]
    di2h = np.vstack(das[::-1]).T @ np.vstack(list(x))
    dh2h = np.vstack(dcs[::-1]).T @ np.vstack(hs)
    return np.concatenate([di2h.ravel(), dh2h.ravel()]).astype(np.float32)
