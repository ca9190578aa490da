"""`npx`: what programs with `np` need beside NumPy's names: layers' functions, devices, switches.

>>> from d2lmini import np, npx
>>> npx.relu(np.array([-1, 2])), npx.softmax(np.zeros((1, 2)))
(array([0., 2.]), array([[0.5, 0.5]]))
>>> npx.set_np()
>>> npx.is_np_array()
True
>>> npx.reset_np()

Most functions are ops of `nd` under the names of MXNet's second interface, with the op's own
arguments. After `mxnet.npx`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import missing_attribute
from d2lmini.context import (
    Context,
    cpu,
    cpu_pinned,
    current_context,
    gpu,
    gpu_memory_info,
    num_gpus,
)
from d2lmini.ndarray import waitall
from d2lmini.npx import random
from d2lmini.npx.files import load, save
from d2lmini.npx.functions import FUNCTIONS
from d2lmini.util import (
    is_np_array,
    is_np_shape,
    np_array,
    np_shape,
    reset_np,
    set_np,
    use_np,
    use_np_array,
    use_np_shape,
)

__all__ = [
    "Context", "cpu", "cpu_pinned", "current_context", "gpu", "gpu_memory_info", "is_np_array",
    "is_np_shape", "load", "np_array", "np_shape", "num_gpus", "random", "reset_np", "save",
    "set_np", "use_np", "use_np_array", "use_np_shape", "waitall", *FUNCTIONS,
]  # fmt: skip

globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    raise missing_attribute("d2lmini.npx", name, __all__, f"; it has {', '.join(sorted(__all__))}")
