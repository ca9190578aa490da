"""The elementwise part of a recurrent step, between its products, in one kernel; backward likewise.

Formulas and names are those of `ops/rnn_gates.py`. A thread computes one unit of one sequence. An
argument `NAME_row` is the distance in elements between the rows of an array: the outputs of two
directions lie side by side.
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels.typed import TypedKernel

_UNITS = (
    "for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < N * H; i += gridDim.x * blockDim.x)"
)
_SQUASH = "__device__ inline A squash(A x) { return 1 / (1 + exp(-x)); }\n"

_LSTM_STEP = TypedKernel(
    "lstm_step",
    """$squash
// clip: 0: cells have no bounds; 1: cells have bounds; 2: in addition nan becomes the upper bound.
extern "C" __global__ void lstm_step(
    const T* c, const T* before, T* gates, T* after, T* y, const Index N, const Index H,
    const Index y_row, const int clip, const double low, const double high
) {
    $units {
        const Index n = i / H, j = i % H, k = 4 * n * H + j;
        const A in = squash(gates[k] + c[k]), forget = squash(gates[k + H] + c[k + H]);
        const A fresh = tanh(gates[k + 2 * H] + c[k + 2 * H]);
        const A out = squash(gates[k + 3 * H] + c[k + 3 * H]);
        A cell = forget * before[i] + in * fresh;
        if (clip == 2 && cell != cell) cell = A(high);
        if (clip) cell = minimum(maximum(cell, A(low)), A(high));
        gates[k] = in;
        gates[k + H] = forget;
        gates[k + 2 * H] = fresh;
        gates[k + 3 * H] = out;
        after[i] = cell;
        y[n * y_row + j] = out * tanh(cell);
    }
}
""",
    squash=_SQUASH,
    units=_UNITS,
)

_LSTM_BACK = TypedKernel(
    "lstm_back",
    """
extern "C" __global__ void lstm_back(
    const T* g, const T* dh, const T* gates, const T* before, const T* after, T* dc, T* D,
    const Index N, const Index H, const Index g_row, const int clip, const double low,
    const double high
) {
    $units {
        const Index n = i / H, j = i % H, k = 4 * n * H + j;
        const A in = gates[k], forget = gates[k + H], fresh = gates[k + 2 * H];
        const A out = gates[k + 3 * H], bent = tanh(after[i]);
        const A d = dh[i] + g[n * g_row + j];
        A e = dc[i] + d * out * (1 - bent * bent);
        if (clip && !(after[i] > A(low) && after[i] < A(high))) e *= 0;
        D[k] = e * in * (1 - in) * fresh;
        D[k + H] = e * forget * (1 - forget) * before[i];
        D[k + 2 * H] = e * in * (1 - fresh * fresh);
        D[k + 3 * H] = d * out * (1 - out) * bent;
        dc[i] = e * forget;
    }
}
""",
    units=_UNITS,
)

_GRU_STEP = TypedKernel(
    "gru_step",
    """$squash
extern "C" __global__ void gru_step(
    const T* c, const T* bias, const T* h, T* rz, T* gate, T* share, T* y, const Index N,
    const Index H, const Index h_row, const Index y_row
) {
    $units {
        const Index n = i / H, j = i % H, k = 2 * n * H + j, m = 3 * n * H + j;
        const A r = squash(rz[k] + c[m]), z = squash(rz[k + H] + c[m + H]);
        const A part = c[m + 2 * H] + bias[j], fresh = tanh(gate[i] + r * part);
        rz[k] = r;
        rz[k + H] = z;
        gate[i] = fresh;
        share[i] = part;
        y[n * y_row + j] = fresh + z * (h[n * h_row + j] - fresh);
    }
}
""",
    squash=_SQUASH,
    units=_UNITS,
)

_GRU_BACK = TypedKernel(
    "gru_back",
    """
extern "C" __global__ void gru_back(
    const T* g, const T* more, const T* rz, const T* gate, const T* share, const T* h, T* dh, T* dn,
    T* dc, const Index N, const Index H, const Index g_row, const Index h_row
) {
    $units {
        const Index n = i / H, j = i % H, k = 2 * n * H + j, m = 3 * n * H + j;
        const A r = rz[k], z = rz[k + H], fresh = gate[i];
        const A d = dh[i] + more[i] + g[n * g_row + j];
        const A slope = d * (1 - fresh * fresh) * (1 - z);
        dn[i] = slope;
        dc[m] = slope * r * share[i] * (1 - r);
        dc[m + H] = d * (1 - z) * z * (h[n * h_row + j] - fresh);
        dc[m + 2 * H] = slope * r;
        dh[i] = d * z;
    }
}
""",
    units=_UNITS,
)

#: No bounds for the cells of an LSTM: (clip, low, high).
UNBOUNDED = (0, 0.0, 0.0)


def _row(a: Any) -> int:
    return a.strides[0] // a.dtype.itemsize


def lstm_step(
    xp: Any, c: Any, before: Any, gates: Any, after: Any, y: Any, bounds: tuple = UNBOUNDED
) -> None:
    """As `rnn_gates.lstm_step`; c (N, 4H) is added to the gates first."""
    kernel = _LSTM_STEP(y.dtype, gates.size)
    kernel(xp, after.size, c, before, gates, after, y, *after.shape, _row(y), *bounds)


def lstm_back(
    xp: Any, g: Any, dh: Any, gates: Any, before: Any, after: Any, dc: Any, D: Any,
    bounds: tuple = UNBOUNDED,
) -> None:  # fmt: skip
    """Fill D (N, 4H), the gradient of the gates before their activations. g and dh add up to the
    gradient of the state. dc is the gradient of the cell; it becomes that of the previous cell."""
    kernel = _LSTM_BACK(dh.dtype, gates.size)
    kernel(xp, dh.size, g, dh, gates, before, after, dc, D, *dh.shape, _row(g), *bounds)


def gru_step(xp: Any, c: Any, bias: Any, h: Any, rz: Any, n: Any, share: Any, y: Any) -> None:
    """As `rnn_gates.gru_step`; c (N, 3H) is added to rz, and with the bias becomes share."""
    kernel = _GRU_STEP(y.dtype, c.size)
    kernel(xp, n.size, c, bias, h, rz, n, share, y, *n.shape, _row(h), _row(y))


def gru_back(
    xp: Any, g: Any, more: Any, rz: Any, n: Any, share: Any, h: Any, dh: Any, dn: Any, dc: Any
) -> None:
    """Fill dn (N, H) and dc (N, 3H), the gradients of a_n and of c. g, more and dh add up to the
    gradient of the state; dh becomes the part that goes directly to the previous state."""
    kernel = _GRU_BACK(dh.dtype, dc.size)
    kernel(xp, n.size, g, more, rz, n, share, h, dh, dn, dc, *n.shape, _row(g), _row(h))
