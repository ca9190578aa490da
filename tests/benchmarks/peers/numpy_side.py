"""Plain NumPy: every call has finished when it returns, so there is nothing to wait for."""

from __future__ import annotations

from typing import Any

import compiled
import loading
import numpy as np
from peers.side import Side, Turn


class NumPy(Side):
    """The programs of `Side` are NumPy's; here is what NumPy's users can write in a second way."""

    def dot__out(self, calls: int, a: Any, b: Any) -> Turn:
        out = np.empty((len(a), b.shape[1]), a.dtype)
        return self.repeat(calls, lambda: np.dot(a, b, out=out))

    def add__out(self, calls: int, x: Any) -> Turn:
        y = np.empty_like(x)

        def loop() -> Any:
            for _ in range(calls):
                np.add(x, 1, out=y)
            return y

        return self.timed(loop, calls)

    def net_call(self, calls: int, x: Any, *weights: Any) -> Turn:
        return self.repeat(calls, lambda: compiled.net_output(x, *weights))

    def chain(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: compiled.chain_output(x))

    def normal(self, calls: int, n: int) -> Turn:
        rng = np.random.default_rng(1)
        return self.repeat(calls, lambda: rng.standard_normal((1000, n), dtype=np.float32))

    def load(self, calls: int, x: Any) -> Turn:
        """No loader: slices of the whole array, each transformed at once."""
        x = loading.as_bytes(x)
        return self.repeat(calls, lambda: loading.means(x))


sides = (NumPy,)
