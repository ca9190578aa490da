"""KVStore: sums the gradients of several devices and distributes the result.

>>> from d2lmini import cpu, kvstore, nd
>>> kv = kvstore.create("device")
>>> kv.init("w", nd.zeros(2))
>>> kv.push("w", [nd.ones(2, ctx=cpu(0)), nd.ones(2, ctx=cpu(1))])     # the sum
>>> out = nd.zeros(2)
>>> kv.pull("w", out=out)
>>> out.asnumpy().tolist()
[2.0, 2.0]

`local` is the KVStore of one process. Those of several processes are in the add-on `distributed`.
"""

from __future__ import annotations

from typing import Any

from d2lmini import addons
from d2lmini.kvstore.base import KVStoreBase
from d2lmini.kvstore.compression import Compression
from d2lmini.kvstore.factory import create
from d2lmini.kvstore.local import KVStore

__all__ = [
    "Compression",
    "DistKVStore",
    "KVStore",
    "KVStoreBase",
    "create",
    "thin_link",
]


def __getattr__(name: str) -> Any:
    return addons.attribute_of(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *addons.names_of(__name__)})
