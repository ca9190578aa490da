"""An epoch of data loading as a workload: pictures, a transform of each, batches.

The pictures are as many and as large as the training part of scikit-learn's digits (1437 of 8 x 8),
bytes in the layout (height, width, channel). The transform makes floats in [0, 1] of (channel,
height, width) and normalizes them. The answer is the mean of every batch.

>>> (x,) = pictures(300)
>>> x.shape, means(x).shape
((300, 8, 8, 1), (2,))

Like `workloads.py` this runs in every library's own environment and imports NumPy alone.
"""

from __future__ import annotations

import numpy as np
from training import Arrays, pattern

BATCH, WORKERS = 256, 2
MEAN, STD = 0.13, 0.31


def pictures(n: int) -> Arrays:
    """(n, 8, 8, 1), whole numbers in 0 ... 255."""
    return [np.floor(pattern(n, 8, 8, 1) * 127.5 + 127.5)]


def as_bytes(x: np.ndarray) -> np.ndarray:
    return x.astype(np.uint8)


def transform(x: np.ndarray) -> np.ndarray:
    """Several pictures at once, (N, H, W, C) -> (N, C, H, W)."""
    return ((x / np.float32(255) - np.float32(MEAN)) / np.float32(STD)).transpose(0, 3, 1, 2)


def means(x: np.ndarray) -> np.ndarray:
    batches = [transform(x[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    return np.stack([batch.mean() for batch in batches]).astype(np.float32)
