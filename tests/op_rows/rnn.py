"""Rows of `ops/rnn.py` and `ops/rnn_compute.py`: plain loops over steps, in float64."""

from __future__ import annotations

import numpy as np

from d2lmini.ops.rnn import network_on
from d2lmini.ops.rnn import rnn_layer as RNN_LAYER
from op_rows.case import Case, draw

OWN = "an op of ours alone"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(a, c, h):
    (ar, az, an), (cr, cz, cn) = np.split(a, 3, axis=-1), np.split(c, 3, axis=-1)
    r, z = sigmoid(ar + cr), sigmoid(az + cz)
    return (1 - z) * np.tanh(an + r * cn) + z * h


def lstm(a, c, cell):
    i, f, g, o = np.split(a + c, 4, axis=-1)
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def rnn(
    x, parameters, state, state_cell=None, state_size=0, num_layers=1, mode="", bidirectional=False,
    state_outputs=False, p=0.0,
):  # fmt: skip
    dtype = x.dtype
    x, vector = x.astype("float64"), parameters.astype("float64")
    gates = {"lstm": 4, "gru": 3}.get(mode, 1) * state_size
    directions = 1 + bidirectional
    matrices = []
    for k in range(num_layers * directions):
        inner = x.shape[2] if k < directions else directions * state_size
        for n in (inner, state_size):
            matrices.append(vector[: gates * n].reshape(gates, n))
            vector = vector[gates * n :]
    biases = vector.reshape(-1, gates)
    hs, cs = [], []
    for k in range(num_layers * directions):
        if k % directions == 0:
            inputs, outputs = x, []
        h, c = state[k].astype("float64"), None
        if mode == "lstm":
            c = state_cell[k].astype("float64")
        steps = []
        for step in inputs[::-1] if k % directions else inputs:
            a = step @ matrices[2 * k].T + biases[2 * k]
            b = h @ matrices[2 * k + 1].T + biases[2 * k + 1]
            if mode == "gru":
                h = gru(a, b, h)
            elif mode == "lstm":
                h, c = lstm(a, b, c)
            else:
                h = np.tanh(a + b) if mode == "rnn_tanh" else np.maximum(a + b, 0)
            steps.append(h)
        outputs.append(np.array(steps[::-1] if k % directions else steps))
        hs.append(h)
        cs.append(c)
        if k % directions == directions - 1:
            x = np.concatenate(outputs, axis=2)
    results = [x, np.array(hs), *([np.array(cs)] if mode == "lstm" else [])]
    return [r.astype(dtype) for r in results[: len(results) if state_outputs else 1]]


def no_steps(x, parameters, *states, **_):
    return [np.zeros((0, x.shape[1], 1), "float32"), *states]


def arrays(mode, T=4, N=3, C=5, H=6, L=1, D=1, dtype="float32"):
    """Inputs of RNN."""
    (size,) = network_on((T, N, C), mode, H, L, D == 2).parameters
    states = [draw((L * D, N, H), seed=s, dtype=dtype) for s in range(1 + (mode == "lstm"))]
    return (draw((T, N, C), dtype=dtype), draw((size,), -0.7, 0.7, dtype=dtype), *states)


ROWS = []
for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
    for L, bidirectional, state_outputs in (
        (1, False, False), (1, False, True), (1, True, True), (2, False, True), (3, True, False)
    ):  # fmt: skip
        attrs = {
            "state_size": 6, "num_layers": L, "mode": mode, "bidirectional": bidirectional,
            "state_outputs": state_outputs,
        }  # fmt: skip
        ROWS.append(Case("RNN", arrays(mode, L=L, D=1 + bidirectional), rnn, attrs, rtol=2e-5))
    one = {"state_size": 1, "num_layers": 1, "mode": mode, "state_outputs": True}
    ROWS += [
        Case("RNN", arrays(mode, 1, 1, 1, 1), rnn, one),
        Case("RNN", arrays(mode, 2, 1, 1, 1, dtype="float64"), rnn, one),
        Case("RNN", arrays(mode, 3, 2, 4, 1, 2, 2, dtype="float64"), rnn,
             {**one, "num_layers": 2, "bidirectional": True, "p": 0.5}),
        Case("RNN", arrays(mode, 0, 2, 3, 1), no_steps, one, mxnet=False,
             why="MXNet takes a size of 0 for unknown"),
    ]  # fmt: skip
ROWS.append(
    Case("_rnn_param_concat", (draw((3,)), draw((5,), seed=1)),
         lambda *x, dim: np.concatenate(x, axis=dim), {"dim": 0})
)  # fmt: skip


# -- one layer with its weights apart --------------------------------------------------------------


def layer(x, i2h, h2h, i2h_bias, h2h_bias, h, c=None, mode=""):
    parameters = np.concatenate([a.reshape(-1) for a in (i2h, h2h, i2h_bias, h2h_bias)])
    states = [h[None]] if c is None else [h[None], c[None]]
    steps = x[None] if x.ndim == 2 else x
    y, *last = rnn(steps, parameters, *states, state_size=h.shape[1], mode=mode, state_outputs=True)
    return [y[0] if x.ndim == 2 else y, *(last[1][0] for _ in states[1:])]


def one_layer(mode, shape, H, dtype="float32"):
    """Inputs of `_rnn_layer`."""
    G, C, N = {"lstm": 4, "gru": 3}.get(mode, 1) * H, shape[-1], shape[-2]
    shapes = [shape, (G, C), (G, H), (G,), (G,), *[(N, H)] * (1 + (mode == "lstm"))]
    return tuple(draw(s, -1.2, 1.2, dtype, seed=i) for i, s in enumerate(shapes))


LAYERS = [
    (mode, shape, H, dtype)
    for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru")
    for shape, H, dtype in (
        ((3, 5), 4, "float32"), ((4, 3, 5), 6, "float32"), ((1, 1), 1, "float32"),
        ((3, 1, 2), 1, "float64"), ((1, 2, 3), 2, "float64"),
    )
]  # fmt: skip
for mode, shape, H, dtype in LAYERS:
    inputs = one_layer(mode, shape, H, dtype)
    ROWS.append(
        Case("_rnn_layer", inputs, layer, {"mode": mode}, rtol=2e-5, grad=False, mxnet=False,
             why=OWN)
    )  # fmt: skip


# -- the ways back, against differences, one input at a time ---------------------------------------


def slopes(f, inputs, heads, step=1e-6):
    """Gradients of sum(heads * f(*inputs)) by central differences."""
    inputs = [i.astype("float64") for i in inputs]
    grads = [np.zeros_like(i) for i in inputs]
    for x, grad in zip(inputs, grads, strict=True):
        for place in np.ndindex(x.shape):
            kept = x[place]
            both = []
            for moved in (kept + step, kept - step):
                x[place] = moved
                both.append(sum((h * y).sum() for h, y in zip(heads, f(*inputs), strict=True)))
            x[place] = kept
            grad[place] = (both[0] - both[1]) / (2 * step)
    return grads


for mode, shape, H, dtype in LAYERS:
    x, i2h, h2h, bias, _, *states = one_layer(mode, shape, H, dtype)
    inputs = (x, i2h, h2h, 0 * bias, 0 * bias, *states)
    y, *last, reserve = RNN_LAYER.compute(np, *inputs, mode=mode)
    g, *g_cell = (draw(a.shape, seed=7, dtype=dtype) for a in (y, *last))
    grads = slopes(lambda *i, mode=mode: layer(*i, mode=mode), inputs, (g, *g_cell))
    loose = {"rtol": 1e-4, "atol": 2e-6, "grad": False, "mxnet": False, "why": OWN}
    for wants_data in (True, False):
        want = [a.astype(dtype) for a in grads[0 if wants_data else 1 :]]
        attrs = {"mode": mode, "n_parameters": 4, "wants_data": wants_data}
        given = (g, y, reserve, x, i2h, h2h, bias, bias, *states, *g_cell)
        ROWS.append(Case("_rnn_backward", given, lambda *_, want=want, **__: want, attrs, **loose))
