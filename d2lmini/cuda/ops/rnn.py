"""LSTM and GRU on a GPU: a step is a product and one kernel (`kernels.recurrent`).

The backward kernels compute the slopes of a step, so the forward pass stores none.
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels import recurrent
from d2lmini.ops.products import matmul
from d2lmini.ops.rnn_compute import GRU, KINDS, LSTM, Clip, Layer, layer_of


class FusedLSTM(LSTM):
    """`LSTM`, with one kernel for each step."""

    @property
    def bounds(self) -> tuple:
        clip = self.clip
        if clip is None:
            return recurrent.UNBOUNDED
        return (1 + clip.nan, float(clip.low), float(clip.high))

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        gates, cell = kept
        before = self.xp.ascontiguousarray(states[1])
        recurrent.lstm_step(self.xp, c, before, gates, cell, y, self.bounds)
        return [y, cell]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        (gates, cells), (dh, dc), cell = kept, heads, before[1]
        for t in reversed(range(len(g))):
            d = D[0][t]
            recurrent.lstm_back(self.xp, g[t], dh, gates[t], cell[t], cells[t], dc, d, self.bounds)
            matmul(self.xp, d, across, dh)


class FusedGRU(GRU):
    """`GRU`, with one kernel for each step."""

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        bias = w.h2h_bias[kept[0].shape[1] :]
        recurrent.gru_step(self.xp, c, bias, states[0], *kept, y)
        return [y]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        dh, more = heads[0], self.xp.zeros(heads[0].shape, y.dtype)
        for t in reversed(range(len(g))):
            gates, (dn, dc) = [a[t] for a in kept], (d[t] for d in D)
            recurrent.gru_back(self.xp, g[t], more, *gates, before[0][t], dh, dn, dc)
            matmul(self.xp, dc, across, more)
        dh += more


FUSED: dict[str, type[Layer]] = {**KINDS, "lstm": FusedLSTM, "gru": FusedGRU}


@layer_of.kernel("cuda")
def _(xp: Any, mode: str, clip: Clip | None = None) -> Layer:
    return FUSED[mode](xp, clip)
