"""Memory for intermediate results, kept by each thread from one use to the next.

Fresh memory comes from the system page by page, and on a block that fits the cache asking for it
costs more than what is computed there.

>>> from d2lmini.device.scratch import scratch
>>> a = scratch.array("sums", 3, "float32")
>>> a.shape, scratch.array("sums", 3, "float32").base is a.base
((3,), True)
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

#: Larger ones are not kept, unless their user says so.
MOST_BYTES = 1 << 21


class Scratch(threading.local):
    """The buffers of a thread, by name: two that are in use at once have two names."""

    def __init__(self) -> None:
        self.memory: dict[str, np.ndarray] = {}

    def array(self, name: str, n: int, dtype: Any, most: int = MOST_BYTES) -> np.ndarray:
        """Room for n elements, holding whatever it held before; kept if it takes no more than
        `most` bytes."""
        dtype = np.dtype(dtype)
        nbytes = n * dtype.itemsize
        memory = self.memory.get(name)
        if memory is None or memory.nbytes < nbytes:
            if nbytes > most:
                return np.empty(n, dtype)
            memory = self.memory[name] = np.empty(nbytes, np.uint8)
        return memory[:nbytes].view(dtype)


scratch = Scratch()
