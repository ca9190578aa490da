"""Functions that the book calls by names of its own, the same for each of its frameworks.

>>> from d2lmini.d2l.mxnet import arrays
>>> x = arrays.tensor([[1, 2]])
>>> arrays.reduce_sum(x), arrays.transpose(x).shape, arrays.size(x)
(array(3.), (2, 1), 2)
"""

from __future__ import annotations

from d2lmini import np, npx

ones_like, ones, zeros_like, zeros = np.ones_like, np.ones, np.zeros_like, np.zeros
arange, meshgrid, sin, sinh, cos, cosh = np.arange, np.meshgrid, np.sin, np.sinh, np.cos, np.cosh
tanh, linspace, exp, log, tensor = np.tanh, np.linspace, np.exp, np.log, np.array
normal, rand, randn = np.random.normal, np.random.rand, np.random.randn
matmul, concat, stack = np.dot, np.concatenate, np.stack
float32, int32, int64 = np.float32, np.int32, np.int64
abs, eye, sigmoid, batch_matmul = np.abs, np.eye, npx.sigmoid, npx.batch_dot


def numpy(x, *args, **kwargs):
    """A NumPy copy; waits."""
    return x.asnumpy(*args, **kwargs)


def size(x):
    """The number of elements."""
    return x.size


def reshape(x, *args, **kwargs):
    """The array in another shape."""
    return x.reshape(*args, **kwargs)


def to(x, *args, **kwargs):
    """The array on another device."""
    return x.as_in_context(*args, **kwargs)


def reduce_sum(x, *args, **kwargs):
    """The sum."""
    return x.sum(*args, **kwargs)


def reduce_mean(x, *args, **kwargs):
    """The mean."""
    return x.mean(*args, **kwargs)


def argmax(x, *args, **kwargs):
    """The position of the largest element."""
    return x.argmax(*args, **kwargs)


def astype(x, *args, **kwargs):
    """The array in another dtype."""
    return x.astype(*args, **kwargs)


def transpose(x, *args, **kwargs):
    """The array with axes in another order."""
    return x.transpose(*args, **kwargs)


def expand_dims(x, *args, **kwargs):
    """The array with a new axis."""
    return np.expand_dims(x, *args, **kwargs)


def swapaxes(x, *args, **kwargs):
    """The array with two axes exchanged."""
    return x.swapaxes(*args, **kwargs)


def repeat(x, *args, **kwargs):
    """The array with elements repeated."""
    return x.repeat(*args, **kwargs)
