"""Where random numbers come from: a stream of its own for every operation.

A drawing operation takes a `Key` when it is pushed: the seed and the operation's number. Every
fixed piece of its output then draws from the stream of (seed, number, piece). So the numbers do not
depend on which worker draws when, or on how many there are.

>>> from d2lmini import random_state
>>> random_state.seed(1)
>>> a = random_state.next_key().generator(0).random()
>>> random_state.seed(1)
>>> a == random_state.next_key().generator(0).random()
True
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from d2lmini.context import Context


class Key(NamedTuple):
    """Names the streams of one operation."""

    seed: int
    device: int
    number: int

    def generator(self, piece: int) -> np.random.Generator:
        """The stream of one piece of the operation's output."""
        sequence = np.random.SeedSequence((*self, piece))
        return np.random.Generator(np.random.SFC64(sequence))


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seeds: dict[Any, int] = {}
        self.numbers: dict[Any, int] = {}
        self.default = int(np.random.SeedSequence().entropy) % (1 << 63)  # type: ignore[arg-type]


_state = _State()


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Start the streams again from `seed_state`, of one context or of all."""
    with _state.lock:
        if ctx == "all":
            _state.default = int(seed_state)
            _state.seeds.clear()
            _state.numbers.clear()
        else:
            _state.seeds[ctx] = int(seed_state)
            _state.numbers[ctx] = 0


def next_key(ctx: Context | None = None) -> Key:
    """The key of the next drawing operation on `ctx`."""
    with _state.lock:
        number = _state.numbers.get(ctx, 0)
        _state.numbers[ctx] = number + 1
        value = _state.seeds.get(ctx, _state.default)
    device = 0 if ctx is None else ctx.device_typeid * 1000 + ctx.device_id
    return Key(value % (1 << 63), device, number)
