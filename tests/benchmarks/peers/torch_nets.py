"""The nets of the workloads in PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import loading
import resnet
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def dense(*units: int) -> nn.Sequential:
    """Dense layers with relu between them: inputs, then the units of each."""
    layers: list[nn.Module] = []
    for a, b in pairwise(units):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.Sigmoid(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1)
        self.conv3 = nn.Conv2d(before, channels, 1, stride) if stride == 2 else None
        self.norm1 = nn.BatchNorm2d(channels, eps=resnet.EPSILON)
        self.norm2 = nn.BatchNorm2d(channels, eps=resnet.EPSILON)

    def forward(self, X: Any) -> Any:
        Y = self.norm1(self.conv1(X)).relu()
        Y = self.norm2(self.conv2(Y))
        return (Y + (X if self.conv3 is None else self.conv3(X))).relu()


def resnet18() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64, eps=resnet.EPSILON), nn.ReLU(),
        *(Residual(*block) for block in resnet.BLOCKS),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, resnet.CLASSES),
    )  # fmt: skip


def start(net: nn.Module, weights: tuple[Any, ...]) -> None:
    """Weights as given; of the others scales 1, biases and shifts 0."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.fill_(float(name.endswith("weight")))
        for p, w in zip([p for p in net.parameters() if p.dim() > 1], weights):
            p.copy_(w)


class Pictures(Dataset):
    """Bytes in (H, W, C), transformed one by one, and their numbers as labels."""

    def __init__(self, x: Any) -> None:
        self.x = x.to(torch.uint8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        x = self.x[i].permute(2, 0, 1).to(torch.float32) / 255
        return (x - loading.MEAN) / loading.STD, i


def loader(x: Any, workers: int) -> DataLoader:
    return DataLoader(
        Pictures(x), loading.BATCH, num_workers=workers, persistent_workers=workers > 0
    )
