"""LSTM and GRU on a GPU: a step is a product and one kernel (`kernels.recurrent`).

The backward kernels compute the slopes of a step, so the forward pass stores none.
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels import recurrent
from d2lmini.ops.products import matmul
from d2lmini.ops.rnn_compute import GRU, KINDS, LSTM, Clip, Layer, layer_of


class _Before:
    """The state before each step of a sequence, for backward."""

    def __init__(self, xp: Any, first: Any, states: Any):
        self._first = xp.ascontiguousarray(first)
        self._states = states

    def __getitem__(self, t: int) -> Any:
        return self._states[t - 1] if t else self._first


class FusedLSTM(LSTM):
    """`LSTM`, with one kernel for each step."""

    @property
    def bounds(self) -> tuple:
        clip = self.clip
        if clip is None:
            return recurrent.UNBOUNDED
        return (1 + clip.nan, float(clip.low), float(clip.high))

    def stepper(self, w, kept, work):
        (gates, cells), bounds = kept, self.bounds

        def step(t: int, c: Any, states: list[Any], y: Any) -> list[Any]:
            before = self.xp.ascontiguousarray(states[1])
            recurrent.lstm_step(self.xp, c, before, gates[t], cells[t], y, bounds)
            return [y, cells[t]]

        return step

    def fill_slopes(self, D, states, y, kept) -> Any:
        return _Before(self.xp, states[1], kept[1])

    def back(self, D, across, kept, g, heads, extra) -> None:
        (gates, cells), (dh, dc), bounds = kept, heads, self.bounds
        for t in reversed(range(len(g))):
            recurrent.lstm_back(
                self.xp, g[t], dh, gates[t], extra[t], cells[t], dc, D[0][t], bounds
            )
            matmul(self.xp, D[0][t], across, dh)


class FusedGRU(GRU):
    """`GRU`, with one kernel for each step."""

    def stepper(self, w, kept, work):
        rz, n, share = kept
        bias = w.h2h_bias[rz.shape[2] :]

        def step(t: int, c: Any, states: list[Any], y: Any) -> list[Any]:
            recurrent.gru_step(self.xp, c, bias, states[0], rz[t], n[t], share[t], y)
            return [y]

        return step

    def fill_slopes(self, D, states, y, kept) -> Any:
        return _Before(self.xp, states[0], y)

    def back(self, D, across, kept, g, heads, extra) -> None:
        (rz, n, share), (dn, dc), dh = kept, D, heads[0]
        more = self.xp.zeros(dh.shape, dh.dtype)
        for t in reversed(range(len(g))):
            recurrent.gru_back(
                self.xp, g[t], more, rz[t], n[t], share[t], extra[t], dh, dn[t], dc[t]
            )
            matmul(self.xp, dc[t], across, more)
        dh += more


FUSED: dict[str, type[Layer]] = {**KINDS, "lstm": FusedLSTM, "gru": FusedGRU}


@layer_of.kernel("cuda")
def _(xp: Any, mode: str, clip: Clip | None = None) -> Layer:
    return FUSED[mode](xp, clip)
