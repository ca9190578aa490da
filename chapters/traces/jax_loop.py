"""A small training loop of JAX with a planted fault, a `float()` in each step; the program behind
jax.trace.json.gz:

    python jax_loop.py FOLDER
"""

import shutil
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

keys = jax.random.split(jax.random.key(0), 3)
weights = [jax.random.normal(keys[0], (256, 256)), jax.random.normal(keys[1], (256, 10))]
X = jax.random.uniform(keys[2], (128, 256))


def loss_of(weights):
    hidden = jax.nn.relu(X @ weights[0] * 0.03)
    return -jnp.mean(jax.nn.log_softmax(hidden @ weights[1] * 0.03)[:, 0])


@jax.jit
def update(weights):
    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients)], loss


def train(weights, steps):
    total = 0.0
    for _ in range(steps):
        weights, loss = update(weights)
        total += float(loss)  # the fault
    return weights


if __name__ == "__main__":
    weights = train(weights, 3)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(train(weights, 5))
        (written,) = Path(folder).rglob("*.trace.json.gz")
        shutil.copy(written, Path(sys.argv[1], "jax.trace.json.gz"))
