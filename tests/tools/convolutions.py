"""What the tests of several ways to convolve share."""

from __future__ import annotations

import numpy as np

from d2lmini import autograd, engine, nd
from d2lmini.ops import conv
from d2lmini.ops.windows import geometry


def all_three(way, geo, x, w, g):
    """y, dx and dw, from memory that holds nan before."""
    y, dx, dw = (np.full(a.shape, np.nan, a.dtype) for a in (g, x, w))
    way.convolve(np, x, w, geo, 1, y)
    way.convolve_data(np, g, w, geo, 1, dx)
    way.convolve_weight(np, x, g, geo, 1, dw)
    return y, dx, dw


def way_of(N, w, size, pad=0, stride=1, groups=1, xp=np):
    geo = geometry(size, w[2:], (stride,) * len(size), (), (pad,) * len(size))
    return conv.choose_algorithm(xp, N, w, geo, groups)


def check_workers_change_no_bit(data, weight, dtype, pad):
    """Of a convolution and its gradients, by the serial engine and by one to three workers."""

    def step():
        x, w = nd.array(data, dtype=dtype), nd.array(weight, dtype=dtype)
        x.attach_grad()
        w.attach_grad()
        with autograd.record():
            y = nd.Convolution(
                x, w, kernel=weight.shape[2:], pad=pad, num_filter=len(weight), no_bias=True
            )
        y.backward(y)
        return [a.asnumpy() for a in (y, x.grad, w.grad)]

    with engine.use("naive"):
        want = step()
    for workers in (1, 2, 3):
        with engine.use("threaded", workers=workers, inline_below=0):
            for _ in range(3):
                for got, expected in zip(step(), want):
                    np.testing.assert_array_equal(got, expected)
