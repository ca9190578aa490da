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

from d2lmini import context as _context
from d2lmini.base import missing_attribute
from d2lmini.base import util as _util
from d2lmini.ndarray import waitall
from d2lmini.npx import random
from d2lmini.npx.functions import FUNCTIONS

#: Devices and switches.
_SAME = {
    _context: "Context cpu cpu_pinned current_context gpu gpu_memory_info num_gpus",
    _util: """is_np_array is_np_shape np_array np_shape reset_np set_np use_np use_np_array
        use_np_shape""",
}
_OTHERS = {name: getattr(module, name) for module, names in _SAME.items() for name in names.split()}
__all__ = ["random", "waitall", *_OTHERS, *FUNCTIONS]

globals().update(_OTHERS, **FUNCTIONS)


def __getattr__(name: str) -> Any:
    raise missing_attribute("d2lmini.npx", name, __all__, f"; it has {', '.join(sorted(__all__))}")
