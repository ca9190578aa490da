"""Random numbers: each operation draws from its own stream.

A drawing operation takes a `Key` when it is pushed: the seed and the operation's number. Every
fixed piece of its output then draws from the stream of (seed, number, piece). So the numbers depend
neither on the order in which workers draw nor on the number of workers.

Each call of a random op takes one key, in the order of the program, whether its result is used or
not. A call whose attributes and mode say that it draws nothing takes none: Dropout in prediction or
with p = 0, RNN without dropout between layers. (The shape and the data do not matter: shuffling one
row takes a key.) A compiled call takes the keys of all calls that were traced, in the same order,
also of those that the compiler left out. So a program draws the same numbers eagerly, hybridized
and lazily. The nodes of a Symbol that a program composed or loaded draw in the order of the graph;
that has only nodes that its outputs need.

>>> from d2lmini.ops import random_state
>>> random_state.seed(1)
>>> a = random_state.next_key().generator(0).random()
>>> random_state.seed(1)
>>> a == random_state.next_key().generator(0).random()
True
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError, forks
from d2lmini.base.scopes import Undo, contextmanager, scope, swap, swapping
from d2lmini.context import Context


class Key(NamedTuple):
    """Names the streams of one operation."""

    seed: int
    device: int
    number: int

    def generator(self, piece: int) -> np.random.Generator:
        """The stream of one piece of the operation's output."""
        if "random" not in vars(np):
            # NumPy imports it at first use, which a fork must not interrupt.
            with forks.importing:
                import numpy.random  # noqa: F401
        sequence = np.random.SeedSequence((*self, piece))
        return np.random.Generator(np.random.SFC64(sequence))


class _State:
    def __init__(self) -> None:
        self.lock = forks.guard(threading.Lock())
        self.seeds: dict[Any, int] = {}
        self.numbers: dict[Any, int] = {}
        # Without numpy.random, whose import takes a while.
        self.default = int.from_bytes(os.urandom(8), "little") >> 1


_state = _State()


class _ThreadState(threading.local):
    """Per thread: (key, part, number of draws) inside `part_of`, the key inside `use_key`, the keys
    so far inside `noting`, those still to draw inside `repeating`; else None."""

    part: list[Any] | str | None = None
    key: Key | None = None
    noted: list[Key] | None = None
    again: Iterator[Key] | None = None


_thread_state = _ThreadState()


def seed(seed_state: Any, ctx: Context | str = "all") -> None:
    """Restart the streams from `seed_state`, for one context or for all. ValueError for a seed that
    is no whole number."""
    if not isinstance(seed_state, Integral):
        raise ValueError(f"seed_state must be int, got {seed_state!r}")
    number = int(seed_state)
    with _state.lock:
        if ctx == "all":
            _state.default = number
            _state.seeds.clear()
            _state.numbers.clear()
        else:
            _state.seeds[ctx] = number
            _state.numbers[ctx] = 0


def next_key(ctx: Context | None = None) -> Key:
    """The key of the next drawing operation on `ctx`."""
    if _thread_state.key is not None:
        return _thread_state.key
    device = 0 if ctx is None else ctx.device_typeid * 1000 + ctx.device_id
    if _thread_state.again is None:
        key = _new_key(ctx, device)
    else:
        again = next(_thread_state.again, None)
        if again is None or again.device != device:
            raise MXNetError(
                f"the function draws random numbers on {ctx or 'no device'} that it did not draw "
                "when it ran before; it must do the same in each run"
            )
        key = again
    if _thread_state.noted is not None:
        _thread_state.noted.append(key)
    return key


def _new_key(ctx: Context | None, device: int) -> Key:
    part = _thread_state.part
    if part is not None:
        if isinstance(part, str):
            raise MXNetError(part)
        key, number, drawn = part
        part[2] += 1
        return Key(key.seed, device, ((key.number + 1) << 64) + (number << 32) + drawn)
    with _state.lock:
        number = _state.numbers.get(ctx, 0)
        _state.numbers[ctx] = number + 1
        value = _state.seeds.get(ctx, _state.default)
    return Key(value % (1 << 63), device, number)


def state_dict() -> dict[str, Any]:
    """The seeds and the numbers of keys given out, as numbers, strings and lists."""
    with _state.lock:
        tables = [
            [[None if ctx is None else [ctx.device_type, ctx.device_id], n] for ctx, n in t.items()]
            for t in (_state.seeds, _state.numbers)
        ]
        return {"default": _state.default, "seeds": tables[0], "numbers": tables[1]}


def load_state_dict(state: dict[str, Any]) -> None:
    """Continue from the state that `state_dict` returned."""
    seeds, numbers = (
        {None if ctx is None else Context(*ctx): n for ctx, n in state[name]}
        for name in ("seeds", "numbers")
    )
    if not all(isinstance(n, int) for n in (state["default"], *seeds.values())):
        raise ValueError("a seed is no whole number")
    if not all(isinstance(n, int) and 0 <= n < 1 << 63 for n in numbers.values()):
        raise ValueError("a number of keys is not one from 0 to 2 ** 63")
    with _state.lock:
        _state.default, _state.seeds, _state.numbers = state["default"], seeds, numbers


def numpy_state_dict(state: Any) -> dict[str, Any]:
    """What NumPy's `get_state(legacy=False)` gives, as numbers, strings, lists and dicts."""
    inner = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state["state"].items()}
    return {**state, "state": inner}


def set_numpy_state(state: dict[str, Any]) -> None:
    """Continue from the state that `numpy_state_dict` returned. ValueError for a position outside
    of the key, where NumPy would read beyond its memory."""
    if not 0 <= state["state"].get("pos", 0) <= len(state["state"].get("key", ())):
        raise ValueError(f"the position {state['state']['pos']} is outside of the key")
    np.random.set_state(state)


@scope
def rewound(undo: Undo) -> None:
    """A scope that restores the streams at its end: later operations draw the same numbers."""
    with _state.lock:
        swap(undo, _state, "numbers", dict(_state.numbers))


#: A scope with a value in the thread's state: `_use(name, value)`.
_use = partial(swapping, _thread_state)


def use_key(key: Key) -> AbstractContextManager[None]:
    """A scope in which this thread's operations draw with `key`: to repeat an operation exactly."""
    return _use("key", key)


def refusing(reason: str | None) -> AbstractContextManager[None]:
    """A scope in which drawing raises an MXNetError with this reason; None: drawing is allowed."""
    return _use("part", reason)


def part_of(key: Key, number: int) -> AbstractContextManager[None]:
    """A scope in which this thread's operations draw from part `number` of `key`, independent of
    other threads: a DataLoader's batches stay the same for any number of workers."""
    return _use("part", [key, number, 0])


@contextmanager
def noting() -> Iterator[list[Key]]:
    """A scope that appends each key that this thread draws to the list it gives."""
    keys: list[Key] = []
    outer = _thread_state.noted
    with _use("noted", keys):
        yield keys
    if outer is not None:
        outer += keys


def repeating(keys: list[Key]) -> AbstractContextManager[None]:
    """A scope in which this thread draws these keys again, in their order. MXNetError at a draw of
    more keys, or on another device."""
    return _use("again", iter(keys))


@contextmanager
def drawing_once() -> Iterator[None]:
    """A scope for draws that no later run repeats, such as initial values: they are neither noted
    nor taken from the keys of `repeating`."""
    with _use("noted", None), _use("again", None):
        yield
