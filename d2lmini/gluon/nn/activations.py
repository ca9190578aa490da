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
from d2lmini.gluon.hybrid_block import HybridBlock


class Activation(HybridBlock):
    """'relu', 'sigmoid', 'tanh', 'softrelu' or 'softsign'; the layer is named after it: relu0."""

    def __init__(self, activation: str, **kwargs: Any):
        self._act_type = activation
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """x for positive x, alpha x otherwise."""

    def __init__(self, alpha: float, **kwargs: Any):
        assert alpha >= 0, "Slope coefficient for LeakyReLU must be no less than 0."
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """LeakyReLU with a learnt slope: one slope, or with in_channels one per channel (axis 1).

    alpha (in_channels,). K. He et al., "Delving Deep into Rectifiers" (2015).
    """

    def __init__(
        self,
        alpha_initializer: Any = initializer.Constant(0.25),  # noqa: B008  (it is never changed)
        in_channels: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """x for positive x, alpha (e^x - 1) otherwise. D.-A. Clevert et al. (2015)."""

    def __init__(self, alpha: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """ELU, scaled to preserve mean 0 and variance 1. G. Klambauer et al. (2017)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x P(Z < x) for a standard normal Z. D. Hendrycks and K. Gimpel (2016)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """x sigmoid(beta x). P. Ramachandran et al., "Searching for Activation Functions" (2017)."""

    def __init__(self, beta: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(x if self._beta == 1 else self._beta * x, name="fwd")
