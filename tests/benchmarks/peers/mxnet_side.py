"""Apache MXNet 1.9.1: calls return at once, `nd.waitall()` waits for all of them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from peers.side import Side, Turn


class MXNet(Side):
    library = "mxnet"
    module = "mxnet"
    statement = "from mxnet import nd"

    def __init__(self) -> None:
        super().__init__()
        self.nd = self.lib.nd

    def array(self, x: np.ndarray) -> Any:
        return self.nd.array(x)

    def to_numpy(self, x: Any) -> np.ndarray:
        return x.asnumpy()

    def wait(self, last: Any) -> None:
        self.nd.waitall()

    def threads(self) -> str:
        workers = os.environ.get("MXNET_CPU_WORKER_NTHREADS", "1")
        threads = os.environ.get("OMP_NUM_THREADS", os.cpu_count())
        return f"{workers} engine worker(s), {threads} OpenMP threads"

    def add_sync(self, calls: int, x: Any) -> Turn:
        def loop() -> Any:
            for _ in range(calls):
                y = x + 1
                y.wait_to_read()
            return y

        return self.timed(loop, calls)

    def issue_dot(self, calls: int, a: Any) -> Turn:
        return self.issue(calls, lambda: self.nd.dot(a, a))

    def issue_dots(self, calls: int, a: Any) -> Turn:
        return self.issue_many(calls, lambda: self.nd.dot(a, a))

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.dot(a, b), sync=True)

    def exp(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.exp(x))

    def broadcast(self, calls: int, x: Any, row: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.broadcast_add(x, row.reshape((1, -1))))

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T)

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.nd.concat(a, b, dim=1))

    def normal(self, calls: int, n: int) -> Turn:
        return self.repeat(calls, lambda: self.nd.random.normal(shape=(1000, n)))


sides = (MXNet,)
