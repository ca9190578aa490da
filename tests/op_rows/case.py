"""One row of the table that tests every op: inputs, attributes and what NumPy says.

Each module beside this one holds `ROWS`, the rows of one family. `test_ops.py` runs every row
through the library (both engines, inline and queued) and, where one is at hand, the real MXNet. A
new op is tested by adding its row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Case:
    """`op(*inputs, **attrs)` must equal `expect(*inputs, **attrs)` in value, shape and dtype.

    `inputs` are NumPy arrays (their dtype is used as it is). `expect` gets NumPy arrays and the
    attributes; it returns an array or a list of them; its dtype counts unless `any_dtype`.
    `grad=False` leaves out the check of the gradient rule against differences (kinks, integers).
    `mxnet=False` with a reason in `why` leaves the row out of the comparison with real MXNet.
    `name` as in `nd.NAME`, dotted for sub-namespaces ('random.uniform', 'linalg.gemm2').
    """

    op: str
    inputs: tuple
    expect: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6
    grad: bool = True
    mxnet: bool = True
    why: str = ""

    @property
    def id(self) -> str:
        """A readable test name."""
        shapes = "_".join("x".join(map(str, np.shape(i))) or "scalar" for i in self.inputs)
        kinds = "_".join(dict.fromkeys(str(np.asarray(i).dtype) for i in self.inputs))
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}-{shapes}-{kinds}-{attrs}".replace(" ", "")


#: Shapes that break careless code: empty, scalar, axes of size one, an odd size.
EDGE_SHAPES = ((), (1,), (0,), (3, 0, 2), (1, 5), (4, 1, 3), (7,))


def draw(shape: tuple, low: float = -2.0, high: float = 2.0, dtype: str = "float32", seed: int = 0):
    """Numbers in [low, high), the same each time for one shape and seed."""
    rng = np.random.default_rng([seed, *map(int, shape)])
    if np.dtype(dtype).kind in "iu":
        return rng.integers(int(low), int(high), shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.uniform(low, high, shape).astype(dtype)
