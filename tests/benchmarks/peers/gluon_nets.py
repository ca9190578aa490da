"""The nets of the workloads in Gluon, for MXNet and d2lmini alike."""

from __future__ import annotations

from typing import Any

import resnet


def dense(nn: Any, *units: int) -> Any:
    """Dense layers with relu between them."""
    net = nn.HybridSequential()
    for n in units[:-1]:
        net.add(nn.Dense(n, activation="relu"))
    net.add(nn.Dense(units[-1]))
    return net


def lenet(nn: Any) -> Any:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, kernel_size=5, activation="sigmoid"), nn.MaxPool2D(2, 2),
        nn.Conv2D(16, kernel_size=5, activation="sigmoid"), nn.MaxPool2D(2, 2),
        nn.Dense(120, activation="sigmoid"), nn.Dense(84, activation="sigmoid"), nn.Dense(10),
    )  # fmt: skip
    return net


def resnet18(nn: Any) -> Any:
    class Residual(nn.HybridBlock):
        def __init__(self, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2D(channels, 3, stride, 1)
            self.conv2 = nn.Conv2D(channels, 3, 1, 1)
            self.conv3 = nn.Conv2D(channels, 1, stride) if stride == 2 else None
            self.norm1 = nn.BatchNorm(epsilon=resnet.EPSILON)
            self.norm2 = nn.BatchNorm(epsilon=resnet.EPSILON)

        def hybrid_forward(self, F: Any, X: Any) -> Any:
            Y = F.relu(self.norm1(self.conv1(X)))
            Y = self.norm2(self.conv2(Y))
            return F.relu(Y + (X if self.conv3 is None else self.conv3(X)))

    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(64, 3, 1, 1), nn.BatchNorm(epsilon=resnet.EPSILON), nn.Activation("relu")
    )  # fmt: skip
    for _, channels, stride in resnet.BLOCKS:
        net.add(Residual(channels, stride))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(resnet.CLASSES))
    return net


def start(parameters: list[Any], weights: tuple[Any, ...], nd: Any) -> None:
    """Weights as given; of the others scales and variances 1, biases, shifts and means 0."""
    for p in parameters:
        ones = p.name.endswith(("gamma", "running_var"))
        p.set_data((nd.ones if ones else nd.zeros)(p.shape))
    for p, w in zip([p for p in parameters if len(p.shape) > 1], weights):
        p.set_data(w)
