"""Functions that the book calls by names of its own, the same for each of its frameworks.

>>> from d2lmini.compat.books.second.arrays import FUNCTIONS
>>> x = FUNCTIONS["tensor"]([[1, 2]])
>>> FUNCTIONS["reduce_sum"](x), FUNCTIONS["transpose"](x).shape, FUNCTIONS["size"](x)
(array(3.), (2, 1), 2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini import np, npx

_SAME = """
    abs arange cos cosh exp expand_dims eye float32 int32 int64 linspace log meshgrid ones ones_like
    sin sinh stack tanh zeros zeros_like"""
#: Methods of arrays, by the book's name for the function.
_METHODS = {
    "argmax": "argmax", "astype": "astype", "numpy": "asnumpy", "reduce_mean": "mean",
    "reduce_sum": "sum", "repeat": "repeat", "reshape": "reshape", "swapaxes": "swapaxes",
    "to": "as_in_context", "transpose": "transpose",
}  # fmt: skip


def _method(name: str) -> Callable[..., Any]:
    """A method of arrays as a function."""
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in _SAME.split()},
    **{name: _method(method) for name, method in _METHODS.items()},
    "batch_matmul": npx.batch_dot,
    "concat": np.concatenate,
    "matmul": np.dot,
    "normal": np.random.normal,
    "rand": np.random.rand,
    "randn": np.random.randn,
    "sigmoid": npx.sigmoid,
    "size": lambda x: x.size,
    "tensor": np.array,
}
