"""The functions of `npx` that are ops of `nd`: one row each, name and op.

>>> from d2lmini.npx.functions import FUNCTIONS
>>> from d2lmini import np
>>> FUNCTIONS["one_hot"](np.array([1, 0]), 2)
array([[0., 1.],
       [1., 0.]])
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from d2lmini.ndarray import exchange
from d2lmini.np.arrays import FUNCTIONS as NUMPY
from d2lmini.np.binding import functions_of
from d2lmini.np.values import at_least_1d, check_array, drop_axes
from d2lmini.ops.core import Value, registry
from d2lmini.ops.signature import named, text_of

#: Functions with the name of their op; that of a layer has capitals for the underscores.
SAME_NAME = """
    activation batch_dot batch_norm broadcast_like cast convolution ctc_loss deconvolution dropout
    embedding erf erfinv fully_connected gamma gammaln gather_nd group_norm instance_norm layer_norm
    leaky_relu log_softmax one_hot pick pooling relu reshape_like rnn scatter_nd sequence_last
    sequence_mask sequence_reverse shape_array sigmoid slice slice_axis slice_like smooth_l1 softmax
    softmin softsign topk
""".split()

#: npx's name -> the op's, where they are not the same but for capitals and underscores.
RENAMED = {
    "arange_like": "_contrib_arange_like", "batch_flatten": "Flatten",
    "index_array": "_contrib_index_array", "index_copy": "_contrib_index_copy",
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
        if op.name in ("softmax", "log_softmax", "softmin") and args and not args[0].shape:
            return drop_axes(op(at_least_1d(args[0]), *args[1:], **kwargs))
        return op(*args, **kwargs)

    doc = f"`nd.{op.name}`: `{op.usage}`\n\n{text_of(op)}"
    return named(function, "d2lmini.npx", name, doc)


def reshape(a, newshape, reverse=False, order="C"):
    """`np.reshape` with codes: -1 fits the rest, -2 keeps this axis, -3 drops an axis of size 1,
    -4 keeps all that are left, -5 merges two axes, -6 splits one into the two sizes that follow."""
    shape = (newshape,) if isinstance(newshape, int) else tuple(newshape)
    sizes = list(check_array("x.reshape", a).shape)
    if reverse:
        sizes, shape = sizes[::-1], shape[::-1]
    result = _decoded(sizes, shape)
    return NUMPY["reshape"](a, result[::-1] if reverse else result, order)


def _decoded(sizes, shape):
    """Sizes without the codes -2 to -6; ValueError for a code that does not fit."""
    result, left, codes = [], list(sizes), iter(shape)
    for code in codes:
        if code >= -1:
            result.append(code)
            del left[:1]
        elif code == -2:
            result.append(left.pop(0))
        elif code == -3:
            if left.pop(0) != 1:
                axis = len(sizes) - len(left) - 1
                raise ValueError(f"npx.reshape: code -3 drops axis {axis}, which has not size 1")
        elif code == -4:
            result += left
            left.clear()
        elif code == -5:
            result.append(left.pop(0) * left.pop(0))
        elif code == -6:
            size, (first, second) = left.pop(0), islice(codes, 2)
            first = size // second if first == -1 else first
            result += [first, size // first if second == -1 else second]
        else:
            raise ValueError(f"npx.reshape: {code} is no code; codes are -1 to -6")
    return result


def nonzero(a):
    """The coordinates of the elements that are not zero, one row for each; waits."""
    return NUMPY["stack"](NUMPY["nonzero"](a), axis=1)


def masked_softmax(data, mask, axis=-1, temperature=1.0):
    """`softmax` of the elements where the mask is true; 0 elsewhere."""
    mask = NUMPY["broadcast_to"](mask, data.shape)
    hidden = NUMPY["where"](mask, data / temperature, -1e30)
    return NUMPY["where"](mask, registry["softmax"](hidden, axis=axis), 0.0)


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
