"""The networks of the d2l book as HybridBlocks, each small enough for a test: NETS says how each is
built and the shapes of its inputs. `run` is everything that a training step gives and changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from d2lmini import autograd, nd, random
from d2lmini.gluon import HybridBlock, nn, rnn
from d2lmini.gluon.compiled import flatten


def row(*layers: Any) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(*layers)
    return net


def mlp() -> HybridBlock:
    return row(nn.Dense(16, activation="relu"), nn.Dropout(0.5), nn.Dense(4))


def lenet() -> HybridBlock:
    return row(
        nn.Conv2D(6, kernel_size=5, activation="sigmoid"), nn.MaxPool2D(2, 2),
        nn.Conv2D(16, kernel_size=5, activation="sigmoid"), nn.MaxPool2D(2, 2),
        nn.Dense(120, activation="sigmoid"), nn.Dense(84, activation="sigmoid"), nn.Dense(10),
    )  # fmt: skip


def vgg() -> HybridBlock:
    net = row()
    for num_convs, num_channels in ((1, 4), (2, 8)):
        for _ in range(num_convs):
            net.add(nn.Conv2D(num_channels, kernel_size=3, padding=1, activation="relu"))
        net.add(nn.MaxPool2D(pool_size=2, strides=2))
    net.add(nn.Dense(12, activation="relu"), nn.Dropout(0.5), nn.Dense(3))
    return net


def nin() -> HybridBlock:
    return row(
        nn.Conv2D(8, 3, 2, 1, activation="relu"), nn.Conv2D(8, 1, activation="relu"),
        nn.Conv2D(8, 1, activation="relu"), nn.MaxPool2D(3, 2), nn.Dropout(0.5),
        nn.Conv2D(5, 3, 1, 1, activation="relu"), nn.GlobalAvgPool2D(), nn.Flatten(),
    )  # fmt: skip


class Inception(HybridBlock):
    def __init__(self, c1: int, c2: tuple, c3: tuple, c4: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.p1_1 = nn.Conv2D(c1, kernel_size=1, activation="relu")
        self.p2_1 = nn.Conv2D(c2[0], kernel_size=1, activation="relu")
        self.p2_2 = nn.Conv2D(c2[1], kernel_size=3, padding=1, activation="relu")
        self.p3_1 = nn.Conv2D(c3[0], kernel_size=1, activation="relu")
        self.p3_2 = nn.Conv2D(c3[1], kernel_size=5, padding=2, activation="relu")
        self.p4_1 = nn.MaxPool2D(pool_size=3, strides=1, padding=1)
        self.p4_2 = nn.Conv2D(c4, kernel_size=1, activation="relu")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        p1 = self.p1_1(x)
        p2 = self.p2_2(self.p2_1(x))
        p3 = self.p3_2(self.p3_1(x))
        p4 = self.p4_2(self.p4_1(x))
        return F.concat(p1, p2, p3, p4, dim=1)


def googlenet() -> HybridBlock:
    return row(Inception(4, (3, 6), (2, 3), 3), nn.GlobalAvgPool2D(), nn.Dense(4))


class Residual(HybridBlock):
    def __init__(self, num_channels: int, use_1x1conv: bool = False, strides: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2D(num_channels, kernel_size=3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(num_channels, kernel_size=3, padding=1)
        self.conv3 = None
        if use_1x1conv:
            self.conv3 = nn.Conv2D(num_channels, kernel_size=1, strides=strides)
        self.bn1 = nn.BatchNorm()
        self.bn2 = nn.BatchNorm()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.conv3:
            x = self.conv3(x)
        return F.relu(y + x)


def resnet18(narrower: int = 8) -> HybridBlock:
    """ResNet-18 with a share of the channels."""
    net = row(nn.Conv2D(64 // narrower, 3, 1, 1), nn.BatchNorm(), nn.Activation("relu"))
    for stage, num_channels in enumerate((64, 128, 256, 512)):
        first = Residual(num_channels // narrower, stage > 0, 2 if stage else 1)
        net.add(row(first, Residual(num_channels // narrower)))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net


class DenseBlock(HybridBlock):
    def __init__(self, num_convs: int, num_channels: int):
        super().__init__()
        self.net = row()
        for _ in range(num_convs):
            conv = nn.Conv2D(num_channels, kernel_size=3, padding=1)
            self.net.add(row(nn.BatchNorm(), nn.Activation("relu"), conv))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self.net:
            x = F.concat(x, block(x), dim=1)
        return x


def densenet() -> HybridBlock:
    return row(
        DenseBlock(2, 4), nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(4, kernel_size=1),
        nn.AvgPool2D(pool_size=2, strides=2), DenseBlock(2, 3), nn.GlobalAvgPool2D(), nn.Dense(3),
    )  # fmt: skip


class Unrolled(HybridBlock):
    """A cell over T steps, then a layer on each step."""

    def __init__(self, cell: Any, T: int, merge: bool):
        super().__init__()
        self.cell = cell
        self.dense = nn.Dense(3, flatten=False)
        self.T, self.merge = T, merge

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        outputs, states = self.cell.unroll(self.T, x, merge_outputs=self.merge)
        if not self.merge:
            outputs = F.stack(*outputs, axis=1)
        return self.dense(outputs), states


class Layered(HybridBlock):
    """A recurrent layer with its states, and a dense layer that scores each step."""

    def __init__(self, layer: Any):
        super().__init__()
        self.layer = layer
        self.dense = nn.Dense(3)

    def hybrid_forward(self, F: Any, x: Any, *states: Any) -> Any:
        if states:
            y, states = self.layer(F.one_hot(x, 7), list(states))
        else:
            y = self.layer(F.one_hot(x, 7))
        return self.dense(F.reshape(y, (-3, 0))), list(states)


class Encoder(HybridBlock):
    """A block of a transformer: self-attention of `heads`, then a layer on each step; each is added
    to what it read, and normalized."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.size, self.heads = size, heads
        self.qkv = nn.Dense(3 * size, flatten=False)
        self.out = nn.Dense(size, flatten=False)
        self.wide = row(nn.Dense(4 * size, flatten=False), nn.GELU(), nn.Dense(size, flatten=False))
        self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
        self.dropout = nn.Dropout(0.1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # (N, T, size)
        parts = F.split(self.qkv(x), num_outputs=3, axis=2)
        parts = [F.reshape(part, (0, 0, self.heads, -1)) for part in parts]
        parts = [F.reshape(F.transpose(part, (0, 2, 1, 3)), (-3, 0, 0)) for part in parts]
        q, k, v = parts  # (N heads, T, size / heads)
        scores = F.batch_dot(q, k, transpose_b=True) * (self.heads / self.size) ** 0.5
        y = F.batch_dot(self.dropout(F.softmax(scores)), v)
        y = F.transpose(F.reshape(y, (-4, -1, self.heads, 0, 0)), (0, 2, 1, 3))
        x = self.norm1(x + self.dropout(self.out(F.reshape(y, (0, 0, -1)))))
        return self.norm2(x + self.dropout(self.wide(x)))


def transformer(size: int = 8, heads: int = 2) -> HybridBlock:
    return row(Encoder(size, heads), Encoder(size, heads))


class Shaped(HybridBlock):
    """A plain `forward`: it sees shapes, and uses its parameter's array and another."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4)
        self.scale = self.params.get("scale", shape=(4,), init="ones")
        self.shift = nd.arange(4)

    def forward(self, x: Any) -> Any:
        y = self.dense(x) * self.scale.data(x.ctx) + self.shift
        if len(x) > 2:
            y = y[1:] - y[:-1]
        return y / y.shape[0], y.max(axis=0)


class Net(NamedTuple):
    """How to build a net, and inputs for it: shapes of numbers, or of words (integers)."""

    build: Callable[[], HybridBlock]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    words: bool = False


NETS = {
    "mlp": Net(mlp, (((3, 5),), ((1, 5),))),
    "lenet": Net(lenet, (((2, 1, 28, 28),), ((1, 1, 28, 28),))),
    "vgg block": Net(vgg, (((2, 2, 8, 8),), ((3, 2, 8, 8),))),
    "nin": Net(nin, (((2, 3, 15, 15),), ((1, 3, 11, 13),))),
    "googlenet block": Net(googlenet, (((2, 3, 6, 6),), ((1, 3, 5, 7),))),
    "resnet18": Net(resnet18, (((2, 3, 16, 16),), ((1, 3, 17, 16),))),
    "densenet block": Net(densenet, (((2, 3, 6, 6),), ((3, 3, 8, 8),))),
    "rnn unrolled": Net(lambda: Unrolled(rnn.RNNCell(6), 4, True), (((2, 4, 5),), ((3, 4, 5),))),
    "lstm unrolled": Net(lambda: Unrolled(rnn.LSTMCell(6), 4, False), (((2, 4, 5),), ((1, 4, 5),))),
    "gru unrolled": Net(lambda: Unrolled(rnn.GRUCell(6), 4, True), (((2, 4, 5),), ((3, 4, 5),))),
    "cells of other activations": Net(
        lambda: Unrolled(rnn.RNNCell(6, activation="softsign"), 3, False),
        (((2, 3, 5),), ((4, 3, 5),)),
    ),
    "stack of cells": Net(
        lambda: Unrolled(stack(), 3, True), (((2, 3, 5),), ((3, 3, 5),)),
    ),
    "zoneout": Net(
        lambda: Unrolled(rnn.ZoneoutCell(rnn.LSTMCell(5), 0.4, 0.3), 3, True),
        (((2, 3, 5),), ((3, 3, 5),)),
    ),
    "rnn layer": Net(
        lambda: Layered(rnn.RNN(6)), (((4, 2),), ((4, 2), (1, 2, 6)), ((5, 3),)), words=True
    ),
    "lstm layers": Net(
        lambda: Layered(rnn.LSTM(6, 2, dropout=0.5)), (((4, 2),), ((3, 1),)), words=True
    ),
    "gru both ways": Net(
        lambda: Layered(rnn.GRU(6, 1, bidirectional=True)), (((4, 2),), ((5, 3),)), words=True
    ),
    "transformer": Net(transformer, (((2, 3, 8),), ((1, 5, 8),))),
    "plain forward": Net(Shaped, (((2, 3),), ((5, 3),))),
}  # fmt: skip


KINDS = ("naive", "threaded", "stepped")
#: (net, engine): each net on one engine, and the first net on all.
NETS_ON_ENGINES = [(name, KINDS[i % 3]) for i, name in enumerate(NETS)] + [
    ("mlp", kind) for kind in KINDS[1:]
]


def numbers(shapes: Any, words: bool = False) -> list:
    """Inputs of these shapes; with `words` the first holds integers."""
    rng = np.random.default_rng(len(shapes))
    arrays = [rng.uniform(-1, 1, shape) for shape in shapes]
    if words:
        arrays[0] = np.floor(3.5 * (arrays[0] + 1))
    return [nd.array(a) for a in arrays]


def run(
    net: Any, xs: Any, train: bool, seed: int = 3, call: Callable[..., Any] | None = None
) -> dict[str, np.ndarray]:
    """Everything that a call of the net gives and changes, by name; `call` makes it."""
    random.seed(seed)
    for x in xs:
        x.attach_grad()
    with autograd.record(train_mode=train):
        outputs = flatten((call or net)(*xs))[0]
        loss = sum((y * (i + 1)).sum() for i, y in enumerate(outputs))
    loss.backward()
    parameters = net.collect_params()
    learnt = {n: p for n, p in parameters.items() if p.grad_req != "null"}
    found = {f"output {i}": y for i, y in enumerate(outputs)}
    found |= {f"input {i}": x.grad for i, x in enumerate(xs)}
    found |= {n: p.grad() for n, p in learnt.items()}
    found |= {n: p.data() for n, p in parameters.items() if p.grad_req == "null"}
    found |= {f"predicted {i}": y for i, y in enumerate(flatten(net(*xs))[0])}
    return {name: array.asnumpy() for name, array in found.items()}


def stack() -> Any:
    cells = rnn.HybridSequentialRNNCell()
    cells.add(rnn.BidirectionalCell(rnn.GRUCell(3), rnn.LSTMCell(2)))
    cells.add(rnn.DropoutCell(0.5))
    cells.add(rnn.ResidualCell(rnn.RNNCell(5)))
    return cells
