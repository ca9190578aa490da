"""Products of arrays in `np`: dot and matmul.

>>> from d2lmini import np
>>> A = np.arange(6).reshape(2, 3)
>>> np.dot(A, np.ones(3)), np.matmul(np.ones((4, 2, 3)), A.T).shape, np.dot(np.ones(3), np.ones(3))
(array([ 3., 12.]), (4, 2, 2), array(3.))
"""

from __future__ import annotations

from math import prod

import numpy as onp

from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.shapes import broadcast_to, expand_dims, transpose
from d2lmini.np.values import as_type, check_array, fill, is_number, promote, reshape_to
from d2lmini.ops.core import registry

_multiply = ELEMENTWISE["multiply"]


def _pair(name, a, b):
    """Both operands in one dtype; bool counts as int64, since BLAS has no products of bool."""
    a, b = promote(name, check_array(name, a), check_array(name, b))
    return [as_type(x, "int64") if x.dtype.kind == "b" else x for x in (a, b)]


def _check_aligned(a, b):
    """ValueError unless the last axis of `a` is as long as the last but one (the only) of `b`."""
    if a.shape[-1] != b.shape[-2:][0]:
        raise ValueError(
            f"shapes {a.shape} and {b.shape} not aligned: the last axis of the first has size "
            f"{a.shape[-1]}, axis {max(b.ndim - 2, 0)} of the second {b.shape[-2:][0]}"
        )


def dot(a, b, out=None):
    """The product over the last axis of `a` and the last but one of `b` (its only one)."""
    if is_number(a) or is_number(b):
        return _multiply(a, b, out)
    a, b = _pair("dot", a, b)
    if not a.shape or not b.shape:
        return _multiply(a, b, out)
    _check_aligned(a, b)
    order = sorted(range(b.ndim), key=lambda axis: axis != b.ndim - 2)
    result = registry["dot"](a, transpose(b, order) if b.ndim > 2 else b)
    shape = a.shape[:-1] + b.shape[:-2] + (b.shape[-1:] if b.ndim > 1 else ())
    return fill(out, result if result.shape == shape else reshape_to(result, shape))


def matmul(a, b, out=None):
    """Products of matrices in the last two axes; the others broadcast, vectors get an axis.
    ValueError for arrays without axes and for sizes that do not fit."""
    a, b = _pair("matmul", a, b)
    if not a.shape or not b.shape:
        raise ValueError("np.matmul: arrays without axes have no matrix product; use a * b")
    if a.ndim < 3 and b.ndim < 3:
        return dot(a, b, out)
    _check_aligned(a, b)
    shape = a.shape[-2:-1] + (b.shape[-1:] if b.ndim > 1 else ())
    a = a if a.ndim > 1 else expand_dims(a, 0)
    b = b if b.ndim > 1 else expand_dims(b, 1)
    lead = onp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (
        reshape_to(broadcast_to(x, lead + x.shape[-2:]), (prod(lead), *x.shape[-2:]))
        for x in (a, b)
    )
    return fill(out, reshape_to(registry["batch_dot"](left, right), lead + shape))
