"""The KVStore of one process: sums over its devices, in the order in which they are given.

A key (int or str) names a value. `push` adds up one array per device; without an updater the sum
becomes the value, with one `updater(key, sum, value)` changes it. `pull` copies the value to arrays
on any devices. All of it goes through the engine: nothing waits here, and `pull` after `push` gets
what the push makes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from d2lmini import optimizer as opt
from d2lmini.base import MXNetError
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import registry

_KINDS = ("local", "device", "local_allreduce_cpu", "local_allreduce_device", "local_update_cpu")

Key = Any  # int or str


class KVStore:
    """Values by key, in one process; see this module."""

    def __init__(self, kind: str = "local"):
        self.type = kind
        self._store: dict[Key, NDArray] = {}
        self._key_type: type | None = None
        self._updater: Any = None
        self._compression: dict[str, Any] = {}

    rank = 0
    num_workers = 1

    def __repr__(self) -> str:
        return f"<KVStore {self.type}, {len(self._store)} keys>"

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Can it run the optimizer?"""
        return capability == "optimizer"

    # -- values ------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of each value. MXNetError for a key that is there already."""
        for k, values in self._pairs(key, value):
            if k in self._store:
                raise MXNetError(f"init: key {k!r} was initialized before; push changes its value")
            self._store[k] = values[0].copy()

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add up the arrays of each key; the sum becomes its value, or goes to the updater."""
        pairs = self._pairs(key, value)
        sums = [_sum(values, self._value(k)) for k, values in pairs]
        self._take_in([k for k, _ in pairs], sums)

    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy the value of each key into the array or arrays of `out`."""
        if out is None:
            raise MXNetError("pull: out= is required, the array or arrays to write to")
        for k, outs in self._pairs(key, out):
            value = self._value(k)
            for array in outs:
                value.copyto(array)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into the arrays of `value`."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def _take_in(self, keys: list[Key], sums: list[NDArray]) -> None:
        values = [self._store[k] for k in keys]
        if self._updater is None:
            for value, total in zip(values, sums, strict=True):
                total.copyto(value)
        elif isinstance(self._updater, opt.Updater):
            self._updater(keys, sums, values)
        else:
            for k, total, value in zip(keys, sums, values, strict=True):
                self._updater(k, total, value)

    def _value(self, key: Key) -> NDArray:
        try:
            return self._store[key]
        except KeyError:
            raise MXNetError(f"key {key!r} was not initialized: call init first") from None

    def _pairs(self, key: Any, value: Any) -> list[tuple[Key, list[NDArray]]]:
        """(key, its arrays) for one key or a list of them; a key may come several times."""
        if not isinstance(key, (list, tuple)):
            key, value = [key], [value]
        if len(key) != len(value):
            raise ValueError(f"{len(key)} keys and {len(value)} values; need as many")
        grouped: dict[Key, list[NDArray]] = {}
        for k, v in zip(key, value, strict=True):
            if not isinstance(k, (int, str)):
                raise TypeError(f"a key is an int or a str, got {type(k).__name__}")
            if self._key_type is None:
                self._key_type = type(k)
            if not isinstance(k, self._key_type):
                raise MXNetError(
                    f"int and str keys cannot be mixed: the first one was {self._key_type.__name__}"
                    f", now {k!r}"
                )
            grouped.setdefault(k, []).extend(v if isinstance(v, (list, tuple)) else [v])
        return list(grouped.items())

    # -- what happens to sums ----------------------------------------------------------------------

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Let pushed sums be gradients, by which this optimizer updates the values."""
        self._set_updater(opt.get_updater(optimizer))

    def _set_updater(self, updater: Callable[[Key, NDArray, NDArray], None]) -> None:
        """Call `updater(key, sum, value)` at every push; it runs on the pushing thread."""
        self._updater = updater

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Accepted and kept; in one process nothing is sent, so nothing is compressed."""
        self._compression = dict(compression_params)

    def save_optimizer_states(
        self, fname: str | os.PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Write the states of the optimizer (see `Updater.get_states`); waits."""
        assert self._updater is not None, "Cannot save states for distributed training"
        with open(fname, "wb") as file:
            file.write(self._updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Read what `save_optimizer_states` wrote."""
        assert self._updater is not None, "Cannot load states for distributed training"
        with open(fname, "rb") as file:
            self._updater.set_states(file.read())


def create(name: str = "local") -> KVStore:
    """A KVStore: 'local' and 'device' are the same here, for one process."""
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    if name.startswith("dist") or name in ("horovod", "byteps", "p3"):
        raise MXNetError(f"KVStore {name!r} is not built yet; 'local' and 'device' are")
    if name not in _KINDS:
        raise MXNetError(f"KVStore type {name!r} is unknown; choose 'local' or 'device'")
    return KVStore(name)


def _sum(values: list[NDArray], like: NDArray) -> NDArray:
    """Their sum, in their order, where `like` is; a single array there as it is."""
    if len(values) == 1:
        return values[0].as_in_context(like.context)
    ctx = like.context
    if not all(v.context.is_cpu for v in values):
        values = [v.as_in_context(ctx) for v in values]
    total = registry["add_n"](*values)
    return total if total.context == ctx else total.as_in_context(ctx)
