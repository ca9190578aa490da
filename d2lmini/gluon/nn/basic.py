"""Basic layers: containers, activations, Dense, Dropout, Embedding, and functions as layers.

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

A layer consists of an op and its parameters. The class declares the constructor's arguments, which
become attributes (`Layer`); `_build` makes the parameters (0 in a shape: size unknown, until the
first call), and `hybrid_forward` calls the op. `F` is `nd` for arrays and `sym` while a graph is
traced.

An activation is a function of single elements and keeps the shape; only `PReLU` has a parameter.
`nd.Activation` and `nd.LeakyReLU` document the formulas.

>>> nn.LeakyReLU(0.5)(nd.array([-2, 0, 3]))
<BLANKLINE>
[-1.  0.  3.]
<NDArray 3 @cpu(0)>
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from d2lmini import initializer
from d2lmini import ndarray as nd
from d2lmini.base import callsite
from d2lmini.base.families import REQUIRED
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock, Layer

# -- containers ------------------------------------------------------------------------------------


class Row(Block):
    """What containers share, also those of cells: `add`, indexing, length."""

    def add(self, *blocks: Block) -> None:
        """Append Blocks."""
        for block in blocks:
            self.register_child(block)

    def __getitem__(self, key: Any) -> Any:
        """The layer at a position; for a slice, a container of its layers with this prefix."""
        layers = list(self._children.values())[key]
        if not isinstance(layers, list):
            return layers
        part = type(self)(prefix=self._prefix)
        part.add(*layers)
        return part

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._children.values())

    def _repr_children(self) -> dict[str, Block]:
        return self._children


class Sequential(Row):
    """Blocks called one after another, each on the output of the one before.

    >>> net = Sequential()
    >>> net.add(Dense(4, activation="relu", in_units=3), Dense(2))
    >>> net
    Sequential(
      (0): Dense(3 -> 4, Activation(relu))
      (1): Dense(None -> 2, linear)
    )
    """

    def forward(self, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the layers; warns to use HybridSequential if all are HybridBlocks."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            callsite.warn(
                f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. Consider "
                "using HybridSequential for the best performance."
            )
        super().hybridize(active, **kwargs)


class HybridSequential(Row, HybridBlock):
    """HybridBlocks called one after another, as `Sequential`; hybridized as one graph."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x


# -- activations -----------------------------------------------------------------------------------


class Activation(Layer):
    """'relu', 'sigmoid', 'tanh', 'softrelu' or 'softsign'; the layer is named after it: relu0."""

    activation: str = REQUIRED

    def _alias(self) -> str:
        return self.activation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self.activation, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.activation})"


class LeakyReLU(Layer):
    """x for positive x, alpha x otherwise."""

    alpha: float = REQUIRED

    def _build(self) -> None:
        assert self.alpha >= 0, "Slope coefficient for LeakyReLU must be no less than 0."

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self.alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.alpha})"


class PReLU(Layer):
    """LeakyReLU with a learnt slope: one slope, or with in_channels one per channel (axis 1).

    alpha (in_channels,). K. He et al., "Delving Deep into Rectifiers" (2015).
    """

    alpha_initializer: Any = initializer.Constant(0.25)
    in_channels: int = 1

    def _build(self) -> None:
        how = {"shape": (self.in_channels,), "init": self.alpha_initializer}
        self.alpha = self.params.get("alpha", **how)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, alpha, act_type="prelu", name="fwd")


class ELU(Layer):
    """x for positive x, alpha (e^x - 1) otherwise. D.-A. Clevert et al. (2015)."""

    alpha: float = 1.0

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self.alpha)


class SELU(HybridBlock):
    """ELU, scaled to preserve mean 0 and variance 1. G. Klambauer et al. (2017)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x P(Z < x) for a standard normal Z. D. Hendrycks and K. Gimpel (2016)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(Layer):
    """x sigmoid(beta x). P. Ramachandran et al., "Searching for Activation Functions" (2017)."""

    beta: float = 1.0

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(x if self.beta == 1 else self.beta * x, name="fwd")


# -- layers with weights, and without --------------------------------------------------------------


class Affine(Layer):
    """Base class of Dense and the convolutions: a weight, a bias or none, an activation or none."""

    activation: str | None
    use_bias: bool
    weight_initializer: Any
    bias_initializer: Any
    dtype: Any

    weight: Any

    def _build_affine(self, shape: tuple[int, ...], outputs: int) -> None:
        how = {"allow_deferred_init": True, "dtype": self.dtype}
        self.weight = self.params.get("weight", shape=shape, init=self.weight_initializer, **how)
        self.bias = None
        if self.use_bias:
            self.bias = self.params.get("bias", shape=(outputs,), init=self.bias_initializer, **how)
        self.act = None
        if self.activation is not None:
            self.act = Activation(self.activation, prefix=self.activation + "_")


class Dense(Affine):
    """y = activation(x weight^T + bias): `units` outputs, each from all inputs.

    x (N, ...) -> (N, units), with all axes but the first flattened to K; with flatten=False (...,
    K) -> (..., units). weight (units, K), bias (units,) unless use_bias=False. activation: a name
    accepted by `Activation`. in_units: K; 0 infers K at the first call.
    """

    units: int = REQUIRED
    activation: str | None = None
    use_bias: bool = True
    flatten: bool = True
    dtype: Any = "float32"
    weight_initializer: Any = None
    bias_initializer: Any = "zeros"
    in_units: int = 0

    def _build(self) -> None:
        self._build_affine((self.units, self.in_units), self.units)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        y = F.FullyConnected(
            x, weight, bias,
            num_hidden=self.units, no_bias=bias is None, flatten=self.flatten, name="fwd",
        )  # fmt: skip
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        units, inner = self.weight.shape
        return f"{type(self).__name__}({inner or None} -> {units}, {self.act or 'linear'})"


class Dropout(Layer):
    """In training, set each element to 0 with probability `rate` and divide the others by 1 - rate;
    otherwise the identity. Elements along `axes` share one random draw. Shape kept."""

    rate: float = REQUIRED
    axes: tuple[int, ...] = ()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self.rate > 0:
            return F.Dropout(x, p=self.rate, axes=self.axes, name="fwd")
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self.rate}, axes={self.axes})"


class Embedding(Layer):
    """A learnt vector for each of `input_dim` indices: x (I...) of indices -> (I..., output_dim).

    weight (input_dim, output_dim). Indices outside the range are clipped. The gradient is dense,
    even with sparse_grad=True (MXNet keeps only the rows that were used).
    """

    input_dim: int = REQUIRED
    output_dim: int = REQUIRED
    dtype: Any = "float32"
    weight_initializer: Any = None
    sparse_grad: bool = False

    def _build(self) -> None:
        how = {"init": self.weight_initializer, "dtype": self.dtype, "allow_deferred_init": True}
        self.weight = self.params.get("weight", shape=(self.input_dim, self.output_dim), **how)

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        how = {n: getattr(self, n) for n in ("input_dim", "output_dim", "dtype", "sparse_grad")}
        return F.Embedding(x, weight, name="fwd", **how)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_dim} -> {self.output_dim}, {self.dtype})"


class Flatten(HybridBlock):
    """Flatten all axes but the first: (N, ...) -> (N, K)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


class ReflectionPad2D(Layer):
    """Images (N, C, H, W) padded by reflection at their edges.

    padding: the padding of every side, less than H and W; or eight numbers, (before, after) for
    each of the four axes, the first four 0.
    """

    padding: int | tuple[int, ...] = 0

    def _build(self) -> None:
        if isinstance(self.padding, int):
            self.padding = (0,) * 4 + (self.padding,) * 4
        assert len(self.padding) == 8, f"padding must be a number or eight, got {self.padding!r}"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self.padding)


class Lambda(Block):
    """A function of arrays as a layer: the name of a function in `nd`, or a callable."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        self._func_name = _name_of(function)
        self._func_impl: Any = getattr(nd, function) if isinstance(function, str) else function

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


class HybridLambda(HybridBlock):
    """A function as a hybridizable layer: the name of an op, or a callable whose first argument is
    F."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        name = self._func_name = _name_of(function)
        self._func = function
        if isinstance(function, str):
            self._func = lambda F, *args: getattr(F, name)(*args)

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)  # type: ignore[operator]

    __repr__ = Lambda.__repr__  # type: ignore[assignment]


def _name_of(function: Any) -> str:
    """The name that `repr` shows. AssertionError for a name that `nd` lacks, ValueError for what is
    no name and no function."""
    if isinstance(function, str):
        assert hasattr(nd, function), f"Function name {function} is not found in symbol/ndarray."
        return function
    if not callable(function):
        raise ValueError(
            f"Unrecognized function in lambda: {function} of type {type(function)}; expected the "
            "name of an op, or a callable"
        )
    return getattr(function, "__name__", type(function).__name__)
