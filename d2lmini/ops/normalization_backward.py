"""The gradient of all normalizations, fused: three results from three inputs.

    h = (x - mean) / sqrt(var + eps)        y = gamma h + beta

    dx = P(g gamma) / sqrt(var + eps)       P(z) = z - mean(z) - h mean(z h)
    dgamma = sum(g h)       dbeta = sum(g)

P subtracts the parts that a shift or a scaling of x would cancel (`normalization.py`). Composed of
ops it takes fifteen passes through memory; here each chunk of x and of g enters the cache once.
BatchNorm, LayerNorm and the others differ only in the axes of the means and in the axes along which
gamma is shared.

>>> from d2lmini import nd
>>> x, g, gamma = nd.array([[1, 2, 3]]), nd.array([[1, 0, 0]]), nd.ones((1, 3))
>>> dx, dgamma, dbeta = normalize_backward(g, x, gamma, axes=(1,), eps=0)
>>> dx.asnumpy().round(3)
array([[ 0.204, -0.408,  0.204]], dtype=float32)

Second order. P is symmetric, and h itself changes with x by P(dx) / sqrt(var + eps). So the
gradient of this gradient uses the same P, and so do all higher orders.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch
from d2lmini.ops.chunking import along, split_evenly
from d2lmini.ops.core import Shape, op

#: Chunks that share no mean are processed in groups of at most about this many elements.
GRAIN = 1 << 18

#: Starting a row takes NumPy as long as processing this many numbers.
SHORT = 256


def total(a: Any, axes: Shape) -> Any:
    """The sum over `axes`, kept as 1; one axis after the other, the one with the largest stride
    first, so that whole rows are added to rows."""
    for axis in axes:
        a = np.add.reduce(a, axis=axis, keepdims=True)
    return a


def along_rows(v: Any, a: Any) -> Any:
    """v in a shape that broadcasts with `a`. One number per channel, over images of few places, is
    repeated for each place: then rows are as long as an image with all of its channels."""
    places = a.shape[-1]
    if v.shape[0] == v.shape[-1] == 1 < a.shape[0] and 1 < places < SHORT:
        return np.repeat(v, places, axis=-1)
    return v


@op("_normalize_backward", infer=lambda g, x, gamma, **_: [x, gamma, gamma], outputs=3, flops=11)
def normalize_backward(xp, g, x, gamma, *, axes: Shape, eps: float, out=None):
    """dx, dgamma and dbeta from g, x and gamma: one of x's shape and dtype, two of gamma's.

    Means are taken over `axes`; gamma has as many axes as x, of length 1 where gamma is shared.
    Computed in float32 at least. After S. Ioffe and C. Szegedy, "Batch Normalization" (2015).
    """
    shapes = (x, gamma, gamma)
    out = tuple(xp.empty(a.shape, a.dtype) for a in shapes) if out is None else out
    if x.size == 0:
        for result in out:
            result[...] = 0
    else:
        _in_pieces(g, x, gamma, axes, eps, *out)
    return out


def _in_pieces(
    g: Any, x: Any, gamma: Any, axes: Shape, eps: float, dx: Any, dgamma: Any, dbeta: Any
) -> None:
    """Split along the first axis that no mean reduces. Where gamma is shared along that axis, each
    chunk has its own sums, which are then added in order."""
    axis = next((a for a in range(x.ndim) if a not in axes), 0)
    n = 1 if axis in axes else min(x.shape[axis], -(-x.size // GRAIN))
    pieces = [along(axis, part) for part in split_evenly(x.shape[axis], n)]
    wide = np.promote_types(x.dtype, "float32")
    together = gamma.shape[axis] == 1
    sums = np.empty((2, n if together else 1, *gamma.shape), wide)

    def piece(i: int) -> None:
        here = pieces[i]
        slopes, scale, of_gamma, of_beta = g[here], gamma, *sums[:, i if together else 0]
        if not together:
            scale, of_gamma, of_beta = gamma[here], of_gamma[here], of_beta[here]
        slopes, block, scale = (a.astype(wide, copy=False) for a in (slopes, x[here], scale))
        _piece(slopes, block, scale, axes, wide.type(eps), dx[here], of_gamma, of_beta)

    parallel_for(n, piece)
    dgamma[...], dbeta[...] = sums.sum(axis=1)


def _piece(
    g: Any, x: Any, gamma: Any, axes: Shape, eps: Any, dx: Any, dgamma: Any, dbeta: Any
) -> None:
    share = x.dtype.type(1 / prod(x.shape[a] for a in axes))
    shared = tuple(a for a, n in enumerate(gamma.shape) if n == 1)
    centered = np.subtract(
        x, along_rows(total(x, axes) * share, x), out=scratch.array("centered", x.shape, x.dtype)
    )
    product = np.multiply(centered, centered, out=scratch.array("product", x.shape, x.dtype))
    inverse = 1 / np.sqrt(total(product, axes) * share + eps)
    np.multiply(g, centered, out=product)
    if shared == axes:  # gamma is shared wherever a mean is taken, so it can multiply last
        sum_g, sum_gh = total(g, axes), total(product, axes) * inverse
        dgamma[...], dbeta[...] = sum_gh, sum_g
        inverse_out = inverse * gamma
    else:
        dbeta[...] = total(g, shared)
        product *= inverse
        dgamma[...] = total(product, shared)
        product *= gamma
        sum_gh = total(product, axes)
        g = np.multiply(g, gamma, out=product)
        sum_g, inverse_out = total(g, axes), inverse
    centered *= along_rows(sum_gh * inverse * share, x)
    np.subtract(g, centered, out=centered)
    centered -= along_rows(sum_g * share, x)
    np.multiply(centered, along_rows(inverse_out, x), out=dx, casting="same_kind")


@normalize_backward.gradient(saves="g x x.shape gamma gamma.shape")
def _(given, g, x, shape, gamma, gamma_shape, *, axes, eps):
    """Of S = <u, dx> + <v, dgamma> + <t, dbeta>, with z = g gamma and i = 1 / sqrt(var + eps):

    dS/dg = gamma i P(u) + v h + t                  dS/dgamma = sum(g i P(u))
    dS/dx = i P(v g - i (<u, h> z + <z, h> u) / n) - i h <z, i P(u)> / n
    """
    u, v, t = given
    n = prod(shape[a] for a in axes)
    centered = x - x.mean(axis=axes, keepdims=True)
    inverse = ((centered * centered).mean(axis=axes, keepdims=True) + eps).rsqrt()
    h, z = centered * inverse, g * gamma

    def projected(value: Any) -> Any:
        """i P(value)."""
        return normalize_backward(value, x, gamma.ones_like(), axes=axes, eps=eps)[0]

    def inner(a: Any, b: Any) -> Any:
        return (a * b).sum(axis=axes, keepdims=True)

    of_u = projected(u)
    shared = tuple(a for a, length in enumerate(gamma_shape) if length == 1)
    return (
        gamma * of_u + v * h + t,
        projected(v * g - (inner(u, h) * z + inner(z, h) * u) * inverse / n)
        - inner(z, of_u) * inverse * h / n,
        (g * of_u).sum(axis=shared, keepdims=True),
    )
