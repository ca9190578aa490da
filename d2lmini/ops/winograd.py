"""Winograd's algorithm: m outputs of a filter of r taps with m + r - 1 multiplications, not m r.

The product of two polynomials is determined by its values at as many points as it has coefficients,
and each value takes one multiplication. A and G give the values at six points of polynomials with m
and with r coefficients (m + r = 7); C finds a polynomial with six coefficients from its values:

    coefficients of g w = C ((A g) (G w))

Multiplying polynomials is a full convolution, that is, the gradient of a convolution for its data;
the convolution itself is the transpose. B is C transposed:

    y = A^T ((G w) (B d))           m outputs y, r taps w, the six places d that they read

>>> import numpy as np
>>> d, w = np.arange(6.0) ** 2, np.array([1.0, 2, 3])
>>> A, B, G = winograd(3, "float64")
>>> A.T @ ((G @ w) * (B @ d))
array([ 14.,  36.,  70., 116.])
>>> [float(d[i : i + 3] @ w) for i in range(4)]
[14.0, 36.0, 70.0, 116.0]

An image applies this along both axes. For 3 x 3 taps that is 36 multiplications for 16 outputs, a
fourth of 144: S. Winograd (1980); for neural networks A. Lavin and S. Gray, "Fast Algorithms for
Convolutional Neural Networks" (2015).

The price is accuracy: values at large points dominate the sums. Five of the points lie close
around 1, the sixth is infinity (the value there is the leading coefficient). In float32 the error
is 1e-6 of the typical size of a result, three times that of a direct sum; with the points 0, 1, -1,
2, -2 it would be twice that, and worse in the worst case.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

#: The points except infinity; two pairs, which share their even and odd parts, exact in binary.
FINITE = np.array([0, 0.75, -0.75, 1.5, -1.5])
POINTS = 6


def values(n: int) -> np.ndarray:
    """(6, n): the matrix from a polynomial's n coefficients to its values at the points."""
    matrix = np.zeros((POINTS, n))
    matrix[:-1] = FINITE[:, None] ** np.arange(n)
    matrix[-1, -1] = 1
    return matrix


@lru_cache(maxsize=64)
def winograd(r: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices A (6, 7 - r), B (6, 6) and G (6, r) for r taps.

    C has Lagrange's polynomials as its columns: each is 0 at all points but one. The factor that
    makes it 1 there divides G's row instead, which is used once for many tiles; so B is exact.
    """
    B, G = np.zeros((POINTS, POINTS)), values(r)
    for i, point in enumerate(FINITE):
        others = np.delete(FINITE, i)
        B[i, :-1] = np.poly(others)[::-1]
        G[i] /= np.prod(point - others)
    B[-1] = np.poly(FINITE)[::-1]
    A, B, G = (matrix.astype(dtype) for matrix in (values(POINTS + 1 - r), B, G))
    return A, B, G


@lru_cache(maxsize=64)
def of_filters(kernel: tuple[int, int], dtype: Any) -> np.ndarray:
    """(36, taps): the matrix from the taps of a filter of this size to its values at all points."""
    down, across = (winograd(r, "float64")[2] for r in kernel)
    return np.kron(down, across).astype(dtype)
