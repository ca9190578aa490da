"""The casts of mixed precision: between float16, bfloat16 and float32, and nothing else.

>>> from d2lmini import nd
>>> half, single = nd.ones(2, dtype="float16"), nd.ones(2)
>>> [x.dtype.__name__ for x in nd.amp_multicast(half, single, num_outputs=2)]
['float32', 'float32']
>>> nd.amp_cast(nd.ones(2, dtype="int32"), dtype="float16").dtype.__name__
'int32'

`contrib.amp` puts these casts before other ops. A cast of an array that has the dtype already is a
copy; compiled programs drop it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import DType, Spec, op
from d2lmini.ops.identity import cast, cast_into

#: Type characters of the dtypes that mixed precision converts: float16, float32, bfloat16.
CASTABLE = "efE"


def is_castable(dtype: Any) -> bool:
    """True for float16, float32 and bfloat16."""
    return np.dtype(dtype).char in CASTABLE


def widest(dtypes: Any) -> Any:
    """The common dtype of castable dtypes: float32, unless all are the same."""
    found = set(dtypes)
    return found.pop() if len(found) == 1 else np.dtype("float32")


def _cast_dtype(attrs: dict[str, Any], data: Any, n: int) -> list[Any]:
    """The dtype of the output, from that of the input (None: unknown)."""
    return [attrs["dtype"] if data is None or is_castable(data) else data]


def _cast(data: Spec, **attrs: Any) -> Spec:
    return Spec(data.shape, *_cast_dtype(attrs, data.dtype, 1))


@op(infer=_cast, flops=0, elementwise=True, free_dtypes=("data",), output_dtypes=_cast_dtype)
def amp_cast(xp, data, *, dtype: DType, out=None):
    """`cast` of float16, bfloat16 and float32; other arrays do not change. float32 is rounded to
    integers, halves to even, and clipped to their range, as MXNet's oneDNN does."""
    target = np.dtype(dtype) if is_castable(data.dtype) else data.dtype
    if data.dtype == np.float32 and target.kind in "iu" and target.itemsize < 8:
        ends = np.iinfo(target)
        most = np.nextafter(np.float32(ends.max), 0) if target.itemsize == 4 else ends.max
        data = xp.clip(xp.rint(data), ends.min, most)
    return cast_into(xp, data, target, out)


amp_cast.gradient(saves="data.dtype")(lambda g, dtype: cast(g, dtype=dtype))


def _common(dtypes: list[Any], cast_narrow: bool) -> list[Any]:
    """The dtypes of the outputs, from those of the inputs (None: unknown)."""
    floats = [dtype for dtype in dtypes if dtype is not None and is_castable(dtype)]
    if not floats:
        return dtypes
    common = min(floats, key=lambda d: d.itemsize) if cast_narrow else widest(floats)
    return [common if d is not None and is_castable(d) else d for d in dtypes]


def _multicast(*data: Spec, num_outputs: int, cast_narrow: bool) -> list[Spec]:
    if len(data) != num_outputs:
        raise MXNetError(f"num_outputs={num_outputs}, but there are {len(data)} arrays")
    dtypes = _common([spec.dtype for spec in data], cast_narrow)
    return [Spec(spec.shape, dtype) for spec, dtype in zip(data, dtypes, strict=True)]


@op(
    infer=_multicast, flops=0, outputs=lambda num_outputs, **_: num_outputs,
    free_dtypes=("data",), output_dtypes=lambda attrs, data, n: _common(data, attrs["cast_narrow"]),
    counted_inputs=lambda attrs: [f"data_{i}" for i in range(attrs["num_outputs"])],
)  # fmt: skip
def amp_multicast(xp, *data, num_outputs: int, cast_narrow: bool = False):
    """The arrays in the widest dtype among them, or the narrowest if `cast_narrow`; only float16,
    bfloat16 and float32 count and change. `num_outputs` is the number of arrays."""
    dtypes = _common([x.dtype for x in data], cast_narrow)
    results = [cast_into(xp, x, dtype, None) for x, dtype in zip(data, dtypes, strict=True)]
    return results if num_outputs > 1 else results[0]


@amp_multicast.gradient(saves="data.dtype")
def _(g, dtypes):
    gs = g if isinstance(g, (list, tuple)) else [g]
    return [cast(part, dtype=dtype) for part, dtype in zip(gs, dtypes, strict=True)]
