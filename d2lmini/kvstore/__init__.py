"""KVStore: where several devices bring their gradients together and fetch what comes of them.

>>> from d2lmini import cpu, kvstore, nd
>>> kv = kvstore.create("device")
>>> kv.init("w", nd.zeros(2))
>>> kv.push("w", [nd.ones(2, ctx=cpu(0)), nd.ones(2, ctx=cpu(1))])     # the sum
>>> out = nd.zeros(2)
>>> kv.pull("w", out=out)
>>> out.asnumpy().tolist()
[2.0, 2.0]
"""

from __future__ import annotations

from d2lmini.kvstore.base import KVStoreBase
from d2lmini.kvstore.compression import Compression
from d2lmini.kvstore.local import KVStore, create

__all__ = ["Compression", "KVStore", "KVStoreBase", "create"]
