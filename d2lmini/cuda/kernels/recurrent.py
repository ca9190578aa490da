"""The elementwise part of a recurrent step, between its products, in one kernel; backward likewise.

Formulas and names are those of `ops/rnn_gates.py`. The gates are views of one array, and the
outputs of two directions lie side by side: so the kernels are made for strides
(`elementwise.fill`).
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels.elementwise import fill
from d2lmini.cuda.kernels.symbols import names as xp


def _squash(x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def _gates(a: Any, n: int) -> list[Any]:
    """(N, n H) as n views (N, H)."""
    H = a.shape[1] // n
    return [a[:, k * H : k * H + H] for k in range(n)]


def _lstm_step(
    i: Any, f: Any, g: Any, o: Any, ci: Any, cf: Any, cg: Any, co: Any, before: Any
) -> list[Any]:
    i, f, g, o = _squash(i + ci), _squash(f + cf), xp.tanh(g + cg), _squash(o + co)
    cell = f * before + i * g
    return [i, f, g, o, cell, o * xp.tanh(cell)]


def _lstm_back(
    head: Any, dh: Any, i: Any, f: Any, g: Any, o: Any, before: Any, after: Any, dc: Any
) -> list[Any]:
    bent = xp.tanh(after)
    d = dh + head
    e = dc + d * o * (1 - bent * bent)
    da = [e * i * (1 - i) * g, e * f * (1 - f) * before, e * i * (1 - g * g)]
    return [*da, d * o * (1 - o) * bent, e * f]


def _gru_step(cr: Any, cz: Any, cn: Any, bias: Any, h: Any, r: Any, z: Any, n: Any) -> list[Any]:
    r, z = _squash(r + cr), _squash(z + cz)
    share = cn + bias
    n = xp.tanh(n + r * share)
    return [r, z, n, share, n + z * (h - n)]


def _gru_back(g: Any, more: Any, r: Any, z: Any, n: Any, share: Any, h: Any, dh: Any) -> list[Any]:
    d = dh + more + g
    dn = d * (1 - n * n) * (1 - z)
    return [dn, dn * r * share * (1 - r), d * (1 - z) * z * (h - n), dn * r, d * z]


def lstm_step(xp: Any, c: Any, before: Any, gates: Any, after: Any, y: Any) -> None:
    """As `rnn_gates.lstm_step`; c (N, 4H) is added to the gates first."""
    parts = _gates(gates, 4)
    fill(xp, "lstm_step", _lstm_step, [*parts, *_gates(c, 4), before], [*parts, after, y])


def lstm_back(
    xp: Any, g: Any, dh: Any, gates: Any, before: Any, after: Any, dc: Any, D: Any
) -> None:
    """Fill D (N, 4H), the gradient of the gates before their activations. g and dh add up to the
    gradient of the state. dc is the gradient of the cell; it becomes that of the previous cell."""
    inputs = [g, dh, *_gates(gates, 4), before, after, dc]
    fill(xp, "lstm_back", _lstm_back, inputs, [*_gates(D, 4), dc])


def gru_step(xp: Any, c: Any, bias: Any, h: Any, rz: Any, n: Any, share: Any, y: Any) -> None:
    """As `rnn_gates.gru_step`; c (N, 3H) is added to rz, and with the bias becomes share."""
    r, z = _gates(rz, 2)
    fill(xp, "gru_step", _gru_step, [*_gates(c, 3), bias, h, r, z, n], [r, z, n, share, y])


def gru_back(
    xp: Any, g: Any, more: Any, rz: Any, n: Any, share: Any, h: Any, dh: Any, dn: Any, dc: Any
) -> None:
    """Fill dn (N, H) and dc (N, 3H), the gradients of a_n and of c. g, more and dh add up to the
    gradient of the state; dh becomes the part that goes directly to the previous state."""
    inputs = [g, more, *_gates(rz, 2), n, share, h, dh]
    fill(xp, "gru_back", _gru_back, inputs, [dn, *_gates(dc, 3), dh])
