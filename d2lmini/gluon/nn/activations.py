"""Activation layers: functions of single elements; only `PReLU` has a parameter.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> nn.LeakyReLU(0.5)(nd.array([-2, 0, 3]))
<BLANKLINE>
[-1.  0.  3.]
<NDArray 3 @cpu(0)>

All layers keep the shape. `nd.Activation` and `nd.LeakyReLU` document the formulas.
"""

from __future__ import annotations

from typing import Any

from d2lmini import initializer
from d2lmini.base.families import REQUIRED
from d2lmini.gluon.hybrid_block import HybridBlock, Layer


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
