"""JAX on the CPU, eager and with `jit`: calls return early, `block_until_ready` waits for a result.

JAX has no call that waits for everything. Its CPU client runs what one thread issues in order;
`peer.py` also looks whether the process still computes after the clock has stopped, and refuses
the row if it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import compiled
import numpy as np
import resnet
from peers.side import Side, Turn


class JAX(Side):
    library = "jax"
    module = "jax"
    statement = "import jax.numpy"
    waits_for_all = False

    def __init__(self) -> None:
        super().__init__()
        import jax.numpy as jnp
        from peers import jax_nets

        self.jnp, self.nets = jnp, jax_nets

    def array(self, x: np.ndarray) -> Any:
        return self.jnp.asarray(x)

    def wait(self, last: Any) -> None:
        self.lib.block_until_ready(last)

    def threads(self) -> str:
        return f"XLA's own threads, {os.cpu_count()} cores"

    def jitted(
        self, calls: int, function: Callable[..., Any], *arrays: Any, sync: bool = False
    ) -> Turn:
        compiled = self.lib.jit(function)
        return self.repeat(calls, lambda: compiled(*arrays), sync)

    def add__jit(self, calls: int, x: Any) -> Turn:
        add_one = self.lib.jit(lambda x: x + 1)

        def loop() -> Any:
            for _ in range(calls):
                y = add_one(x)
            return y

        return self.timed(loop, calls)

    def add_sync__jit(self, calls: int, x: Any) -> Turn:
        return self.jitted(calls, lambda x: x + 1, x, sync=True)

    def issue_dot(self, calls: int, a: Any) -> Turn:
        return self.issue(calls, lambda: self.jnp.dot(a, a))

    def issue_dot__jit(self, calls: int, a: Any) -> Turn:
        dot = self.lib.jit(lambda a: self.jnp.dot(a, a))
        return self.issue(calls, lambda: dot(a))

    def issue_dots(self, calls: int, a: Any) -> Turn:
        return self.issue_many(calls, lambda: self.jnp.dot(a, a))

    def issue_dots__jit(self, calls: int, a: Any) -> Turn:
        dot = self.lib.jit(lambda a: self.jnp.dot(a, a))
        return self.issue_many(calls, lambda: dot(a))

    def dot(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.jnp.dot(a, b), sync=True)

    def exp(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: self.jnp.exp(x))

    def exp__jit(self, calls: int, x: Any) -> Turn:
        return self.jitted(calls, self.jnp.exp, x)

    def transpose(self, calls: int, x: Any) -> Turn:
        return self.repeat(calls, lambda: x.T)

    def concat(self, calls: int, a: Any, b: Any) -> Turn:
        return self.repeat(calls, lambda: self.jnp.concatenate([a, b], axis=1))

    def net_call__jit(self, calls: int, x: Any, *weights: Any) -> Turn:
        def net(x: Any, weights: Any) -> Any:
            for w in weights[:-1]:
                x = self.jnp.maximum(x @ w.T, 0)
            return x @ weights[-1].T

        jitted = self.lib.jit(net)

        def loop() -> Any:
            for _ in range(calls):
                y = jitted(x, weights)
            return y

        return self.timed(loop, calls)

    def chain__jit(self, calls: int, x: Any) -> Turn:
        return self.jitted(calls, lambda x: compiled.chain(x, self.jnp.tanh), x)

    def mlp_train__jit(self, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        return self.train(calls, self.nets.mlp, 1e-6, x, y, self.with_biases(weights))

    def lenet_train__jit(self, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        return self.train(calls, self.nets.lenet, 0.05, x, y, self.with_biases(weights))

    def resnet_train__jit(self, calls: int, x: Any, y: Any, *weights: Any) -> Turn:
        parameters = self.nets.resnet18_parameters(weights)
        return self.train(calls, self.nets.resnet18, resnet.LEARNING_RATE, x, y, parameters)

    def with_biases(self, weights: Any) -> Any:
        return [(w, self.jnp.zeros(len(w))) for w in weights]

    def train(self, calls: int, loss: Any, lr: float, x: Any, y: Any, start: Any) -> Turn:
        state: dict[str, Any] = {}

        @self.lib.jit
        def update(parameters: Any) -> Any:
            value, gradients = self.lib.value_and_grad(loss)(parameters, x, y)
            descend = self.lib.tree.map(lambda p, g: p - lr * g, parameters, gradients)
            return value, descend

        def reset() -> None:
            state["parameters"] = start

        def step() -> Any:
            done = update(state["parameters"])
            state["parameters"] = done[1]
            return done

        def losses(first: Any, last: Any) -> Any:
            return self.jnp.stack([first[0], last[0]])

        return self.steps(calls, reset, step, losses)

    def gru_cell__jit(self, calls: int, x: Any, i2h: Any, h2h: Any) -> Turn:
        biases = [self.jnp.zeros(len(w)) for w in (i2h, h2h)]
        gradient = self.lib.jit(self.lib.grad(self.nets.gru_sum))

        def both() -> Any:
            di2h, dh2h, *_ = gradient([i2h, h2h, *biases], x)
            return self.jnp.concatenate([di2h.ravel(), dh2h.ravel()])

        return self.repeat(calls, both)

    def normal(self, calls: int, n: int) -> Turn:
        random = self.lib.random
        keys = iter(random.split(random.key(1), 100_000))
        return self.repeat(calls, lambda: random.normal(next(keys), (1000, n)))


sides = (JAX,)
