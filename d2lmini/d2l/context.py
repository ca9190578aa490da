"""Where to compute: a GPU if there is one.

>>> from d2lmini import d2l
>>> d2l.try_gpu() in d2l.try_all_gpus()
True
"""

from __future__ import annotations

from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu, gpu, num_gpus


def try_gpu(i: int = 0) -> Context:
    """`gpu(i)` if an array can be made there, else `cpu()`."""
    try:
        nd.zeros((1,), ctx=gpu(i))
    except MXNetError:
        return cpu()
    return gpu(i)


def try_all_gpus() -> list[Context]:
    """All available GPUs; `[cpu()]` if there is none."""
    return [gpu(i) for i in range(num_gpus())] or [cpu()]
