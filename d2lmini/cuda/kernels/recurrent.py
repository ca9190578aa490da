"""LSTM and GRU on a GPU: a step is a product and one kernel, forward and backward.

Formulas and names are those of `ops/rnn_compute.py`; the backward kernels compute the slopes of a
step, so the forward pass stores none. The gates are views of one array, and the outputs of two
directions lie side by side: so the kernels are made for strides (`formulas.fill`).
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels.formulas import fill
from d2lmini.cuda.kernels.symbols import names
from d2lmini.ops.products import matmul
from d2lmini.ops.rnn_compute import GRU, KINDS, LSTM, Layer, layer_of, sum_rows


def _squash(x: Any) -> Any:
    return 1 / (1 + names.exp(-x))


def _gates(a: Any, n: int) -> list[Any]:
    """(N, n H) as n views (N, H)."""
    H = a.shape[1] // n
    return [a[:, k * H : k * H + H] for k in range(n)]


def _lstm_step(
    i: Any, f: Any, g: Any, o: Any, ci: Any, cf: Any, cg: Any, co: Any, before: Any
) -> list[Any]:
    i, f, g, o = _squash(i + ci), _squash(f + cf), names.tanh(g + cg), _squash(o + co)
    cell = f * before + i * g
    return [i, f, g, o, cell, o * names.tanh(cell)]


def _lstm_back(
    head: Any, dh: Any, i: Any, f: Any, g: Any, o: Any, before: Any, after: Any, dc: Any
) -> list[Any]:
    """The gradients of the gates before their activations, and of the cell before."""
    bent = names.tanh(after)
    d = dh + head
    e = dc + d * o * (1 - bent * bent)
    da = [e * i * (1 - i) * g, e * f * (1 - f) * before, e * i * (1 - g * g)]
    return [*da, d * o * (1 - o) * bent, e * f]


class FusedLSTM(LSTM):
    """`LSTM`, with one kernel for each step."""

    def step(self, c: Any, w: Any, states: Any, y: Any, kept: Any, work: Any) -> list[Any]:
        gates, cell = kept
        parts = _gates(gates, 4)
        inputs = [*parts, *_gates(c, 4), states[1]]
        fill(self.xp, "lstm_step", _lstm_step, inputs, [*parts, cell, y], y.shape)
        return [y, cell]

    def back(self, D: Any, before: Any, kept: Any, across: Any, y: Any, g: Any, heads: Any) -> None:
        (gates, cells), (dh, dc), cell = kept, heads, before[1]
        for t in reversed(range(len(g))):
            inputs = [g[t], dh, *_gates(gates[t], 4), cell[t], cells[t], dc]
            fill(self.xp, "lstm_back", _lstm_back, inputs, [*_gates(D[0][t], 4), dc], dc.shape)
            matmul(self.xp, D[0][t], across, dh)


def _gru_step(cr: Any, cz: Any, cn: Any, bias: Any, h: Any, r: Any, z: Any, n: Any) -> list[Any]:
    r, z = _squash(r + cr), _squash(z + cz)
    share = cn + bias
    n = names.tanh(n + r * share)
    return [r, z, n, share, n + z * (h - n)]


def _gru_back(g: Any, more: Any, r: Any, z: Any, n: Any, share: Any, h: Any, dh: Any) -> list[Any]:
    """The gradients of a_n and of the three parts of c, and what goes directly to the state."""
    d = dh + more + g
    dn = d * (1 - n * n) * (1 - z)
    return [dn, dn * r * share * (1 - r), d * (1 - z) * z * (h - n), dn * r, d * z]


class FusedGRU(GRU):
    """`GRU`, with one kernel for each step."""

    def step(self, c: Any, w: Any, states: Any, y: Any, kept: Any, work: Any) -> list[Any]:
        rz, n, share = kept
        r, z = _gates(rz, 2)
        inputs = [*_gates(c, 3), w.h2h_bias[rz.shape[1] :], states[0], r, z, n]
        fill(self.xp, "gru_step", _gru_step, inputs, [r, z, n, share, y], y.shape)
        return [y]

    def back(self, D: Any, before: Any, kept: Any, across: Any, y: Any, g: Any, heads: Any) -> None:
        (rz, n, share), (dn, dc), (dh,), (h,) = kept, D, heads, before
        more = self.xp.zeros(dh.shape, dh.dtype)
        for t in reversed(range(len(g))):
            inputs = [g[t], more, *_gates(rz[t], 2), n[t], share[t], h[t], dh]
            fill(self.xp, "gru_back", _gru_back, inputs, [dn[t], *_gates(dc[t], 3), dh], dh.shape)
            matmul(self.xp, dc[t], across, more)
        dh += more


FUSED: dict[str, type[Layer]] = {**KINDS, "lstm": FusedLSTM, "gru": FusedGRU}


@layer_of.kernel("cuda")
def _(xp: Any, mode: str) -> Layer:
    return FUSED[mode](xp)


@sum_rows.kernel("cuda")
def _(xp: Any, x: Any, out: Any) -> None:
    fill(xp, "sum_rows", _sums, [x], [out[None]], x.shape, (0,))


def _sums(x: Any) -> list[Any]:
    return [names.sum(x)]
