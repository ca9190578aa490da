"""PyTorch on the CPU, eager and with `torch.compile`: a call has finished when it returns.

`torch.compile` needs a C++ compiler (the one that CXX names, or g++ or clang++); where there is
none its rows are left out and the line about PyTorch says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import compiled
import loading
import numpy as np
import resnet
from peers.side import Side, Turn

#: What is done to a net or a function before it is called: nothing, or `torch.compile`.
Way = Callable[[Any], Any]


def as_it_is(net: Any) -> Any:
    return net


class Torch(Side):
    library = "torch"
    module = "torch"
    statement = "import torch"

    def __init__(self) -> None:
        super().__init__()
        from peers import torch_nets

        self.nets = torch_nets
        names = [os.environ.get("CXX", ""), "g++", "clang++"]
        self.compiler = next(filter(None, map(shutil.which, names)), None)

    def array(self, x: np.ndarray) -> Any:
        return self.lib.from_numpy(x.copy())

    def to_numpy(self, x: Any) -> np.ndarray:
        return x.numpy()

    def threads(self) -> str:
        missing = "" if self.compiler else "; no torch.compile: there is no C++ compiler"
        return f"{self.lib.get_num_threads()} threads{missing}"

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: a @ b)

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T.contiguous())

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.lib.cat([a, b], dim=1))

    def normal(self, calls: int, n: int) -> Turn:
        return self.repeat(calls, lambda: self.lib.randn(1000, n))

    def net_call(self, calls: int, x: Any, *weights: Any, way: Way = as_it_is) -> Turn:
        plain = self.nets.dense(512, *(len(w) for w in weights))
        self.nets.start(plain, weights)
        net = way(plain)

        def loop() -> Any:
            with self.lib.no_grad():
                for _ in range(calls):
                    y = net(x)
            return y

        return self.timed(loop, calls)

    def chain(self, calls: int, x: Any, way: Way = as_it_is) -> Turn:
        chain = way(lambda x: compiled.chain(x, self.lib.tanh))
        return self.repeat(calls, lambda: chain(x))

    def mlp_train(self, calls: int, x: Any, y: Any, *weights: Any, way: Way = as_it_is) -> Turn:
        plain = self.nets.dense(512, 2048, 512, 1)
        net = way(plain)
        return self.train(
            calls, plain, weights, 1e-6, lambda: ((net(x).squeeze(1) - y) ** 2 / 2).mean()
        )

    def lenet_train(self, calls: int, x: Any, y: Any, *weights: Any, way: Way = as_it_is) -> Turn:
        return self.train_classifier(calls, self.nets.lenet(), way, 0.05, x, y, weights)

    def resnet_train(self, calls: int, x: Any, y: Any, *weights: Any, way: Way = as_it_is) -> Turn:
        net, lr = self.nets.resnet18(), resnet.LEARNING_RATE
        return self.train_classifier(calls, net, way, lr, x, y, weights)

    def train_classifier(
        self, calls: int, plain: Any, way: Way, lr: float, x: Any, y: Any, weights: Any
    ) -> Turn:
        loss, labels, net = self.lib.nn.CrossEntropyLoss(), y.long(), way(plain)
        return self.train(calls, plain, weights, lr, lambda: loss(net(x), labels))

    def train(self, calls: int, net: Any, weights: Any, lr: float, forward: Any) -> Turn:
        trainer = self.lib.optim.SGD(net.parameters(), lr=lr)

        def step() -> Any:
            trainer.zero_grad()
            loss = forward()
            loss.backward()
            trainer.step()
            return loss.detach()

        return self.steps(
            calls, lambda: self.nets.start(net, weights), step, lambda *l: self.lib.stack(l)
        )

    def gru_cell(self, calls: int, x: Any, i2h: Any, h2h: Any, way: Way = as_it_is) -> Turn:
        torch = self.lib
        plain = torch.nn.GRUCell(i2h.shape[1], h2h.shape[1])
        self.nets.start(plain, (i2h, h2h))
        cell = way(plain)

        def step() -> Any:
            plain.zero_grad()
            h, outputs = torch.zeros(x.shape[1], h2h.shape[1]), []
            for each in x:
                h = cell(each, h)
                outputs.append(h)
            torch.stack(outputs).sum().backward()

        def result(*_: Any) -> Any:
            return torch.cat([w.grad.flatten() for w in (plain.weight_ih, plain.weight_hh)])

        return self.steps(calls, lambda: None, step, result)

    def load(self, calls: int, x: Any, workers: int = 0) -> Turn:
        loader = self.nets.loader(x, workers)
        return self.repeat(calls, lambda: self.lib.stack([X.mean() for X, _ in loader]))

    def load__workers(self, calls: int, x: Any) -> Turn:
        return self.load(calls, x, loading.WORKERS)

    # -- compiled

    def programs(self, name: str) -> dict[str, str]:
        """Also `torch compile`, of what has a `way`, where there is a C++ compiler."""
        ways = super().programs(name)
        has_way = name in ways.values() and "way" in signature(getattr(self, name)).parameters
        if has_way and self.compiler:
            ways[self.label("compile")] = f"{name}__compile"
        return ways

    def program(self, name: str) -> Callable[..., Turn]:
        plain, _, variant = name.partition("__")
        if variant == "compile":
            self.lib._dynamo.reset()
            return partial(getattr(self, plain), way=self.lib.compile)
        return getattr(self, name)


sides = (Torch,)
