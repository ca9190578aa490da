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


def nonzero(a: Any) -> Any:
    """The coordinates of the elements that are not zero, one row for each; waits."""
    return NUMPY["stack"](NUMPY["nonzero"](a), axis=1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _function(name, registry[op]) for name, op in OPS.items()},
    "nonzero": nonzero,
}
