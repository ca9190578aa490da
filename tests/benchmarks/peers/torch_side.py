"""PyTorch, eager, on the CPU: like NumPy, a call has finished when it returns."""

from __future__ import annotations

from typing import Any

import compiled
import numpy as np
from peers.side import Side, Turn


class Torch(Side):
    library = "torch"
    module = "torch"
    statement = "import torch"

    def array(self, x: np.ndarray) -> Any:
        return self.lib.from_numpy(x.copy())

    def to_numpy(self, x: Any) -> np.ndarray:
        return x.numpy()

    def threads(self) -> str:
        return f"{self.lib.get_num_threads()} threads"

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: a @ b)

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T.contiguous())

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.lib.cat([a, b], dim=1))

    def normal(self, calls: int, n: int) -> Turn:
        return self.repeat(calls, lambda: self.lib.randn(1000, n))

    def net_call(self, calls: int, x: Any, *weights: Any) -> Turn:
        nn = self.lib.nn
        net = nn.Sequential(
            nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2)
        )
        with self.lib.no_grad():
            for layer, w in zip(net[::2], weights):
                layer.weight.copy_(w)
                layer.bias.zero_()

        def loop() -> Any:
            with self.lib.no_grad():
                for _ in range(calls):
                    y = net(x)
            return y

        return self.timed(loop, calls)

    def chain(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: compiled.chain(x, self.lib.tanh))

    def mlp_train(self, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        nn = self.lib.nn
        net = nn.Sequential(
            nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 1)
        )
        return self.train(
            calls, net, weights, 1e-6, lambda: ((net(x).squeeze(1) - y) ** 2 / 2).mean()
        )

    def lenet_train(self, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        nn = self.lib.nn
        net = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Sigmoid(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(256, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
        )  # fmt: skip
        loss, labels = nn.CrossEntropyLoss(), y.long()
        return self.train(calls, net, weights, 0.05, lambda: loss(net(x), labels))

    def train(self, calls: int, net: Any, weights: Any, lr: float, forward: Any) -> Turn:
        trainer = self.lib.optim.SGD(net.parameters(), lr=lr)
        matrices = [p for p in net.parameters() if p.dim() > 1]

        def reset() -> None:
            with self.lib.no_grad():
                for p in net.parameters():
                    p.zero_()
                for p, w in zip(matrices, weights):
                    p.copy_(w)

        def step() -> Any:
            trainer.zero_grad()
            loss = forward()
            loss.backward()
            trainer.step()
            return loss.detach()

        return self.steps(calls, reset, step, lambda *losses: self.lib.stack(losses))

    def gru_cell(self, calls: int, x: Any, i2h: Any, h2h: Any) -> Turn:
        torch = self.lib
        cell = torch.nn.GRUCell(i2h.shape[1], h2h.shape[1])
        with torch.no_grad():
            for p, w in zip(cell.parameters(), (i2h, h2h, 0.0, 0.0)):
                p.copy_(torch.as_tensor(w))

        def step() -> Any:
            cell.zero_grad()
            h, outputs = torch.zeros(x.shape[1], h2h.shape[1]), []
            for each in x:
                h = cell(each, h)
                outputs.append(h)
            torch.stack(outputs).sum().backward()

        def result(*_: Any) -> Any:
            return torch.cat([w.grad.flatten() for w in (cell.weight_ih, cell.weight_hh)])

        return self.steps(calls, lambda: None, step, result)


sides = (Torch,)
