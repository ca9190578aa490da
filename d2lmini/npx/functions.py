"""The functions of `npx` that are ops of `nd`: one row each, name and op.

>>> from d2lmini.npx.functions import FUNCTIONS
>>> from d2lmini import np
>>> FUNCTIONS["one_hot"](np.array([1, 0]), 2)
array([[0., 1.],
       [1., 0.]])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.ndarray import exchange
from d2lmini.np.binding import functions_of
from d2lmini.np.values import at_least_1d, check_array, drop_axes
from d2lmini.ops.core import Value, registry
from d2lmini.ops.signature import named, text_of

#: Functions with the name of their op; that of a layer has capitals for the underscores.
SAME_NAME = """
    activation batch_dot batch_norm convolution deconvolution dropout embedding erf fully_connected
    layer_norm leaky_relu log_softmax one_hot pick pooling relu reshape_like rnn sequence_mask
    sigmoid slice slice_axis smooth_l1 softmax topk
""".split()

#: npx's name -> the op's, where they are not the same but for capitals and underscores.
RENAMED = {
    "arange_like": "_contrib_arange_like", "batch_flatten": "Flatten",
    "stop_gradient": "BlockGrad",
}  # fmt: skip

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
