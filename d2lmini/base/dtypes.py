"""The dtypes of arrays: their flags in files, and bfloat16, an optional one.

bfloat16 has the exponents of float32 and 8 bits of precision. NumPy lacks it; the package ml_dtypes
(`pip install d2lmini[bfloat16]`) adds it, and is imported when a program first asks for the dtype.

>>> from d2lmini import nd
>>> nd.array([1, 1 / 3, 3e38], dtype="bfloat16")
<BLANKLINE>
[1 0.333984 3.00406e+38]
<NDArray 3 @cpu(0)>

The kind of the dtype is "V" to NumPy, as if it were no number: ask `is_float`. How ops compute with
it: `ops/kernels.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The type character of the dtype.
CHAR = "E"


def bfloat16() -> np.dtype:
    """The dtype; ImportError without the package ml_dtypes."""
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            "dtype 'bfloat16' needs the package ml_dtypes, which is not installed: "
            "pip install d2lmini[bfloat16], or pip install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def is_float(dtype: np.dtype) -> bool:
    """True for floating dtypes, bfloat16 included."""
    return dtype.kind == "f" or dtype.char == CHAR


def is_half(dtype: Any) -> bool:
    """True for float16 and bfloat16."""
    return np.dtype(dtype).char in ("e", CHAR)


def finfo(dtype: np.dtype) -> Any:
    """`numpy.finfo`, also of bfloat16."""
    if dtype.char != CHAR:
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)


# Type flags are positions in this row.
DTYPES: tuple[np.dtype, ...] = tuple(
    np.dtype(name)
    for name in ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
)
_FLAGS = {dtype: flag for flag, dtype in enumerate(DTYPES)}
#: The flag of bfloat16.
BFLOAT16 = 12


def flag_of(dtype: np.dtype) -> int | None:
    """The type flag of a dtype; None if MXNet has no such dtype."""
    return BFLOAT16 if dtype.char == CHAR else _FLAGS.get(dtype.newbyteorder("="))


def dtype_of(flag: int) -> np.dtype | None:
    """The dtype of a type flag, None if there is none; ImportError for bfloat16 without the package
    ml_dtypes."""
    if flag == BFLOAT16:
        return bfloat16()
    return DTYPES[flag] if 0 <= flag < len(DTYPES) else None
