"""A training step of ResNet-18 for small pictures as a workload: its numbers and its first loss.

A 3 x 3 convolution to 64 channels, four stages of two residual blocks with 64 to 512 channels, each
stage but the first halving height and width, global average pooling, a dense layer; every
convolution is followed by batch normalization (He et al., 2016; the sizes are the book's).

>>> x, y, *weights = resnet(2)
>>> x.shape, len(weights), weights[0].shape, weights[-1].shape
((2, 1, 28, 28), 21, (64, 1, 3, 3), (10, 512))
>>> [w.shape for w in weights if w.shape[2:] == (1, 1)]
[(128, 64, 1, 1), (256, 128, 1, 1), (512, 256, 1, 1)]

Like `workloads.py` this runs in every library's own environment and imports NumPy alone.
"""

from __future__ import annotations

import numpy as np
from training import Arrays, convolve, cross_entropy, pattern, weight

CLASSES = 10
#: (input channels, channels, stride) of the eight residual blocks; the input passes a 1 x 1
#: convolution of its own where the stride is 2.
BLOCKS = (
    (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
    (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1),
)  # fmt: skip
#: What batch normalization adds to the variance, with every library.
EPSILON = 1e-5
LEARNING_RATE = 0.01


def resnet(n: int) -> Arrays:
    """X (n, 1, 28, 28), labels (n,), 20 kernels and a weight; biases and shifts 0, scales 1."""
    weights = [weight(64, 1, 3, 3)]
    for before, channels, stride in BLOCKS:
        weights += [weight(channels, before, 3, 3), weight(channels, channels, 3, 3)]
        if stride == 2:
            weights.append(weight(channels, before, 1, 1))
    labels = (np.arange(n) % CLASSES).astype(np.float32)
    return [pattern(n, 1, 28, 28), labels, *weights, weight(CLASSES, BLOCKS[-1][1])]


def resnet_loss(x: np.ndarray, y: np.ndarray, *weights: np.ndarray) -> float:
    *kernels, last = weights
    each = iter(kernels)
    x = np.maximum(normalize(convolve(x, next(each), pad=1)), 0)
    for _, _, stride in BLOCKS:
        inner = np.maximum(normalize(convolve(x, next(each), stride, pad=1)), 0)
        inner = normalize(convolve(inner, next(each), pad=1))
        x = np.maximum(inner + (convolve(x, next(each), stride) if stride == 2 else x), 0)
    return cross_entropy(x.mean(axis=(2, 3)) @ last.T, y)


def normalize(x: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1 for every channel of (N, C, H, W), over the batch."""
    mean = x.mean(axis=(0, 2, 3), keepdims=True)
    variance = x.var(axis=(0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON)
