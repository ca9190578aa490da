"""PyTorch, eager, on the CPU: like NumPy, a call has finished when it returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from peers.side import Side, Turn


class Torch(Side):
    library = "torch"
    module = "torch"
    statement = "import torch"

    def array(self, x: np.ndarray) -> Any:
        return self.lib.from_numpy(x.copy())

    def to_numpy(self, x: Any) -> np.ndarray:
        return x.numpy()

    def threads(self) -> str:
        return f"{self.lib.get_num_threads()} threads"

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: a @ b)

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T.contiguous())

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.lib.cat([a, b], dim=1))

    def normal(self, calls: int, n: int) -> Turn:
        return self.repeat(calls, lambda: self.lib.randn(1000, n))


sides = (Torch,)
