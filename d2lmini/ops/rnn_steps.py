"""The gradient of a recurrent layer step by step, in ops on values: it can be recorded.

`rnn_compute.py` computes the gradient of all steps of a layer on arrays. To be differentiable once
more, the gradient is written here a second time; `_rnn_layer` uses it while autograd records.
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.join import concat, split
from d2lmini.ops.linalg import dot
from d2lmini.ops.rnn_compute import Weights


def gradients_by_steps(
    g: Any, g_cell: list[Any], data: Any, w: Weights, states: list[Any], mode: str
) -> list[Any]:
    """The gradients of data, the parameters and the states. g_cell: that of the last cell state."""
    one = len(data.shape) == 2
    xs, gs = ([a] if one else _split(a, data.shape[0]) for a in (data, g))
    history = []
    for x in xs:
        a = dot(x, w.i2h, transpose_b=True) + w.i2h_bias
        c = dot(states[0], w.h2h, transpose_b=True) + w.h2h_bias
        next_states, back = _STEPS[mode](a, c, states)
        history.append((x, states[0], back))
        states = next_states
    dh = gs[0].zeros_like()
    more = g_cell
    das: list[Any] = []
    dcs: list[Any] = []
    for (_, _, back), gt in zip(reversed(history), reversed(gs), strict=True):
        da, dc, passed, more = back(dh + gt, *more)
        dh = dot(dc, w.h2h)
        if passed is not None:
            dh = dh + passed
        das.insert(0, da)
        dcs.insert(0, dc)
    da, dc, x, h = (
        concat(*rows, dim=0) for rows in (das, dcs, xs, [h for _, h, _ in history])
    )  # a row for each step and sequence
    dx = dot(da, w.i2h).reshape(data.shape)
    dw = dot(da, x, transpose_a=True), dot(dc, h, transpose_a=True)
    return [dx, *dw, da.sum(axis=0), dc.sum(axis=0), dh, *more]


def _split(a: Any, n: int) -> list[Any]:
    """(n, N, X) as n values (N, X)."""
    parts = split(a, num_outputs=n, axis=0, squeeze_axis=True)
    return parts if n > 1 else [parts]


def _plain_step(activate: str) -> Any:
    def step(a: Any, c: Any, states: list[Any]) -> tuple:
        y = getattr(a + c, activate)()

        def back(g: Any) -> tuple:
            d = g * (1 - y * y) if activate == "tanh" else g * (y > 0)
            return d, d, None, []

        return [y], back

    return step


def _lstm_step(a: Any, c: Any, states: list[Any]) -> tuple:
    i, f, n, o = split(a + c, num_outputs=4, axis=1)
    i, f, n, o = i.sigmoid(), f.sigmoid(), n.tanh(), o.sigmoid()
    cell = f * states[1] + i * n
    tanh_cell = cell.tanh()

    def back(g: Any, g_cell: Any) -> tuple:
        dcell = g_cell + g * o * (1 - tanh_cell * tanh_cell)
        d = concat(
            dcell * n * i * (1 - i), dcell * states[1] * f * (1 - f), dcell * i * (1 - n * n),
            g * tanh_cell * o * (1 - o), dim=1,
        )  # fmt: skip
        return d, d, None, [dcell * f]

    return [o * tanh_cell, cell], back


def _gru_step(a: Any, c: Any, states: list[Any]) -> tuple:
    ar, az, an = split(a, num_outputs=3, axis=1)
    cr, cz, cn = split(c, num_outputs=3, axis=1)
    r, z = (ar + cr).sigmoid(), (az + cz).sigmoid()
    n = (an + r * cn).tanh()

    def back(g: Any) -> tuple:
        dn = g * (1 - z) * (1 - n * n)
        dr = dn * cn * r * (1 - r)
        dz = g * (states[0] - n) * z * (1 - z)
        return concat(dr, dz, dn, dim=1), concat(dr, dz, dn * r, dim=1), g * z, []

    return [n + z * (states[0] - n)], back


#: (a, c, states) -> (next states, back). back(*gradients of next states) returns the gradients of a
#: and c, the part of h's that bypasses the gates (or None), and, in a list, that of the cell state.
_STEPS = {
    "rnn_tanh": _plain_step("tanh"),
    "rnn_relu": _plain_step("relu"),
    "lstm": _lstm_step,
    "gru": _gru_step,
}
