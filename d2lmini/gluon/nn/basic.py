"""Basic layers: Dense, Dropout, Embedding, Flatten, and functions as layers.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Dense(2, activation="relu")    # the first call sets the number of inputs
>>> net
Dense(None -> 2, Activation(relu))
>>> net.initialize()
>>> net(nd.ones((5, 3))).shape
(5, 2)
>>> net
Dense(3 -> 2, Activation(relu))

A layer consists of an op and its parameters. The constructor declares the parameters (0 in a shape:
size unknown), `infer_shape` completes their shapes from the first input, and `hybrid_forward` calls
the op. `F` is `nd` for arrays and `sym` while a graph is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.nn.activations import Activation
from d2lmini.ops.core import registry


class Affine(HybridBlock):
    """Base class of Dense and the convolutions: a weight, a bias or none, an activation or none."""

    weight: Any

    def _declare(
        self, shape: tuple[int, ...], outputs: int, weight_initializer: Any,
        bias_initializer: Any, use_bias: bool, activation: str | None, **how: Any,
    ) -> None:  # fmt: skip
        how["allow_deferred_init"] = True
        with self.name_scope():
            self.weight = self.params.get("weight", shape=shape, init=weight_initializer, **how)
            self.bias = None
            if use_bias:
                self.bias = self.params.get("bias", shape=(outputs,), init=bias_initializer, **how)
            self.act = None
            if activation is not None:
                self.act = Activation(activation, prefix=activation + "_")


class Dense(Affine):
    """y = activation(x weight^T + bias): `units` outputs, each from all inputs.

    x (N, ...) -> (N, units), with all axes but the first flattened to K; with flatten=False (...,
    K) -> (..., units). weight (units, K), bias (units,) unless use_bias=False. activation: a name
    accepted by `Activation`. in_units: K; 0 infers K at the first call.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._units = units
        self._in_units = in_units
        self._flatten = flatten
        self._declare(
            (units, in_units), units, weight_initializer, bias_initializer, use_bias, activation,
            dtype=dtype,
        )  # fmt: skip

    def infer_shape(self, x: Any) -> None:
        inner = prod(x.shape[1:]) if self._flatten else x.shape[-1]
        self.weight.shape = (self._units, inner)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        y = F.FullyConnected(
            x, weight, bias,
            num_hidden=self._units, no_bias=bias is None, flatten=self._flatten, name="fwd",
        )  # fmt: skip
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        units, inner = self.weight.shape
        return f"{type(self).__name__}({inner or None} -> {units}, {self.act or 'linear'})"


class Dropout(HybridBlock):
    """In training, set each element to 0 with probability `rate` and divide the others by 1 - rate;
    otherwise the identity. Elements along `axes` share one random draw. Shape kept."""

    def __init__(self, rate: float, axes: tuple[int, ...] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self._rate = rate
        self._axes = axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd")
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """A learnt vector for each of `input_dim` indices: x (I...) of indices -> (I..., output_dim).

    weight (input_dim, output_dim). Indices outside the range are clipped. The gradient is dense,
    even with sparse_grad=True (MXNet keeps only the rows that were used).
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs = {
            "input_dim": input_dim,
            "output_dim": output_dim,
            "dtype": dtype,
            "sparse_grad": sparse_grad,
        }
        with self.name_scope():
            self.weight = self.params.get(
                "weight",
                shape=(input_dim, output_dim),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
            )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        how = self._kwargs
        return f"{type(self).__name__}({how['input_dim']} -> {how['output_dim']}, {how['dtype']})"


class Flatten(HybridBlock):
    """Flatten all axes but the first: (N, ...) -> (N, K)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


class Lambda(Block):
    """A function of arrays as a layer: the name of a function in `nd`, or a callable."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            assert hasattr(nd, function), f"Function name {function} is not found in ndarray."
            self._func_impl: Callable[..., Any] = getattr(nd, function)
            self._func_name = function
        else:
            self._func_impl = _callable(function)
            self._func_name = getattr(function, "__name__", type(function).__name__)

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


class HybridLambda(HybridBlock):
    """A function as a hybridizable layer: the name of an op, or a callable whose first argument is
    F."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            assert function in registry or hasattr(nd, function), (
                f"Function name {function} is not found in symbol/ndarray."
            )
            self._func: Callable[..., Any] = lambda F, *args: getattr(F, function)(*args)
            self._func_name = function
        else:
            self._func = _callable(function)
            self._func_name = getattr(function, "__name__", type(function).__name__)

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


def _callable(function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise ValueError(
            f"Unrecognized function in lambda: {function} of type {type(function)}; expected the "
            "name of an op, or a callable"
        )
    return function
