"""LSTM and GRU on a GPU: a step is a product and one kernel (`kernels.recurrent`).

The backward kernels compute the slopes of a step, so the forward pass stores none.
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels import recurrent, reductions
from d2lmini.ops.products import matmul
from d2lmini.ops.rnn_compute import GRU, KINDS, LSTM, Layer, layer_of, sum_rows


class FusedLSTM(LSTM):
    """`LSTM`, with one kernel for each step."""

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        gates, cell = kept
        recurrent.lstm_step(self.xp, c, states[1], gates, cell, y)
        return [y, cell]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        (gates, cells), (dh, dc), cell = kept, heads, before[1]
        for t in reversed(range(len(g))):
            d = D[0][t]
            recurrent.lstm_back(self.xp, g[t], dh, gates[t], cell[t], cells[t], dc, d)
            matmul(self.xp, d, across, dh)


class FusedGRU(GRU):
    """`GRU`, with one kernel for each step."""

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        rz, n, share = kept
        recurrent.gru_step(self.xp, c, w.h2h_bias[rz.shape[1] :], states[0], rz, n, share, y)
        return [y]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        (rz, n, share), (dn, dc), (dh,), (h,) = kept, D, heads, before
        more = self.xp.zeros(dh.shape, dh.dtype)
        for t in reversed(range(len(g))):
            recurrent.gru_back(self.xp, g[t], more, rz[t], n[t], share[t], h[t], dh, dn[t], dc[t])
            matmul(self.xp, dc[t], across, more)
        dh += more


FUSED: dict[str, type[Layer]] = {**KINDS, "lstm": FusedLSTM, "gru": FusedGRU}


@layer_of.kernel("cuda")
def _(xp: Any, mode: str) -> Layer:
    return FUSED[mode](xp)


@sum_rows.kernel("cuda")
def _(xp: Any, x: Any, out: Any) -> None:
    reductions.sum_rows(xp, x, out)
