"""Training with several processes: the add-on behind `kvstore="dist_sync"`.

dist      `DistKVStore`: sums over all processes, in buckets that overlap with computation
mpi       how the processes exchange arrays
launch    `python -m d2lmini launch -n 4 train.py`
"""

from __future__ import annotations

from d2lmini.distributed.dist import DistKVStore

__all__ = ["DistKVStore", "create"]

_SYNC = ("dist", "dist_sync", "dist_sync_device", "dist_device_sync")


def create(kind: str) -> DistKVStore | None:
    """The KVStore of a name that begins with "dist"; None for an unknown name."""
    return DistKVStore(kind) if kind in _SYNC else None
