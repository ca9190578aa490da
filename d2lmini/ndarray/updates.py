"""`nd.contrib.adamw_update`: AdamW with a gradient scale that may be a number or an array.

>>> from d2lmini import nd
>>> weight, grad, mean, var = nd.ones(2), nd.ones(2), nd.zeros(2), nd.zeros(2)
>>> nd.contrib.adamw_update(weight, grad, mean, var, 1.0, lr=0.01, eta=1.0, out=weight)
<BLANKLINE>
[0.96837723 0.96837723]
<NDArray 2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

from d2lmini.ndarray.creation import full
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import registry


def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    rescale_grad: Any,
    lr: float,
    eta: float,
    out: Any = None,
    **attrs: Any,
) -> NDArray:
    """Adam with decoupled weight decay (see the op `_adamw_update`). rescale_grad: a number, or an
    array of one element; if it is 0, infinite or nan, nothing is updated."""
    scale = _as_array(rescale_grad, weight)
    op = registry["_adamw_update"]
    return op(weight, grad, mean, var, scale, lr=lr, eta=eta, out=out, **attrs)


def mp_adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    weight32: NDArray,
    rescale_grad: Any,
    lr: float,
    eta: float,
    out: Any = None,
    **attrs: Any,
) -> NDArray:
    """`adamw_update` of a float16 weight with a float32 master copy."""
    scale = _as_array(rescale_grad, weight)
    op = registry["_mp_adamw_update"]
    return op(weight, grad, mean, var, weight32, scale, lr=lr, eta=eta, out=out, **attrs)


def _as_array(value: Any, weight: NDArray) -> NDArray:
    return value if isinstance(value, NDArray) else full((1,), value, ctx=weight.context)
