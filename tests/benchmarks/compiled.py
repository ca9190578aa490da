"""Workloads for compiled nets: a small net called often, a long chain of elementwise operations.

>>> x, *weights = net(1)
>>> [w.shape for w in weights]
[(256, 512), (128, 256), (2, 128)]
>>> net_output(x, *weights).shape
(1, 2)
>>> chain_output(np.zeros((2, 2), np.float32)).tolist()
[[0.0, 0.0], [0.0, 0.0]]

Like `workloads.py` this runs in every library's own environment and imports NumPy alone.
"""

from __future__ import annotations

import numpy as np
from training import Arrays, pattern, weight

#: Units of the net of the chapter on imperative and symbolic programs, after its 512 inputs.
UNITS = (256, 128, 2)


def net(n: int) -> Arrays:
    """X (n, 512), three weights; biases are 0, the activations between are relu."""
    widths = (512, *UNITS)
    return [pattern(n, 512), *(weight(b, a) for a, b in zip(widths, UNITS))]


def net_output(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    for w in weights[:-1]:
        x = np.maximum(x @ w.T, 0)
    return x @ weights[-1].T


def chain(x, tanh):
    """Ten operations on every element: tanh, products and sums; works on any library's arrays."""
    a = tanh(x)
    b = a * x + x
    c = tanh(b * 0.5)
    d = c * a + b
    return tanh(d) * c + 0.25 * d


def chain_output(x: np.ndarray) -> np.ndarray:
    return chain(x, np.tanh)
