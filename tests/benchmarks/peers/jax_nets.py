"""The losses of the workloads' nets in JAX, functions of (parameters, x, y).

`parameters` is a list of (weight, bias), and (weight, bias, scale, shift) where batch normalization
follows.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import resnet
from jax import lax


def mlp(parameters: Any, x: Any, y: Any) -> Any:
    for w, b in parameters[:-1]:
        x = jnp.maximum(x @ w.T + b, 0)
    w, b = parameters[-1]
    return (((x @ w.T + b).ravel() - y) ** 2 / 2).mean()


def lenet(parameters: Any, x: Any, y: Any) -> Any:
    for w, b in parameters[:2]:
        x = jax.nn.sigmoid(convolve(x, w) + b[:, None, None])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(len(x), -1)
    for w, b in parameters[2:4]:
        x = jax.nn.sigmoid(x @ w.T + b)
    w, b = parameters[4]
    return cross_entropy(x @ w.T + b, y)


def resnet18(parameters: Any, x: Any, y: Any) -> Any:
    each = iter(parameters)
    x = jax.nn.relu(normalized(x, next(each), 1, 1))
    for _, _, stride in resnet.BLOCKS:
        inner = jax.nn.relu(normalized(x, next(each), stride, 1))
        inner = normalized(inner, next(each), 1, 1)
        if stride == 2:
            w, b = next(each)
            x = convolve(x, w, stride) + b[:, None, None]
        x = jax.nn.relu(inner + x)
    w, b = next(each)
    return cross_entropy(x.mean(axis=(2, 3)) @ w.T + b, y)


def resnet18_parameters(weights: Any) -> list[tuple[Any, ...]]:
    """Every 3 x 3 kernel is followed by a normalization."""
    ones, zeros = jnp.ones, jnp.zeros
    return [
        (w, zeros(len(w)), *((ones(len(w)), zeros(len(w))) if w.shape[2:] == (3, 3) else ()))
        for w in weights
    ]


def normalized(x: Any, parameters: Any, stride: int, pad: int) -> Any:
    w, b, scale, shift = parameters
    x = convolve(x, w, stride, pad) + b[:, None, None]
    mean, variance = (f(axis=(0, 2, 3), keepdims=True) for f in (x.mean, x.var))
    x = (x - mean) / jnp.sqrt(variance + resnet.EPSILON)
    return x * scale[:, None, None] + shift[:, None, None]


def convolve(x: Any, w: Any, stride: int = 1, pad: int = 0) -> Any:
    return lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)


def cross_entropy(scores: Any, y: Any) -> Any:
    rows = jnp.arange(len(y))
    return -jax.nn.log_softmax(scores)[rows, y.astype(int)].mean()


def gru_sum(weights: Any, x: Any) -> Any:
    """The sum of a GRU cell's outputs over all steps; both weights and both biases."""
    i2h, h2h, i2h_bias, h2h_bias = weights

    def step(h: Any, xt: Any) -> Any:
        ar, az, an = jnp.split(xt @ i2h.T + i2h_bias, 3, axis=1)
        cr, cz, cn = jnp.split(h @ h2h.T + h2h_bias, 3, axis=1)
        r, z = jax.nn.sigmoid(ar + cr), jax.nn.sigmoid(az + cz)
        h = (1 - z) * jnp.tanh(an + r * cn) + z * h
        return h, h

    _, outputs = lax.scan(step, jnp.zeros((x.shape[1], h2h.shape[1])), x)
    return outputs.sum()
