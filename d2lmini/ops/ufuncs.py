"""Which ops are, on floating arrays, exactly one NumPy ufunc.

For these the way from the call to the kernel can be short (ndarray/dispatch.py), and the result is
known beforehand: shape and dtype of the inputs, if those agree. `op.ufunc` holds the ufunc.

>>> from d2lmini.ops.core import registry
>>> registry["_plus_scalar"].ufunc
<ufunc 'add'>
"""

from __future__ import annotations

import numpy as np

from d2lmini.ops import elemwise, pairs, scalars, unary  # noqa: F401  (they declare the ops)
from d2lmini.ops.core import registry

_UFUNCS = {
    "add": "broadcast_add elemwise_add _plus_scalar",
    "subtract": "broadcast_sub elemwise_sub _minus_scalar",
    "multiply": "broadcast_mul elemwise_mul _mul_scalar",
    "divide": "broadcast_div elemwise_div _div_scalar",
    "maximum": "broadcast_maximum",
    "minimum": "broadcast_minimum",
    "negative": "negative",
    "absolute": "abs",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "square": "square",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
}  # fmt: skip

for _ufunc, _ops in _UFUNCS.items():
    for _name in _ops.split():
        registry[_name].ufunc = getattr(np, _ufunc)

del _ufunc, _ops, _name
