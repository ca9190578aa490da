"""Gradient compression: smaller gradients on the links.

    2bit   +threshold, -threshold or 0, the rest kept for the next step: a sixteenth of float32
    fp16   float16: half of float32

>>> from d2lmini import cpu, kvstore, nd
>>> kv = kvstore.create("device")
>>> kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
>>> kv.init("w", nd.zeros(2))
>>> out = nd.zeros(2)
>>> for _ in range(2):                                # the second time 0.3 + 0.3 >= 0.5
...     kv.pushpull("w", [nd.full(2, 0.3, ctx=cpu(i)) for i in range(2)], out)
...     out.asnumpy().tolist()
[0.0, 0.0]
[1.0, 1.0]

Every device's part is compressed, also that of the device which computes the sum, so that results
do not depend on the place of the sum. MXNet has 2bit only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.context import Context
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import registry

_TYPES = ("2bit", "fp16")


class Compression:
    """How gradients are compressed: `params` is {'type': '2bit' or 'fp16', 'threshold': the value
    that 2bit sends}. MXNetError for other params, and at `send` for non-float gradients."""

    def __init__(self, params: Any):
        if not isinstance(params, dict):
            raise TypeError(
                "gradient compression: expected a dict like {'type': '2bit', 'threshold': 0.5}, "
                f"got {params!r}"
            )
        unknown = set(params) - {"type", "threshold"}
        if unknown or params.get("type") not in _TYPES:
            raise MXNetError(
                f"gradient compression {params!r}: 'type' is one of {', '.join(_TYPES)}, and "
                "the only other key is 'threshold'"
            )
        self.kind: str = params["type"]
        self.threshold = float(params.get("threshold", 0.5))
        if not self.threshold > 0:
            raise MXNetError(f"gradient compression: threshold is above 0, got {self.threshold}")
        self._residuals: dict[Any, NDArray] = {}

    def __repr__(self) -> str:
        return f"<compression {self.kind}, threshold {self.threshold}>"

    def send(self, who: Any, x: NDArray, ctx: Context) -> NDArray:
        """The gradient `x` as it arrives on `ctx`. `who`: the owner of the residual, a key and the
        number of the device."""
        dtype = np.dtype(x.dtype)
        if dtype.kind != "f":
            raise MXNetError(f"gradient compression: needs floating gradients, got {dtype.name}")
        if self.kind == "fp16":
            return _to(x.astype("float16"), ctx).astype(dtype)
        residual = self._residuals.get(who)
        if residual is None or (residual.shape, residual.dtype) != (x.shape, x.dtype):
            residual = registry["zeros_like"](x)
        residual = self._residuals[who] = residual.as_in_context(x.context)
        sent = registry["_quantize_2bit"](x, residual, threshold=self.threshold)
        return registry["_dequantize_2bit"](
            _to(sent, ctx), shape=x.shape, threshold=self.threshold, dtype=dtype
        )


def _to(x: NDArray, ctx: Context) -> NDArray:
    """`x` on `ctx`, without a copy between CPU contexts, which share their memory."""
    return x if x.context.is_cpu and ctx.is_cpu else x.as_in_context(ctx)
