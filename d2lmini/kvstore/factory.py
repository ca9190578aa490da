"""Make a KVStore from its name."""

from __future__ import annotations

from typing import Any

from d2lmini import addons
from d2lmini.base import MXNetError
from d2lmini.base.callsite import warn
from d2lmini.kvstore.base import KVStoreBase
from d2lmini.kvstore.local import DEVICE, LOCAL, KVStore


def create(name: str = "local") -> Any:
    """A KVStore: 'local' sums on the CPU, 'device' and 'nccl' on the devices (see `local`);
    'dist_sync' over all processes of a job (in the add-on `distributed`). Or the name of a
    registered class (`KVStoreBase.register`).

    Another name warns and gives a store that works as 'local', as in MXNet. MXNetError if something
    that the store needs is missing.
    """
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    kind = name.lower()
    if kind in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[kind]()
    if kind.startswith("dist"):
        store = addons.find("kvstore.dist")(kind)
        if store is not None:
            return store
    if kind.startswith("dist") or kind in ("horovod", "byteps", "p3"):
        raise MXNetError(
            f"KVStore {name!r} is unknown; 'dist_sync' trains with several processes, "
            "'local' and 'device' over the devices of one process"
        )
    if kind == "nccl" and not _has_nccl():
        raise MXNetError(
            "KVStore 'nccl' needs NVIDIA's library (pip install nvidia-nccl-cu12) and a GPU of "
            "CUDA; 'device' does the same without it"
        )
    if kind not in LOCAL + DEVICE:
        warn(f"KVStore type {name!r} is unknown; it works as 'local', as in MXNet")
    return KVStore(kind)


def _has_nccl() -> bool:
    cuda = addons.find("gpu", required=False)
    return cuda is not None and cuda.module.nccl() is not None
