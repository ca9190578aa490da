"""CUDA's streams without a GPU: random legal orders, and an error for every data race.

>>> import numpy as np
>>> from d2lmini import streams
>>> def program():
...     a, b = streams.Stream(non_blocking=True), streams.Stream(non_blocking=True)
...     with a:
...         x = streams.asarray(np.arange(4.0))
...         y = x * x
...         done = a.record()                  # an event: after the work of `a` so far
...     b.wait_event(done)                     # without this line: OrderError
...     with b:
...         return (y + 1).get()
>>> print(streams.check(program))
no data race; the same result in 20 orders
>>> with streams.simulate(seed=1):
...     print(program())
[ 1.  2.  5. 10.]

The names and rules are those of `cupy` and `cupy.cuda`: what is issued on one stream runs in its
order, streams run beside each other, and the host goes on at once. What CUDA may run, the
simulation may run: a random number chooses. Each access to memory is checked by vector clocks when
it is issued, so an OrderError does not depend on luck; it names both operations, their lines, and
the wait that is missing. Values are computed by NumPy; times are not simulated.

Modules, from the ground up: `errors`, `order` (clocks, and memory that remembers its accesses),
`machine` (queues that run in a random order), `graphs`, `stream` (Device, Stream, Event),
`host_memory`, `memory` (pools), `arrays`, `pinned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from d2lmini.scopes import contextmanager
from d2lmini.streams.arrays import asarray, copyto, empty, fuse, ndarray, zeros
from d2lmini.streams.errors import CUDARuntimeError, DeadlockError, OrderError
from d2lmini.streams.host_memory import PinnedMemoryPool
from d2lmini.streams.machine import Machine, running
from d2lmini.streams.memory import MemoryPool
from d2lmini.streams.pinned import empty_pinned
from d2lmini.streams.stream import Device, Event, Stream, get_current_stream

__all__ = [
    "CUDARuntimeError", "DeadlockError", "Device", "Event", "OrderError", "Stream", "asarray",
    "check", "copyto", "empty", "empty_pinned", "fuse", "get_current_stream", "ndarray", "simulate",
    "zeros",
]  # fmt: skip


@contextmanager
def simulate(
    devices: int = 2, memory: int = 1 << 28, seed: int = 0, **options: Any
) -> Iterator[Machine]:
    """A scope with simulated GPUs, as if this computer had them.

    devices  how many
    memory   of each, in bytes
    seed     chooses the order in which work runs, among the legal orders
    options  `checks=False` checks no access, so that a data race shows in the values alone;
             `eagerness`, 0 to 1, says how likely work runs before the host waits for it

    All work that is left runs at the end. OrderError for a data race.
    """
    machine = Machine(devices, memory, seed, **options)
    machine.pool, machine.pinned_pool = MemoryPool(), PinnedMemoryPool()
    machine.allocator = machine.pool.malloc
    with running(machine):
        yield machine
        machine.finish()


def check(program: Callable[[], Any], orders: int = 20, **options: Any) -> str:
    """Run `program()` in several orders; return a sentence if it has no data race.

    options are those of `simulate`. OrderError for a data race, or if the result (numbers, arrays
    and tuples of these) depends on the order.
    """
    first: Any = None
    for seed in range(orders):
        with simulate(seed=seed, **options):
            result = program()
        if seed == 0:
            first = result
        elif not _same(first, result):
            raise OrderError(
                f"the result depends on the order: {first!r} in order 0, {result!r} in order {seed}"
            )
    return f"no data race; the same result in {orders} orders"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, ndarray):
        raise TypeError(f"expected numbers or NumPy arrays, got {a!r}: return x.get()")
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc")
