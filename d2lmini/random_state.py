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

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from d2lmini import forks
from d2lmini.base import MXNetError
from d2lmini.context import Context


class Key(NamedTuple):
    """Names the streams of one operation."""

    seed: int
    device: int
    number: int

    def generator(self, piece: int) -> np.random.Generator:
        """The stream of one piece of the operation's output."""
        if "random" not in vars(np):
            _import_random()
        sequence = np.random.SeedSequence((*self, piece))
        return np.random.Generator(np.random.SFC64(sequence))


def _import_random() -> None:
    """NumPy imports it when it is first asked for, which a fork must not interrupt."""
    with forks.importing:
        import numpy.random  # noqa: F401


class _State:
    def __init__(self) -> None:
        self.lock = forks.guard(threading.Lock())
        self.seeds: dict[Any, int] = {}
        self.numbers: dict[Any, int] = {}
        # Not by NumPy, whose random numbers take a while to import.
        self.default = int.from_bytes(os.urandom(8), "little") >> 1


_state = _State()


class _Here(threading.local):
    """Per thread: (key, part, how many were drawn) inside `part_of`, the key inside `given`; else
    None."""

    part: list[Any] | str | None = None
    key: Key | None = None


_here = _Here()


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
    if _here.key is not None:
        return _here.key
    device = 0 if ctx is None else ctx.device_typeid * 1000 + ctx.device_id
    part = _here.part
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
    """The seeds and how many keys were given, in numbers, texts and lists."""
    with _state.lock:
        tables = [
            [[None if ctx is None else [ctx.device_type, ctx.device_id], n] for ctx, n in t.items()]
            for t in (_state.seeds, _state.numbers)
        ]
        return {"default": _state.default, "seeds": tables[0], "numbers": tables[1]}


def load_state_dict(state: dict[str, Any]) -> None:
    """Go on from where `state_dict` was called."""
    seeds, numbers = (
        {None if ctx is None else Context(*ctx): n for ctx, n in state[name]}
        for name in ("seeds", "numbers")
    )
    with _state.lock:
        _state.default, _state.seeds, _state.numbers = state["default"], seeds, numbers


def numpy_state_dict() -> dict[str, Any]:
    """The state of NumPy's global generator, in numbers, texts, lists and dicts."""
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    inner = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state["state"].items()}
    return {**state, "state": inner}


def numpy_state_of(state: dict[str, Any]) -> dict[str, Any]:
    """What NumPy's `set_state` takes, of a `numpy_state_dict`."""
    inner = {
        k: np.array(v, np.uint32) if isinstance(v, list) else v for k, v in state["state"].items()
    }
    return {**state, "state": inner}


@contextmanager
def rewound() -> Iterator[None]:
    """A scope after which the numbers that were drawn in it come once more."""
    with _state.lock:
        numbers = dict(_state.numbers)
    try:
        yield
    finally:
        with _state.lock:
            _state.numbers = numbers


@contextmanager
def given(key: Key) -> Iterator[None]:
    """A scope whose operations, in this thread, draw with `key`: to do one again as it was."""
    before, _here.key = _here.key, key
    try:
        yield
    finally:
        _here.key = before


@contextmanager
def refusing(reason: str | None) -> Iterator[None]:
    """A scope in which drawing is an MXNetError with this reason; None: it is allowed again."""
    before, _here.part = _here.part, reason
    try:
        yield
    finally:
        _here.part = before


@contextmanager
def part_of(key: Key, number: int) -> Iterator[None]:
    """A scope whose operations, in this thread, draw from part `number` of `key`, whatever other
    threads draw meanwhile: how a DataLoader's batches stay the same with any number of workers."""
    before, _here.part = _here.part, [key, number, 0]
    try:
        yield
    finally:
        _here.part = before
