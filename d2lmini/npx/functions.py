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

from d2lmini.np.protocol import FUNCTIONS as NUMPY
from d2lmini.np.shapes import reshape as np_reshape
from d2lmini.np.values import at_least_1d, check_array, drop_axes
from d2lmini.ops.core import Op, Value, registry
from d2lmini.ops.signature import named, text_of

#: npx's name -> the op's.
OPS = {
    "activation": "Activation", "arange_like": "_contrib_arange_like", "batch_dot": "batch_dot",
    "batch_flatten": "Flatten", "batch_norm": "BatchNorm", "cast": "Cast",
    "convolution": "Convolution", "ctc_loss": "CTCLoss", "deconvolution": "Deconvolution",
    "dropout": "Dropout", "embedding": "Embedding", "erf": "erf", "erfinv": "erfinv",
    "fully_connected": "FullyConnected", "gamma": "gamma", "gammaln": "gammaln",
    "gather_nd": "gather_nd", "group_norm": "GroupNorm", "instance_norm": "InstanceNorm",
    "layer_norm": "LayerNorm", "leaky_relu": "LeakyReLU", "log_softmax": "log_softmax",
    "one_hot": "one_hot", "pick": "pick", "pooling": "Pooling", "relu": "relu",
    "reshape_like": "reshape_like", "rnn": "RNN", "sequence_last": "SequenceLast",
    "sequence_mask": "SequenceMask", "sequence_reverse": "SequenceReverse",
    "shape_array": "shape_array", "sigmoid": "sigmoid", "slice": "slice",
    "slice_axis": "slice_axis",
    "slice_like": "slice_like", "smooth_l1": "smooth_l1", "softmax": "softmax",
    "softmin": "softmin", "softsign": "softsign", "stop_gradient": "BlockGrad", "topk": "topk",
    "index_copy": "_contrib_index_copy", "index_array": "_contrib_index_array",
    "scatter_nd": "scatter_nd", "broadcast_like": "broadcast_like",
}  # fmt: skip


def _function(name: str, op: Op) -> Callable[..., Any]:
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


def reshape(a: Any, newshape: Any, reverse: bool = False, order: str = "C") -> Any:
    """`np.reshape` with codes: -1 fits the rest, -2 keeps this axis, -3 drops an axis of size 1,
    -4 keeps all that are left, -5 merges two axes, -6 splits one into the two sizes that follow."""
    shape = (newshape,) if isinstance(newshape, int) else tuple(newshape)
    sizes = list(check_array("x.reshape", a).shape)
    if reverse:
        sizes, shape = sizes[::-1], shape[::-1]
    result = _decoded(sizes, shape)
    return np_reshape(a, result[::-1] if reverse else result, order)


def _decoded(sizes: list[int], shape: tuple[int, ...]) -> list[int]:
    """Sizes without the codes -2 to -6; ValueError for a code that does not fit."""
    result: list[int] = []
    axis = place = 0
    while place < len(shape):
        code = shape[place]
        place += 1
        if code >= -1:
            result.append(code)
            axis += 1
        elif code == -2:
            result.append(sizes[axis])
            axis += 1
        elif code == -3:
            if sizes[axis] != 1:
                raise ValueError(f"npx.reshape: code -3 drops axis {axis}, which has not size 1")
            axis += 1
        elif code == -4:
            result += sizes[axis:]
            axis = len(sizes)
        elif code == -5:
            result.append(sizes[axis] * sizes[axis + 1])
            axis += 2
        elif code == -6:
            first, second = shape[place : place + 2]
            place += 2
            first = sizes[axis] // second if first == -1 else first
            second = sizes[axis] // first if second == -1 else second
            result += [first, second]
            axis += 1
        else:
            raise ValueError(f"npx.reshape: {code} is no code; codes are -1 to -6")
    return result


def nonzero(a: Any) -> Any:
    """The coordinates of the elements that are not zero, one row for each; waits."""
    return NUMPY["stack"](NUMPY["nonzero"](a), axis=1)


def masked_softmax(data: Any, mask: Any, axis: int = -1, temperature: float = 1.0) -> Any:
    """`softmax` of the elements where the mask is true; 0 elsewhere."""
    mask = NUMPY["broadcast_to"](mask, data.shape)
    hidden = NUMPY["where"](mask, data / temperature, -1e30)
    return NUMPY["where"](mask, registry["softmax"](hidden, axis=axis), 0.0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _function(name, registry[op]) for name, op in OPS.items()},
    "reshape": reshape,
    "nonzero": nonzero,
    "masked_softmax": masked_softmax,
}
