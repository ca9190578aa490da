"""Winograd's trick: m outputs of a filter of r taps by m + r - 1 multiplications, and not by m r.

The product of two polynomials is known from its values at as many points as it has coefficients,
and each value takes one multiplication. With A and G, which give the values at six points of
polynomials of m and of r coefficients (m + r = 7), and C, which finds a polynomial of six by its
values there,

    coefficients of g w = C ((A g) (G w))

To multiply polynomials is to slide one over the other, that is, the gradient of a convolution for
its data; the convolution itself is the same read backwards. B is C transposed:

    y = A^T ((G w) (B d))           m outputs y, r taps w, the six places d which they look at

>>> import numpy as np
>>> d, w = np.arange(6.0) ** 2, np.array([1.0, 2, 3])
>>> A, B, G = winograd(3, "float64")
>>> A.T @ ((G @ w) * (B @ d))
array([ 14.,  36.,  70., 116.])
>>> [float(d[i : i + 3] @ w) for i in range(4)]
[14.0, 36.0, 70.0, 116.0]

An image does so along both axes. For 3 x 3 taps that is 36 multiplications for 16 outputs, a fourth
of 144: S. Winograd (1980); for neural networks A. Lavin and S. Gray, "Fast Algorithms for
Convolutional Neural Networks" (2015).

The price is digits: values at large points drown others in the sums. Five of the points lie close
around 1, the sixth is infinity (the value there is the leading coefficient). In float32 a result is
off by 1e-6 of the typical size of a result, three times as much as one that is added up straight
away; with the points 0, 1, -1, 2, -2 it would be twice that, and worse for the worst.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

#: The points but infinity; two pairs, which share their even and odd parts, exact in binary.
FINITE = np.array([0, 0.75, -0.75, 1.5, -1.5])
POINTS = 6


def values(n: int) -> np.ndarray:
    """(6, n): the values at the points of a polynomial, by its n coefficients."""
    matrix = np.zeros((POINTS, n))
    matrix[:-1] = FINITE[:, None] ** np.arange(n)
    matrix[-1, -1] = 1
    return matrix


@lru_cache(maxsize=64)
def winograd(r: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (6, 7 - r), B (6, 6) and G (6, r) of the module for r taps.

    C has Lagrange's polynomials as its columns: each is 0 at all points but one. What makes it 1
    there divides G's row instead, which is used once for many tiles; so B is exact.
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
    """(36, taps): the values at all pairs of points, by the taps of a filter of this size."""
    down, across = (winograd(r, "float64")[2] for r in kernel)
    return np.kron(down, across).astype(dtype)
