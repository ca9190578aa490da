"""d2lmini: MXNet 1.x's API with an asynchronous engine one can read, in pure Python on NumPy.

>>> from d2lmini import nd
>>> x = nd.ones((2, 3))
>>> y = nd.dot(x, x.T) + 1                # returns at once; a worker computes
>>> y                                     # printing waits
<BLANKLINE>
[[4. 4.]
 [4. 4.]]
<NDArray 2x2 @cpu(0)>

The contents, from the ground up:

context    where arrays live: cpu(), gpu(i)
engine     runs every operation in an order the program allows
storage    pooled memory, counted to the byte
ops        every operation, declared once
nd         NDArray and the functions on it
random     seeds and random arrays
util       the switches of MXNet's NumPy interface
d2l        what chapters and readers reuse: Benchmark, compare, get_mem
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from d2lmini import base, context, engine, instrument
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus

if TYPE_CHECKING:
    from d2lmini import d2l, ndarray, random, util
    from d2lmini import ndarray as nd
    from d2lmini.d2l import Benchmark, get_mem
    from d2lmini.device import storage

__version__ = "0.1.0"

__all__ = [
    "Benchmark", "Context", "MXNetError", "base", "context", "cpu", "cpu_pinned",
    "current_context", "d2l", "engine", "get_mem", "gpu", "instrument", "nd", "ndarray",
    "num_gpus", "random", "storage", "util",
]  # fmt: skip

_SWITCHES = ("is_np_array", "is_np_shape", "np_shape", "set_np_shape", "use_np_shape")

# Imported when first asked for: (module, attribute or None for the module itself).
_LAZY = {
    "nd": ("d2lmini.ndarray", None),
    "ndarray": ("d2lmini.ndarray", None),
    "random": ("d2lmini.random", None),
    "storage": ("d2lmini.device.storage", None),
    "d2l": ("d2lmini.d2l", None),
    "Benchmark": ("d2lmini.d2l", "Benchmark"),
    "get_mem": ("d2lmini.d2l", "get_mem"),
    "util": ("d2lmini.util", None),
    **{name: ("d2lmini.util", name) for name in _SWITCHES},
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"d2lmini has no {name!r}; it has {', '.join(__all__)}")
    module, attribute = _LAZY[name]
    value = importlib.import_module(module)
    value = value if attribute is None else getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
