"""Models by the second edition's names.

>>> from d2lmini import np
>>> from d2lmini.compat.books.second.models import LinearRegressionScratch
>>> LinearRegressionScratch(num_inputs=2, lr=0.03)(np.ones((4, 2))).shape
(4, 1)
"""

from __future__ import annotations

from typing import Any

from d2lmini import gluon, init, np
from d2lmini.compat.books.models import linreg, squared_loss
from d2lmini.compat.books.second.oop import Module
from d2lmini.gluon import nn


def check_len(a: Any, n: int) -> None:
    """AssertionError unless `a` has n elements."""
    assert len(a) == n, f"list's length {len(a)} != expected length {n}"


def check_shape(a: Any, shape: Any) -> None:
    """AssertionError unless `a` has this shape."""
    assert tuple(a.shape) == tuple(shape), (
        f"tensor's shape {tuple(a.shape)} != expected shape {tuple(shape)}"
    )


class LinearRegressionScratch(Module):
    """Linear regression on arrays."""

    def __init__(self, num_inputs: int, lr: float, sigma: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.w = np.random.normal(0, sigma, (num_inputs, 1))
        self.b = np.zeros(1)
        self.w.attach_grad()
        self.b.attach_grad()

    def forward(self, X: Any) -> Any:
        return linreg(X, self.w, self.b)

    def loss(self, y_hat: Any, y: Any) -> Any:
        return squared_loss(y_hat, y).mean()


class LinearRegression(Module):
    """Linear regression by Gluon's layer."""

    def __init__(self, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.net: Any = nn.Dense(1)
        self.net.initialize(init.Normal(sigma=0.01))

    def loss(self, y_hat: Any, y: Any) -> Any:
        return gluon.loss.L2Loss()(y_hat, y).mean()

    def get_w_b(self) -> tuple[Any, Any]:
        """Weight and bias."""
        return self.net.weight.data(), self.net.bias.data()
