"""Small models of both editions: linear regression, a convolution by hand, ResNet-18.

>>> from d2lmini import d2l, nd
>>> net = d2l.resnet18(10)
>>> net.initialize()
>>> net(nd.ones((2, 1, 28, 28))).shape
(2, 10)

They take arrays of `nd` or of `np`.
"""

from __future__ import annotations

from typing import Any

from d2lmini import ndarray as nd
from d2lmini.gluon import nn


def linreg(X: Any, w: Any, b: Any) -> Any:
    """Linear regression: X w + b."""
    return nd.dot(X, w) + b


def squared_loss(y_hat: Any, y: Any) -> Any:
    """(y_hat - y)**2 / 2, with y in the shape of y_hat."""
    return (y_hat - y.reshape(y_hat.shape)) ** 2 / 2


def corr2d(X: Any, K: Any) -> Any:
    """Cross-correlation of the matrix X with the kernel K, element by element."""
    h, w = K.shape
    Y = nd.zeros_like(X[: X.shape[0] - h + 1, : X.shape[1] - w + 1])
    for i in range(Y.shape[0]):
        for j in range(Y.shape[1]):
            Y[i, j] = (X[i : i + h, j : j + w] * K).sum()
    return Y


class Residual(nn.Block):
    """Two 3 x 3 convolutions with batch normalization, around which the input passes too.

    (N, C, H, W) -> (N, num_channels, H / strides, W / strides). use_1x1conv: the input passes
    through a 1 x 1 convolution, needed when channels or size change. After He et al., "Deep
    residual learning for image recognition" (2016).
    """

    def __init__(
        self, num_channels: int, use_1x1conv: bool = False, strides: int = 1, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(num_channels, kernel_size=3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(num_channels, kernel_size=3, padding=1)
        self.conv3 = (
            nn.Conv2D(num_channels, kernel_size=1, strides=strides) if use_1x1conv else None
        )
        self.bn1 = nn.BatchNorm()
        self.bn2 = nn.BatchNorm()

    def forward(self, X: Any) -> Any:
        Y = nd.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        return nd.relu(Y + (X if self.conv3 is None else self.conv3(X)))


def resnet18(num_classes: int) -> Any:
    """ResNet-18 for small images: four stages of two Residuals with 64 to 512 channels, each stage
    but the first halving height and width."""
    net = nn.Sequential()
    net.add(nn.Conv2D(64, kernel_size=3, strides=1, padding=1), nn.BatchNorm())
    net.add(nn.Activation("relu"))
    for strides, num_channels in [(1, 64), (2, 128), (2, 256), (2, 512)]:
        stage = nn.Sequential()
        stage.add(Residual(num_channels, strides > 1, strides), Residual(num_channels))
        net.add(stage)
    net.add(nn.GlobalAvgPool2D(), nn.Dense(num_classes))
    return net
