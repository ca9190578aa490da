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
from d2lmini.base import MXNetError
from d2lmini.base.callsite import warn
from d2lmini.kvstore.local import DEVICE, LOCAL, KVStore

__all__ = ["DistKVStore", "KVStore", "create"]


def create(name: str = "local") -> Any:
    """A KVStore: 'local' sums on the CPU, 'device' and 'nccl' on the devices (see `local`);
    'dist_sync' over all processes of a job (in the add-on `distributed`).

    Another name warns and gives a store that works as 'local', as in MXNet. MXNetError if something
    that the store needs is missing.
    """
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    kind = name.lower()
    if kind.startswith("dist"):
        store = addons.find("kvstore.dist")(kind)
        if store is not None:
            return store
    if kind.startswith("dist") or kind in ("horovod", "byteps", "p3"):
        raise MXNetError(
            f"KVStore {name!r} is unknown; 'dist_sync' trains with several processes, "
            "'local' and 'device' over the devices of one process"
        )
    if kind == "nccl":
        cuda = addons.find("gpu", required=False)
        if cuda is None or cuda.module.nccl() is None:
            raise MXNetError(
                "KVStore 'nccl' needs NVIDIA's library (pip install nvidia-nccl-cu12) and a GPU of "
                "CUDA; 'device' does the same without it"
            )
    if kind not in LOCAL + DEVICE:
        warn(f"KVStore type {name!r} is unknown; it works as 'local', as in MXNet")
    return KVStore(kind)


def __getattr__(name: str) -> Any:
    return addons.attribute_of(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *addons.names_of(__name__)})
