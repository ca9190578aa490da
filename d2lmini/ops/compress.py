"""Gradients in 2 bits an element, for slow links: KVStore's optional gradient compression.

Each element becomes +threshold, -threshold or 0, four elements to a byte: a sixteenth of float32.
The sender keeps the quantization error in a residual and adds it to the next gradient, so nothing
is lost in the long run. After Seide et al., "1-Bit Stochastic Gradient Descent" (2014), and Strom,
"Scalable Distributed DNN Training" (2015).

>>> from d2lmini import nd
>>> from d2lmini.ops.core import registry
>>> residual = nd.zeros(3)
>>> sent = registry["_quantize_2bit"](nd.array([0.2, 0.7, -3]), residual, threshold=0.5)
>>> registry["_dequantize_2bit"](sent, shape=(3,), threshold=0.5).asnumpy().tolist()
[0.0, 0.5, -0.5]
>>> residual
<BLANKLINE>
[ 0.2         0.19999999 -2.5       ]
<NDArray 3 @cpu(0)>
"""

from __future__ import annotations

import math
from typing import Any

from d2lmini.ops.core import DType, Shape, Spec, op


def _infer_pack(grad: Spec, residual: Spec, **_attrs: Any) -> Spec:
    return Spec((-(-grad.size // 4),), "uint8")


@op("_quantize_2bit", infer=_infer_pack, mutates=["residual"], flops=24, grad=None)
def quantize_2bit(xp, grad, residual, *, threshold: float, out=None):
    """residual += grad; the code of an element is 1 where it is >= threshold, 2 where it is
    <= -threshold, else 0. The decoded value is subtracted from the residual.

    Returns uint8 ((size + 3) / 4,), the first element in the lowest bits."""
    residual += grad
    high, low = residual >= threshold, residual <= -threshold
    step = residual.dtype.type(threshold)
    residual -= high * step
    residual += low * step
    codes = xp.zeros((-(-grad.size // 4), 4), "uint8")
    codes.reshape(-1)[: grad.size] = (high + 2 * low.astype("uint8")).reshape(-1)
    codes <<= xp.arange(0, 8, 2, dtype="uint8")
    return xp.add.reduce(codes, axis=1, dtype="uint8", out=out)


def _infer_unpack(data: Spec, *, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    return Spec(shape, dtype)


@op("_dequantize_2bit", infer=_infer_unpack, flops=3, grad=None)
def dequantize_2bit(xp, data, *, shape: Shape, threshold: float, dtype: DType = "float32"):
    """Decode the result of `_quantize_2bit` to an array of `shape`: threshold, -threshold or 0."""
    values = xp.array([0, threshold, -threshold, 0], dtype)
    codes = (data[:, None] >> xp.arange(0, 8, 2, dtype="uint8")) & 3
    return values[codes].reshape(-1)[: math.prod(shape)].reshape(shape)
