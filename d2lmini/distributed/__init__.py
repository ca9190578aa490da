"""Training with several processes: the add-on behind `kvstore="dist_sync"`.

dist        `DistKVStore`: sums over all processes, in buckets that overlap with computation
mpi         how the processes exchange arrays
throttle    messages take as long as on a slower network
launch      `python -m d2lmini launch -n 4 train.py`
"""

from __future__ import annotations

from d2lmini.distributed.dist import DistKVStore

__all__ = ["DistKVStore"]
