"""The interface that a Trainer needs of a KVStore, so that programs can define their own.

>>> from d2lmini import cpu, gluon, kvstore, nd
>>> @kvstore.KVStoreBase.register
... class Telling(kvstore.KVStoreBase):
...     def broadcast(self, key, value, out, priority=0):
...         for x in out:
...             x[:] = value
...     def pushpull(self, key, value, out=None, priority=0):
...         print("sum of key", key)
...         total = nd.add_n(*value)
...         for x in value if out is None else out:
...             x[:] = total
>>> weight = gluon.Parameter("w", shape=(2,), init="ones")
>>> weight.initialize(ctx=[cpu(0), cpu(1)])
>>> trainer = gluon.Trainer([weight], "sgd", kvstore="telling")
>>> trainer.step(1, ignore_stale_grad=True)
sum of key 0

After `mxnet.kvstore.KVStoreBase`.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar


class KVStoreBase:
    """A store of values by key. A subclass defines `broadcast` and `pushpull`; if it runs the
    optimizer, also `is_capable`, `set_optimizer` and both `..._optimizer_states`."""

    #: A capability for `is_capable`: the store runs the optimizer.
    OPTIMIZER = "optimizer"
    #: Classes by their names in lower case, for `create`.
    kv_registry: ClassVar[dict[str, type]] = {}

    #: True if it sums over several processes (then `broadcast` takes lists of keys).
    spans_processes = False
    rank = 0
    num_workers = 1
    #: Its name.
    type: Any = "custom"

    @staticmethod
    def register(klass: Any) -> Any:
        """A class decorator: `create` finds the class by its name from now on, in any case."""
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def is_capable(capability: str) -> bool:
        """True if the store has `capability` (`OPTIMIZER`)."""
        return False

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Make `value` the value of `key`, and copy it to the arrays of `out`, which may include
        `value`."""
        raise self._lacks("broadcast")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Write the sum of the arrays of `value` into those of `out`, or of `value`. A store that
        runs the optimizer takes the sum as a gradient and copies the new value to `out`."""
        raise self._lacks("pushpull")

    def set_optimizer(self, optimizer: Any) -> None:
        """Run this optimizer in `pushpull`."""
        raise self._lacks("set_optimizer")

    def save_optimizer_states(
        self, fname: str | os.PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Write the states of the optimizer to a file."""
        raise self._lacks("save_optimizer_states")

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Read them again."""
        raise self._lacks("load_optimizer_states")

    def _lacks(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{name}: {type(self).__name__} does not define it")
