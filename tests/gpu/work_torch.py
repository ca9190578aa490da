"""The rows of `workloads.py` as a user of PyTorch writes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from workloads import Clock, Sizes

GPU = "cuda"
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

Once = Callable[[], float]
wait = torch.cuda.synchronize


def matrix(n: int, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.rand(n, n, device=GPU).to(dtype)


# -- operations ------------------------------------------------------------------------------------


def issue(clock: Clock, sizes: Sizes) -> Once:
    x = matrix(sizes.plane)
    return clock.until_return(lambda: x @ x, 8)


def product(clock: Clock, sizes: Sizes, dtype: Any) -> Once:
    x = matrix(sizes.product, dtype)
    return clock.of(lambda: x @ x)


def add(clock: Clock, sizes: Sizes) -> Once:
    x = matrix(sizes.plane)
    return clock.of(lambda: x + 1, sizes.times)


def chain(clock: Clock, sizes: Sizes) -> Once:
    x = torch.ones(2, 2, device=GPU)

    def next_one() -> None:
        nonlocal x
        x = x + 1

    return clock.of(next_one, sizes.times)


def normal(clock: Clock, sizes: Sizes) -> Once:
    n = sizes.plane
    return clock.of(lambda: torch.randn(n, n, device=GPU), sizes.times // 20 + 1)


@torch.compile
def _gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh((x + x * x * x * 0.044715) * 0.7978845) * 0.5 * x + x * 0.5


def gelu(clock: Clock, sizes: Sizes) -> Once:
    x = matrix(sizes.plane)
    return clock.of(lambda: _gelu(x), sizes.times // 10 + 1)


# -- nets ------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Two convolutions with a connection around them."""

    def __init__(self, inputs: int, channels: int):
        super().__init__()
        stride = 1 if inputs == channels else 2
        self.body = nn.Sequential(
            nn.Conv2d(inputs, channels, 3, stride, 1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.around = nn.Conv2d(inputs, channels, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.around(x))


def mlp(*widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for m, n in pairwise(widths):
        layers += [nn.Linear(m, n), nn.ReLU()]
    return layers[:-1]


def lenet() -> list[nn.Module]:
    return [
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), *mlp(1250, 128, 10),
    ]  # fmt: skip


def resnet18(channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
    for stage in range(4):
        width = channels << stage
        layers += [Residual(width >> (stage > 0), width), Residual(width, width)]
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def recorded(body: Callable[[], object]) -> Callable[[], object]:
    """The replay of a CUDA graph of `body`, which has run on another stream before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


def inference(clock: Clock, sizes: Sizes, way: str) -> Once:
    n = sizes.hidden
    net = nn.Sequential(*mlp(n // 4, n // 8, n // 16, 2)).to(GPU).eval()
    x = torch.randn(1, n // 4, device=GPU)

    @torch.inference_mode()
    def call() -> torch.Tensor:
        return net(x)

    return clock.of(recorded(call) if way == "graph" else call, sizes.times // 2)


def training(clock: Clock, sizes: Sizes, layers: list, x: Any, y: Any, loss: Any, way: str) -> Once:
    net = nn.Sequential(*layers).to(GPU)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=way != "graph")
        loss(net(x), y).backward()
        optimizer.step()

    return clock.of(recorded(step) if way == "graph" else step, sizes.steps)


def train_mlp(clock: Clock, sizes: Sizes, way: str) -> Once:
    n = sizes.hidden
    x, y = torch.randn(sizes.batch, n // 4, device=GPU), torch.ones(sizes.batch, 1, device=GPU)
    half_square = lambda y_hat, y: ((y_hat - y) ** 2 / 2).mean()  # noqa: E731
    return training(clock, sizes, mlp(n // 4, n, n // 4, 1), x, y, half_square, way)


def train_images(clock: Clock, sizes: Sizes, way: str, small: bool) -> Once:
    n = sizes.images if small else sizes.images // 2
    shape, layers = ((1, 28, 28), lenet()) if small else ((3, 32, 32), resnet18(sizes.channels))
    x, y = torch.randn(n, *shape, device=GPU), torch.arange(n, device=GPU) % 10
    return training(clock, sizes, layers, x, y, nn.functional.cross_entropy, way)


def gru(clock: Clock, sizes: Sizes) -> Once:
    cell, x = nn.GRUCell(128, 256).to(GPU), torch.randn(32, sizes.sequence, 128, device=GPU)

    def step() -> None:
        state, outputs = torch.zeros(32, 256, device=GPU), []
        for t in range(sizes.sequence):
            state = cell(x[:, t], state)
            outputs.append(state)
        torch.stack(outputs, 1).sum().backward()

    return clock.of(step)


WAYS = ("eager", "graph")
DTYPES = {"float32": torch.float32, "float16": torch.float16}
WORKS: dict[str, Callable[[Clock, Sizes], Once]] = {
    "issue": issue,
    **{f"product {name}": partial(product, dtype=dtype) for name, dtype in DTYPES.items()},
    "add": add,
    "chain": chain,
    **{f"MLP {way}": partial(inference, way=way) for way in WAYS},
    **{f"step {way}": partial(train_mlp, way=way) for way in WAYS},
    **{f"LeNet {way}": partial(train_images, way=way, small=True) for way in WAYS},
    **{f"ResNet-18 {way}": partial(train_images, way=way, small=False) for way in WAYS},
    "gelu": gelu,
    "normal": normal,
    "GRU": gru,
}
