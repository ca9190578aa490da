"""What CuPy does with indices, on NumPy arrays.

>>> import numpy as np
>>> wrapped((5, 3), [np.array([7, -1]), 2])
(array([2, 4]), 2)
"""

from __future__ import annotations

from typing import Any

import numpy as np


def wrapped(shape: tuple, parts: list) -> tuple:
    """The index with the numbers in its arrays brought into range, as CuPy's kernels do."""
    takes = [p.ndim if isinstance(p, np.ndarray) and p.dtype.kind == "b" else int(p is not None)
             for p in parts if p is not ...]  # fmt: skip
    axis, result = 0, []
    for part in parts:
        if part is ...:
            axis += len(shape) - sum(takes)
        elif isinstance(part, np.ndarray) and part.dtype.kind != "b":
            part = part.astype(np.int64) % max(shape[axis], 1)
            axis += 1
        elif part is not None:
            axis += part.ndim if isinstance(part, np.ndarray) else 1
        result.append(part)
    return tuple(result)


def leading_ones_off(value: Any) -> Any:
    """A value to be stored, without the axes of one element that it begins with."""
    shape = np.shape(value)
    while shape and shape[0] == 1:
        shape = shape[1:]
    return np.reshape(value, shape)
