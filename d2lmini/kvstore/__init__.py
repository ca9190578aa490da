"""KVStore: where several devices bring their gradients together and fetch what comes of them.

>>> from d2lmini import cpu, kvstore, nd
>>> kv = kvstore.create("device")
>>> kv.init("w", nd.zeros(2))
>>> kv.push("w", [nd.ones(2, ctx=cpu(0)), nd.ones(2, ctx=cpu(1))])     # the sum
>>> out = nd.zeros(2)
>>> kv.pull("w", out=out)
>>> out.asnumpy().tolist()
[2.0, 2.0]

`local` is that of one process, `dist` that of several, `dist_async` that of several
which do not wait for one another (with `server`, `mpi`, how they talk, and `thin`, a slow link).
"""

from __future__ import annotations

from d2lmini.kvstore.base import KVStoreBase
from d2lmini.kvstore.by_name import create
from d2lmini.kvstore.compression import Compression
from d2lmini.kvstore.dist import DistKVStore
from d2lmini.kvstore.dist_async import AsyncKVStore
from d2lmini.kvstore.local import KVStore
from d2lmini.kvstore.thin import thin_link

__all__ = [
    "AsyncKVStore",
    "Compression",
    "DistKVStore",
    "KVStore",
    "KVStoreBase",
    "create",
    "thin_link",
]
