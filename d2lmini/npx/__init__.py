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

>>> npx.one_hot(np.array([1, 0]), 2)
array([[0., 1.],
       [1., 0.]])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini import context as _context
from d2lmini.base import missing_attribute
from d2lmini.base import util as _util
from d2lmini.ndarray import exchange, waitall
from d2lmini.np.values import at_least_1d, check_array, drop_axes, functions_of
from d2lmini.npx import random
from d2lmini.ops.core import Value, registry
from d2lmini.ops.signature import named, text_of

#: Functions with the name of their op; that of a layer has capitals for the underscores.
SAME_NAME = """
    activation batch_dot batch_norm convolution deconvolution dropout embedding erf fully_connected
    layer_norm leaky_relu log_softmax one_hot pick pooling relu reshape_like rnn sequence_mask
    sigmoid slice slice_axis smooth_l1 softmax topk
""".split()

#: npx's name -> the op's, where they are not the same but for capitals and underscores.
RENAMED = {"batch_flatten": "Flatten", "stop_gradient": "BlockGrad"}

_LAYERS = {name.lower(): op for name, op in registry.items() if name[0].isupper()}


def _function(name: str) -> Callable[..., Any]:
    """The op as a function of np's arrays."""
    op_name = RENAMED.get(name, name)
    op = registry[op_name] if op_name in registry else _LAYERS[name.replace("_", "")]

    def function(*args: Any, **kwargs: Any) -> Any:
        for x in args:
            if isinstance(x, Value):
                check_array(f"x.{name}", x)
        kwargs.pop("name", None)
        if op.name in ("softmax", "log_softmax") and args and not args[0].shape:
            return drop_axes(op(at_least_1d(args[0]), *args[1:], **kwargs))
        return op(*args, **kwargs)

    doc = f"`nd.{op.name}`: `{op.usage}`\n\n{text_of(op)}"
    return named(function, "d2lmini.npx", name, doc)


def save(file, arr):
    """Write an array, a list or a dict of arrays."""
    exchange.save(file, arr)


def load(file):
    """The dict or list that `save` wrote; an array comes back as a list of one."""
    found = exchange.load(file)
    if isinstance(found, dict):
        return {name: x.as_np_ndarray() for name, x in found.items()}
    return [x.as_np_ndarray() for x in found]


FUNCTIONS = {name: _function(name) for name in (*SAME_NAME, *RENAMED)}
FUNCTIONS |= functions_of(globals(), "d2lmini.npx")

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
