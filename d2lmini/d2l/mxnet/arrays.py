"""Functions that the book calls by names of its own, the same for each of its frameworks.

>>> from d2lmini.d2l.mxnet import arrays
>>> x = arrays.tensor([[1, 2]])
>>> arrays.reduce_sum(x), arrays.transpose(x).shape, arrays.size(x)
(array(3.), (2, 1), 2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini import np, npx

ones_like, ones, zeros_like, zeros = np.ones_like, np.ones, np.zeros_like, np.zeros
arange, meshgrid, sin, sinh, cos, cosh = np.arange, np.meshgrid, np.sin, np.sinh, np.cos, np.cosh
tanh, linspace, exp, log, tensor = np.tanh, np.linspace, np.exp, np.log, np.array
normal, rand, randn = np.random.normal, np.random.rand, np.random.randn
matmul, concat, stack = np.dot, np.concatenate, np.stack
float32, int32, int64 = np.float32, np.int32, np.int64
abs, eye, sigmoid, batch_matmul = np.abs, np.eye, npx.sigmoid, npx.batch_dot


def _method(method: str, text: str, name: str = "") -> Callable[..., Any]:
    """A method of arrays as a function of this name (else the method's) with this docstring."""

    def call(x, *args, **kwargs):
        return getattr(x, method)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name or method
    call.__doc__ = text
    return call


numpy = _method("asnumpy", "A NumPy copy; waits.", "numpy")
reshape = _method("reshape", "The array in another shape.")
to = _method("as_in_context", "The array on another device.", "to")
reduce_sum = _method("sum", "The sum.", "reduce_sum")
reduce_mean = _method("mean", "The mean.", "reduce_mean")
argmax = _method("argmax", "The position of the largest element.")
astype = _method("astype", "The array in another dtype.")
transpose = _method("transpose", "The array with axes in another order.")
swapaxes = _method("swapaxes", "The array with two axes exchanged.")
repeat = _method("repeat", "The array with elements repeated.")


def size(x):
    """The number of elements."""
    return x.size


def expand_dims(x, *args, **kwargs):
    """The array with a new axis."""
    return np.expand_dims(x, *args, **kwargs)
