"""The KVStore of one process: sums over its devices, in the order of the list.

A key (int or str) names a value. `push` sums one array per device; the sum becomes the value or,
with an updater, `updater(key, sum, value)` changes the value. `pull` copies the value to arrays on
any devices. Everything goes through the engine: nothing waits here, and a `pull` after a `push`
gets the new value.

    local    values lie and are summed on the CPU
    device   from its first push on, a value lies on one of the devices that push it: on the one
             that holds the fewest bytes so far, so that all links and devices share the work
    nccl     the same where NVIDIA's library is installed, which sums for 'device' too (`allreduce`)

A gradient is sent as soon as backward has written it, because the copy depends on nothing else;
meanwhile the device goes on with backward. A float sum depends on the order of its terms: the
order is that of the list, whatever arrives first, so two runs agree to the bit.

>>> from d2lmini import cpu, kvstore, nd
>>> kv = kvstore.create("device")
>>> kv.init("w", nd.zeros(2))
>>> out = nd.zeros(2)
>>> kv.pushpull("w", [nd.full(2, 0.25, ctx=cpu(i)) for i in range(2)], out)
>>> out.asnumpy().tolist()
[0.5, 0.5]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini import optimizer as opt
from d2lmini.base import LeftOut, MXNetError
from d2lmini.context import Context, cpu
from d2lmini.device import files
from d2lmini.engine.scheduler import thread_state
from d2lmini.kvstore.allreduce import Sum, all_reduce, buckets, find_summer, takes
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import invoke, registry

#: Names of the stores that sum on the CPU; see `create`.
LOCAL = ("local", "local_allreduce_cpu", "local_update_cpu")
DEVICE = ("device", "local_allreduce_device", "nccl")

_ADD = registry["add_n"]

Key = Any  # int or str
Pairs = list[tuple[Key, list[NDArray]]]


class KVStore:
    """Values by key, in one process; see this module.

    Keys may be lists, and the arrays of each key one or a list. With several keys in one call the
    first key has `priority`, each next key one less.
    """

    #: True if it sums over several processes (then `broadcast` takes lists of keys).
    spans_processes = False
    rank = 0
    num_workers = 1

    def __init__(self, kind: str = "local"):
        self.type = kind
        self._store: dict[Key, NDArray] = {}
        self._homes: dict[Key, Context] = {}  # the device of each value of 'device'
        self._held: dict[Context, int] = {}  # bytes of these values on each device
        self._key_type: type | None = None
        self._updater: Any = None

    def __repr__(self) -> str:
        return f"<KVStore {self.type}, {len(self._store)} keys>"

    def barrier(self) -> None:
        """Wait for all processes: returns at once, since there is one. To wait for the devices, use
        `waitall`."""

    _barrier = barrier

    # -- values ------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of each value. MXNetError for a key that exists already."""
        for k, values in self._pairs("init", key, value):
            if k in self._store:
                raise MXNetError(f"init: key {k!r} was initialized before; push changes its value")
            if len(values) != 1:
                raise MXNetError(f"init: key {k!r} has {len(values)} values; need one")
            x = values[0]
            self._store[k] = x.copy() if self._spreads or x.context.is_cpu else x.copyto(cpu())

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum the arrays of each key; the sum becomes its value, or goes to the updater."""
        sums = []
        with engine.prioritized(priority):
            for k, values in self._pairs("push", key, value):
                value = self._at_home(k, values)
                if self._updater is None:
                    _add(_on(value._ctx, values), value)
                else:
                    sums.append((k, total_of(_on(value._ctx, values)), value))
                thread_state.priority -= 1  # the scope restores it
        if sums:
            with engine.prioritized(priority):
                self._update(sums)

    def pull(
        self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy the value of each key into the array or arrays of `out`. MXNetError for a key that
        was not initialized, a different shape, or no `out`."""
        if out is None:
            raise MXNetError("pull: out= is required, the array or arrays to write to")
        with engine.prioritized(priority):
            for k, outs in self._pairs("pull", key, out):
                for array in outs:
                    self._store[k].copyto(array)
                thread_state.priority -= 1  # the scope restores it

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into the arrays of `value`; over CUDA devices as one
        allreduce by NCCL if it is installed."""
        out = value if out is None else out
        self._pairs("pull", key, out)  # wrong ones are refused before the push
        if self._spreads and self._updater is None:
            key, value, out = self._reduce_by_library(key, value, out, priority)
        self.push(key, value, priority)
        self.pull(key, out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    row_sparse_pull = LeftOut()
    set_gradient_compression = LeftOut()

    # -- sums --------------------------------------------------------------------------------------

    def _reduce_by_library(
        self, key: Any, value: Any, out: Any, priority: int
    ) -> tuple[Any, Any, Any]:
        """Run the sums that a library computes; returns the other keys, values and outs."""
        pairs, outs = self._pairs("push", key, value), dict(self._pairs("pull", key, out))
        left = []
        over: dict[tuple[Context, ...], list[tuple[int, Key, Sum]]] = {}  # nth, key, sum
        for nth, (k, values) in enumerate(pairs):
            if takes(values, outs[k]):
                some = over.setdefault(tuple([x.context for x in values]), [])
                some.append((nth, k, Sum(values, outs[k])))
            else:
                left.append((k, values))
        for some in over.values():
            for bucket in buckets([one_sum for *_, one_sum in some]):
                with engine.prioritized(priority - some[bucket[0]][0]):
                    all_reduce([some[i][2] for i in bucket])
                    for _, k, one_sum in [some[i] for i in bucket]:
                        home = self._at_home(k, list(one_sum.sources))
                        next(y for y in one_sum.targets if y.context == home.context).copyto(home)
        return [k for k, _ in left], [v for _, v in left], [outs[k] for k, _ in left]

    @property
    def _spreads(self) -> bool:
        """Do the values lie on devices ('device', 'nccl'), not on the CPU?"""
        return self.type in DEVICE

    def has_sums(self, contexts: list[Context]) -> bool:
        """Would a library (NCCL) sum over these devices? Then each device should update its own
        weights, because the sum is already there, and nothing travels back."""
        return self._spreads and find_summer(contexts, [np.dtype(np.float32)]) is not None

    def _at_home(self, key: Key, values: list[NDArray]) -> NDArray:
        """The value of `key`, on the device where its sums are computed."""
        value = self._store[key]
        if key not in self._homes and self._spreads:
            places = list(dict.fromkeys(_place(x.context) for x in values))
            home = min(places, key=lambda ctx: self._held.get(ctx, 0))
            self._homes[key] = home
            self._held[home] = self._held.get(home, 0) + value._spec.nbytes
            if _place(value.context) != home:
                value = self._store[key] = value.copyto(home)
        return value

    def _update(self, sums: list[tuple[Key, NDArray, NDArray]]) -> None:
        if not isinstance(self._updater, opt.Updater):
            for update in sums:
                self._updater(*update)
            return
        # One task for all values of a device, if the optimizer takes lists.
        by_place: dict[Context, list[tuple[Key, NDArray, NDArray]]] = {}
        for update in sums:
            by_place.setdefault(_place(update[2]._ctx), []).append(update)
        for some in by_place.values():
            self._updater(*map(list, zip(*some)))

    def _replace(self, key: Key, value: NDArray) -> None:
        """Replace the value of a key: the Trainer does this when weights were set."""
        value.copyto(self._store[key])

    # -- checks ------------------------------------------------------------------------------------

    def _pairs(self, call: str, key: Any, value: Any) -> Pairs:
        """(key, its arrays) for one key or a list of keys; a key may occur several times. What is
        pushed or pulled has the shape of its key, which exists; otherwise MXNetError."""
        if not isinstance(key, (list, tuple)):
            key, value = [key], [value]
        elif not isinstance(value, (list, tuple)):
            raise TypeError(f"{call}: {len(key)} keys need a list of as many values")
        if len(key) != len(value):
            raise ValueError(f"{call}: {len(key)} keys and {len(value)} values; need as many")
        grouped: dict[Key, list[NDArray]] = {}
        for k, v in zip(key, value):
            if not isinstance(k, (int, str)):
                raise TypeError(f"{call}: a key is an int or a str, got {type(k).__name__}")
            if self._key_type is None:
                self._key_type = type(k)
            if not isinstance(k, self._key_type):
                raise MXNetError(
                    f"{call}: int and str keys cannot be mixed: the first one was "
                    f"{self._key_type.__name__}, now {k!r}"
                )
            arrays = list(v) if isinstance(v, (list, tuple)) else [v]
            if not arrays:
                raise ValueError(f"{call}: key {k!r} has an empty list of arrays")
            for x in arrays:
                if not isinstance(x, NDArray):
                    raise TypeError(f"{call}: key {k!r} needs NDArrays, got {type(x).__name__}")
            grouped.setdefault(k, []).extend(arrays)
        if call in ("push", "pull"):
            for k, arrays in grouped.items():
                if k not in self._store:
                    raise MXNetError(f"{call}: key {k!r} was not initialized: call init first")
                shape = self._store[k]._spec.shape
                for x in arrays:
                    if x._spec.shape != shape:
                        raise MXNetError(f"{call}: key {k!r} has shape {shape}, an array {x.shape}")
        return list(grouped.items())

    # -- updates -----------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: opt.Optimizer) -> None:
        """Use pushed sums as gradients, with which this optimizer updates the values."""
        if not isinstance(optimizer, opt.Optimizer):
            raise TypeError(
                f"set_optimizer: expected an Optimizer, got {type(optimizer).__name__}; make one "
                "with optimizer.create(name, ...)"
            )
        self.set_updater(opt.get_updater(optimizer))

    def set_updater(self, updater: Callable[[Key, NDArray, NDArray], None]) -> None:
        """Call `updater(key, sum, value)` at every push; it runs on the pushing thread."""
        self._updater = updater

    _set_updater = set_updater

    def save_optimizer_states(
        self, fname: str | os.PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Write the states of the optimizer (see `Updater.get_states`); waits."""
        assert self._updater is not None, "Cannot save states for distributed training"
        files.write(fname, self._updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Read what `save_optimizer_states` wrote: data only, where MXNet unpickles."""
        assert self._updater is not None, "Cannot load states for distributed training"
        with open(fname, "rb") as file:
            self._updater.set_states(file.read(), fname)


def _on(ctx: Context, values: list[NDArray]) -> list[NDArray]:
    """The arrays on `ctx`, without a copy between CPU contexts, which share their memory."""
    return [x if x._ctx.is_cpu and ctx.is_cpu else x.as_in_context(ctx) for x in values]


def _place(ctx: Context) -> Context:
    """One place for all contexts that share memory: those of the CPU."""
    return cpu() if ctx.is_cpu else ctx


def total_of(parts: list[NDArray]) -> NDArray:
    """The sum of `parts`, from first to last; a single array as it is."""
    return parts[0] if len(parts) == 1 else invoke(_ADD, tuple(parts), _ADD.defaults)


def _add(parts: list[NDArray], value: NDArray) -> None:
    """Write the sum of `parts`, from first to last, into `value`."""
    if len(parts) > 1 and parts[0].dtype == value.dtype:
        invoke(_ADD, tuple(parts), _ADD.defaults, value)
    else:
        total_of(parts).copyto(value)
