"""d2lmini: MXNet's programs, and in the same process what is compared most finely: NumPy's product,
to subtract it from ours, and bare NumPy threads, beside virtual devices.

After every turn the engine must have executed exactly the operations that the turn counts, with
none left pending.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import bare
import numpy as np
from peers import gluon_nets
from peers.mxnet_side import MXNet
from peers.numpy_side import NumPy
from peers.side import Turn, blas_threads


class D2lmini(MXNet):
    library = "d2lmini"
    module = "d2lmini"
    statement = "from d2lmini import nd"

    def threads(self) -> str:
        return blas_threads()

    def executed(self) -> int | None:
        stats = self.lib.engine.stats()
        assert stats.pending == 0, f"{stats.pending} operations pending after the clock stopped"
        return stats.executed

    def add__pushed(self, calls: int, x: Any) -> Turn:
        """Every operation through the queue and a worker, however small."""
        return self.never_inline(self.add(calls, x))

    def add_sync__pushed(self, calls: int, x: Any) -> Turn:
        return self.never_inline(self.add_sync(calls, x))

    def import_it__lazy(self, calls: int, n: int) -> Turn:
        """The package alone, which imports its parts when they are first asked for."""
        return self.interpreters(calls, "import d2lmini")

    # -- two virtual devices, and one of them

    def programs(self, name: str) -> dict[str, str]:
        if name in ("two_mlp", "two_lenet"):
            ways = ("", "one", "hybrid", "hybrid_one")
            return {self.label(way): f"{name}__{way}" for way in ways}
        return super().programs(name)

    def program(self, name: str) -> Callable[..., Turn]:
        plain, _, way = name.partition("__")
        if plain in ("two_mlp", "two_lenet"):
            devices = 1 if way.endswith("one") else 2
            return partial(getattr(self, plain), devices, way.startswith("hybrid"))
        return super().program(name)

    def two_mlp(
        self, devices: int, hybrid: bool, calls: int, x: Any, y: Any, *weights: Any
    ) -> Turn:
        net, loss = self.net("dense", 2048, 512, 1, hybrid=hybrid), self.lib.gluon.loss.L2Loss()
        return self.train_on(devices, calls, net, loss, 1e-6, x, y, weights)

    def two_lenet(
        self, devices: int, hybrid: bool, calls: int, x: Any, y: Any, *weights: Any
    ) -> Turn:
        net, loss = self.net("lenet", hybrid=hybrid), self.cross_entropy()
        return self.train_on(devices, calls, net, loss, 0.05, x, y, weights)

    def train_on(
        self, devices: int, calls: int, net: Any, loss: Any, lr: float, x: Any, y: Any, weights: Any
    ) -> Turn:
        """`train`, of two virtual devices on the first so many; each has its part of the batch."""
        autograd, gluon = self.lib.autograd, self.lib.gluon
        if self.lib.num_gpus() < 2:
            self.scopes.enter_context(self.lib.virtual_gpus(2))
        contexts = [self.lib.gpu(i) for i in range(devices)]
        xs, ys = (gluon.utils.split_and_load(each, contexts) for each in (x, y))
        net.initialize(ctx=contexts)
        net(xs[0])
        parameters = list(net.collect_params().values())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})

        def reset() -> None:
            gluon_nets.start(parameters, weights, self.nd)

        def step() -> Any:
            with autograd.record():
                losses = [loss(net(xi), yi) for xi, yi in zip(xs, ys)]
            autograd.backward(losses)
            trainer.step(len(x))
            return losses

        def mean(losses: Any) -> Any:
            return sum(l.sum().as_in_context(self.lib.cpu()) for l in losses) / len(x)

        def result(first: Any, last: Any) -> Any:
            return self.nd.concat(mean(first), mean(last), dim=0)

        step()  # the first one also decides where each weight is updated
        return self.steps(calls, reset, step, result)

    def never_inline(self, turn: Turn) -> Turn:
        engine = self.lib.engine

        def with_dial_at_zero() -> tuple[float, Any]:
            before, engine.inline_below = engine.inline_below, 0
            try:
                return turn()
            finally:
                engine.inline_below = before

        return with_dial_at_zero


class NumPyHere(NumPy):
    """NumPy's own product in d2lmini's process: same BLAS, same threads, the finest comparison."""

    library = "numpy-here"

    def programs(self, name: str) -> dict[str, str]:
        return super().programs(name) if name == "dot" else {}


class Threads(NumPy):
    """Two bare NumPy threads beside two virtual devices, in the same process, hence with the same
    BLAS, which has one thread as long as there are virtual devices."""

    library = "numpy-threads"

    def programs(self, name: str) -> dict[str, str]:
        if name not in ("two_mlp", "two_lenet"):
            return {}
        return {self.label(way): f"{name}__{way}" for way in ("", "one")}

    def program(self, name: str) -> Callable[..., Turn]:
        plain, _, way = name.partition("__")
        return partial(getattr(self, plain), 1 if way == "one" else 2)

    def two_mlp(self, threads: int, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        return self.train_on(threads, calls, bare.mlp_gradients, 1e-6, x, y, weights)

    def two_lenet(self, threads: int, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        return self.train_on(threads, calls, bare.lenet_gradients, 0.05, x, y, weights)

    def train_on(
        self, threads: int, calls: int, gradients: Any, lr: float, x: Any, y: Any, weights: Any
    ) -> Turn:
        step = bare.Steps(gradients, lr, x, y, weights, threads)
        return self.steps(calls, step.reset, step, lambda *losses: np.float32(losses))


sides = (D2lmini, NumPyHere, Threads)
