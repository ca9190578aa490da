"""Converters of recurrent layers and of sequences of different lengths.

The op RNN has all parameters in one vector: first the weights of every layer and direction, i2h and
h2h, then their biases in the same order. ONNX wants them per layer, and the gates in another order:

    LSTM   here i f g o    there i o f g
    GRU    here r z n      there z r n
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.graph.ir import Node
from d2lmini.onnx.shapes import slice_axis
from d2lmini.onnx.writer import Writer, converts

_OPERATOR = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}


def layers_of(vector: np.ndarray, C: int, H: int, layers: int, dirs: int, mode: str) -> list[Any]:
    """(W, R, B) of each layer as ONNX has them: (dirs, G H, C), (dirs, G H, H), (dirs, 2 G H)."""
    order = _GATES[mode]
    G, at = len(order), 0

    def take(*shape: int) -> np.ndarray:
        nonlocal at
        at += int(np.prod(shape))
        gates = vector[at - int(np.prod(shape)) : at].reshape(G, H, *shape[1:])
        return gates[list(order)].reshape(shape)

    weights = [
        [take(G * H, n) for _ in range(dirs) for n in (C if k == 0 else H * dirs, H)]
        for k in range(layers)
    ]
    biases = [[take(G * H) for _ in range(2 * dirs)] for _ in range(layers)]
    return [
        (np.stack(W[::2]), np.stack(W[1::2]), np.reshape(B, (dirs, -1)))
        for W, B in zip(weights, biases)
    ]


@converts("RNN")
def _rnn(
    w: Writer, node: Node, x: str, parameters: str, state: str, cell: str = "", lengths: str = ""
) -> Any:
    a = node.attrs
    mode, H, L = a["mode"], a["state_size"], a["num_layers"]
    vector = w.values.get(node.sources[1])
    if vector is None:
        raise w.problem("the parameters must be known, not computed of an input")
    dirs = 2 if a["bidirectional"] else 1
    T, N, C = w.x.shape
    lengths = w.cast(lengths, "int32") if lengths else ""
    last_h, last_c = [], []
    for k, weights in enumerate(layers_of(vector, C, H, L, dirs, mode)):
        states = [
            _states_of_layer(w, node, i, name, k, dirs)
            for i, name in ((2, state), (3, cell))
            if name
        ]
        y, *ends = w.add(
            _OPERATOR[mode], x, *[w.array(v, w.x.dtype) for v in weights], lengths, *states,
            hidden_size=H, activations=["Relu"] * dirs if mode == "rnn_relu" else None,
            direction="bidirectional" if dirs == 2 else None,
            linear_before_reset=1 if mode == "gru" else None, outputs=3 if mode == "lstm" else 2,
        )  # fmt: skip
        # (T, dirs, N, H) -> (T, N, dirs H)
        x = w.reshape_to(w.transpose(y, 0, 2, 1, 3), (T, N, dirs * H))
        last_h.append(ends[0])
        last_c += ends[1:]
    if not a["state_outputs"]:
        return x
    lasts = [last_h, last_c] if mode == "lstm" else [last_h]
    return [x, *(w.add("Concat", *last_states, axis=0) for last_states in lasts)]


def _states_of_layer(w: Writer, node: Node, i: int, name: str, k: int, dirs: int) -> str:
    """The states of layer k; '' for zeros, which ONNX begins with anyway."""
    values = w.values.get(node.sources[i])
    if values is not None and not values.any():
        return ""
    if node.attrs["num_layers"] == 1:
        return name
    return slice_axis(w, name, (k * dirs,), ((k + 1) * dirs,), (1,), (0,))


@converts("SequenceMask")
def _sequence_mask(w: Writer, node: Node, x: str, *lengths: str) -> str:
    if not lengths:
        return w.add("Identity", x)
    axis, sizes = node.attrs["axis"], w.x.shape
    steps = w.add("Range", w.array(0), w.array(sizes[axis]), w.array(1))
    steps = w.unsqueeze(steps, 1 - axis)
    ends = w.unsqueeze(w.cast(lengths[0], "int64"), axis)
    inside = w.add("Less", steps, ends)
    if len(sizes) > 2:
        inside = w.unsqueeze(inside, *range(2, len(sizes)))
    return w.add("Where", inside, x, w.number(node.attrs["value"], w.x.dtype))


@converts("SequenceReverse")
def _sequence_reverse(w: Writer, node: Node, x: str, *lengths: str) -> str:
    if not lengths:
        return slice_axis(w, x, (None,), (None,), (-1,), (0,))
    ends = w.clip(w.cast(lengths[0], "int64"), 0, w.array(w.x.shape[0]))
    return w.add("ReverseSequence", x, ends, time_axis=0, batch_axis=1)


@converts("SequenceLast")
def _sequence_last(w: Writer, node: Node, x: str, *lengths: str) -> str:
    axis = node.attrs["axis"]
    if not lengths:
        y = slice_axis(w, x, (-1,), (None,), (1,), (axis,))
        return w.squeeze(y, axis)
    if axis == 0:
        ndim = len(w.x.shape)
        x = w.transpose(x, 1, 0, *range(2, ndim))
    ends = w.clip(w.cast(lengths[0], "int64"), 1, w.array(w.x.shape[axis]))
    return w.add("GatherND", x, w.unsqueeze(w.add("Sub", ends, w.array(1)), 1), batch_dims=1)
