"""Converters of layers: products, convolutions, pooling, normalization, activations."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.graph.ir import Node, spec_of
from d2lmini.onnx.writer import Writer, converts

# -- products --------------------------------------------------------------------------------------


@converts("FullyConnected")
def _fully_connected(w: Writer, node: Node, x: str, weight: str, bias: str = "") -> str:
    ndim = len(w.x.shape)
    if node.attrs["flatten"] or ndim == 2:
        x = x if ndim == 2 else w.add("Flatten", x, axis=1)
        return w.add("Gemm", x, weight, *([bias] if bias else []), transB=1)
    y = w.add("MatMul", x, w.transpose(weight, 1, 0))
    return w.add("Add", y, bias) if bias else y


@converts("batch_dot")
def _batch_dot(w: Writer, node: Node, *xs: str) -> str:
    a, operands, order = node.attrs, [], list(range(len(w.x.shape)))
    for x, is_transposed in zip(xs, (a["transpose_a"], a["transpose_b"])):
        operands.append(w.transpose(x, *order[:-2], order[-1], order[-2]) if is_transposed else x)
    return w.add("MatMul", *operands)


@converts("dot")
def _dot(w: Writer, node: Node, a: str, b: str) -> str:
    """The last axis of a with the first of b; transposed, the first of a, the last of b."""
    sizes = [spec_of(entry).shape for entry in node.sources]
    if len(sizes[0]) == len(sizes[1]) == 1:
        return w.reshape_to(w.add("MatMul", a, b), (1,))
    # Both become matrices, whose product gets its axes back.
    parts = []
    for x, size, transpose, at in (
        (a, sizes[0], node.attrs["transpose_a"], -1),
        (b, sizes[1], node.attrs["transpose_b"], 0),
    ):
        if transpose and len(size) > 1:
            order = list(range(len(size)))
            # a's first axis goes last, b's last goes first.
            order = [*order[1:], 0] if at == -1 else [order[-1], *order[:-1]]
            x, size = w.transpose(x, *order), tuple(size[i] for i in order)
        inner = size[at]
        if len(size) != 2:
            x = w.reshape_to(x, (-1, inner) if at == -1 else (inner, -1))
        parts.append(x)
    y = w.add("MatMul", *parts)
    return y if len(sizes[0]) == len(sizes[1]) == 2 else w.reshape_to(y, w.y.shape)


# -- convolution and pooling -----------------------------------------------------------------------


def _window(w: Writer, node: Node) -> dict[str, Any]:
    """Kernel, strides and symmetric pads as ONNX has them."""
    a = node.attrs
    if a.get("layout") not in (None, "NCW", "NCHW", "NCDHW"):
        raise w.problem(f"layout {a['layout']} has no converter; use N, C and then space")
    n = len(a["kernel"])
    return {
        "kernel_shape": list(a["kernel"]),
        "strides": list(a["stride"] or (1,) * n),
        "pads": list(a["pad"] or (0,) * n) * 2,
    }


@converts("Convolution")
def _convolution(w: Writer, node: Node, *xs: str) -> str:
    window = _window(w, node)
    dilations = list(node.attrs["dilate"] or (1,) * len(node.attrs["kernel"]))
    return w.add("Conv", *xs, group=node.attrs["num_group"], dilations=dilations, **window)


@converts("Deconvolution")
def _deconvolution(w: Writer, node: Node, *xs: str) -> str:
    a, n = node.attrs, len(node.attrs["kernel"])
    return w.add(
        "ConvTranspose", *xs, group=a["num_group"], dilations=list(a["dilate"] or (1,) * n),
        output_padding=list(a["adj"] or (0,) * n), **_window(w, node),
    )  # fmt: skip


@converts("Pooling")
def _pooling(w: Writer, node: Node, x: str) -> str:
    kind = node.attrs["pool_type"]
    ndim = len(w.x.shape)
    if node.attrs["global_pool"]:
        if kind == "sum":
            return w.reduce("ReduceSum", x, range(2, ndim), keepdims=True)
        return w.add({"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}[kind], x)
    window = _window(w, node)
    n = ndim - 2
    inputs = w.x.shape[2:]
    outputs = w.y.shape[2:]
    before = window["pads"][:n]
    # What the last window reaches beyond the padding, where the convention is 'full'.
    beyond = [
        max((o - 1) * s + k - i - 2 * p, 0)
        for o, s, k, i, p in zip(outputs, window["strides"], window["kernel_shape"], inputs, before)
    ]
    after = [p + b for p, b in zip(before, beyond)]
    window["pads"] = [*before, *after]
    if any(p >= k for p, k in zip(after, window["kernel_shape"])):
        raise w.problem("a window lies in the padding alone, which ONNX does not allow")
    if kind == "max":
        return w.add("MaxPool", x, **window)
    padded = node.attrs["count_include_pad"] in (None, True)
    if kind == "avg" and padded and any(beyond):
        raise w.problem("the average of a window beyond the padding has no converter")
    y = w.add("AveragePool", x, count_include_pad=int(padded or kind == "sum"), **window)
    return (
        y if kind == "avg" else w.add("Mul", y, w.number(prod(window["kernel_shape"]), w.x.dtype))
    )


# -- normalization ---------------------------------------------------------------------------------


def _over_axis_1(node: Node) -> bool:
    ndim = len(spec_of(node.sources[0]).shape)
    return ndim > 1 and node.attrs["axis"] % ndim == 1 and not node.attrs["output_mean_var"]


@converts("BatchNorm", when=_over_axis_1)
def _batch_norm(w: Writer, node: Node, x: str, gamma: str, *rest: str) -> str:
    if node.attrs["fix_gamma"]:
        gamma = w.array(np.ones(w.y.shape[1]), spec_of(node.sources[1]).dtype)
    return w.add("BatchNormalization", x, gamma, *rest, epsilon=node.attrs["eps"])


def _over_last_axis(node: Node) -> bool:
    ndim = len(spec_of(node.sources[0]).shape)
    return node.attrs["axis"] % ndim == ndim - 1


@converts("LayerNorm", when=_over_last_axis)
def _layer_norm(w: Writer, node: Node, x: str, gamma: str, beta: str) -> str:
    return w.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=node.attrs["eps"])


# -- activations -----------------------------------------------------------------------------------


@converts("Activation")
def _activation(w: Writer, node: Node, x: str) -> str:
    kind: str = node.attrs["act_type"]
    return w.add("Softplus" if kind == "softrelu" else kind.capitalize(), x)


@converts("LeakyReLU", when=lambda node: node.attrs["act_type"] in ("elu", "leaky", "prelu"))
def _leaky_relu(w: Writer, node: Node, x: str, gamma: str = "") -> str:
    if gamma:  # it broadcasts along the channels
        return w.add("PRelu", x, w.reshape_to(gamma, (-1,) + (1,) * (len(w.x.shape) - 2)))
    operator = "Elu" if node.attrs["act_type"] == "elu" else "LeakyRelu"
    return w.add(operator, x, alpha=node.attrs["slope"])


@converts("softmax", "log_softmax", when=lambda node: not node.attrs["temperature"])
def _softmax(w: Writer, node: Node, x: str) -> str:
    operator = "Softmax" if w.op_name == "softmax" else "LogSoftmax"
    return w.add(operator, x, axis=node.attrs["axis"])
