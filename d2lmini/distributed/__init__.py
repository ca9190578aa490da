"""Training with several processes: the add-on behind `kvstore="dist_sync"`.

dist      `DistKVStore`: sums over all processes, in buckets that overlap with computation
mpi       how the processes exchange arrays
throttle  `thin_link`: messages take as long as on a slower network
launch    `python -m d2lmini launch -n 4 train.py`
"""

from __future__ import annotations

from d2lmini.distributed.dist import DistKVStore
from d2lmini.distributed.throttle import thin_link

__all__ = ["DistKVStore", "create", "thin_link"]

_SYNC = ("dist", "dist_sync", "dist_sync_device", "dist_device_sync")


def create(kind: str) -> DistKVStore | None:
    """The KVStore of a name that begins with "dist"; None for an unknown name."""
    return DistKVStore(kind) if kind in _SYNC else None
