"""Which precision each op gets in mixed precision: MXNet's lists, by MXNet's names.

    low         inputs are cast to 16 bits: products, which gain most and lose little
    float32     inputs are cast to float32: exponentials, sums, norms, losses
    widest      inputs of several dtypes are cast to the widest of them
    conditional float32, if an attribute has one of some values
    any         no cast: the op computes in the dtype that it gets

>>> from d2lmini import nd
>>> [kinds().get(op) for op in (nd.FullyConnected, nd.softmax, nd.add_n, nd.relu)]
['low', 'float32', 'widest', None]

The first two lists and the conditional one are lists here too. The others follow from what ops
declare: the ops on two arrays of a family (`elementwise.py`) need one dtype, and so are in the list
of the widest; all other ops of MXNet compute in any dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from d2lmini.ops import fluent  # noqa: F401  (all ops are declared)
from d2lmini.ops.core import Op, as_dtype, registry

_LOW = "Convolution Deconvolution FullyConnected RNN"

_FLOAT32 = """
    arccos arcsin arctanh cosh sinh tan exp expm1 log log10 log2 log1p square reciprocal
    rsqrt rcbrt gamma gammaln smooth_l1
    _power _power_scalar _rpower_scalar broadcast_power _hypot _hypot_scalar broadcast_hypot
    _rdiv_scalar
    sum nansum prod mean norm argsort topk
    softmax softmin log_softmax
    InstanceNorm LayerNorm GroupNorm L2Normalization
    SoftmaxOutput make_loss CTCLoss
    linalg_gemm2"""

# Besides the ops on two arrays.
_WIDEST = "add_n concat stack dot batch_dot where"

CONDITIONAL = (
    ("Activation", "act_type", ("softrelu",)),
    ("LeakyReLU", "act_type", ("elu", "selu")),
)

# d2lmini's own ops that Gluon's layers and losses call, and the kind of the ops they stand for.
_OWN = {"_softmax_cross_entropy": "float32", "_squared_error": "float32", "_rnn_layer": "low"}


def check_target(target_dtype: Any) -> np.dtype:
    """The dtype; AssertionError, as in MXNet, unless it is float16 or bfloat16. ImportError for
    bfloat16 without the package ml_dtypes."""
    try:
        dtype = as_dtype(target_dtype)
    except TypeError:
        dtype = None
    assert dtype is not None and dtype.name in ("float16", "bfloat16"), (
        "AMP currently supports only float16 or bfloat16 as a target_dtype, got "
        f"{getattr(target_dtype, '__name__', target_dtype)!r}"
    )
    return dtype


@cache
def kinds() -> dict[Op, str]:
    """The kind of each op, for all ops that may need a cast, without conditional ones."""
    found = {registry[name]: kind for name, kind in _OWN.items()}
    for op in _all_ops():
        if op.family is not None and op.arity == 2 and op.in_mxnet:
            found[op] = "widest"
    for kind, names in (("widest", _WIDEST), ("low", _LOW), ("float32", _FLOAT32)):
        found.update({registry[name]: kind for name in names.split()})
    return found


@cache
def bound() -> list[Op]:
    """The ops of several inputs that must have one dtype, without those that update weights."""
    return [
        op
        for op in _all_ops()
        if op.in_mxnet and (op.rule or op.random) and len(op.of_one_dtype(2)) > 1 and not op.mutates
    ]


def _all_ops() -> Iterable[Op]:
    return {op.name: op for op in registry.values()}.values()
