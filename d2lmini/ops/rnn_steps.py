"""A recurrent layer as a formula, step by step: its gradient can be differentiated again.

`rnn_compute.py` computes all steps of a layer, and their gradient, on arrays. A gradient that
autograd records comes from this formula instead (`rnn_gates.py` explains the gates).
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.composed import Composed
from d2lmini.ops.formula import pull_back
from d2lmini.ops.join import split, stack
from d2lmini.ops.linalg import dot


def _lstm(a: Any, c: Any, _h: Any, cell: Any) -> tuple[Any, Any]:
    i, f, n, o = split(a + c, num_outputs=4, axis=1)
    cell = f.sigmoid() * cell + i.sigmoid() * n.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru(a: Any, c: Any, h: Any) -> tuple[Any]:
    ar, az, an = split(a, num_outputs=3, axis=1)
    cr, cz, cn = split(c, num_outputs=3, axis=1)
    n = (an + (ar + cr).sigmoid() * cn).tanh()
    return (n + (az + cz).sigmoid() * (h - n),)


#: (products of input and of state, states) -> the next states, by `mode`.
STEPS: dict[str, Any] = {
    "rnn_tanh": lambda a, c, _h: [(a + c).tanh()],
    "rnn_relu": lambda a, c, _h: [(a + c).relu()],
    "lstm": _lstm,
    "gru": _gru,
}


def _all_steps(
    data: Any, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any, *states: Any,
    mode: str,
) -> list[Any]:  # fmt: skip
    """All states h and the last cell state, of a sequence (T, N, C) or one step (N, C)."""
    steps: Any = data
    if data.ndim == 3:
        steps = split(data, num_outputs=data.shape[0], axis=0, squeeze_axis=True)
    h = []
    for x in steps if isinstance(steps, list) else [steps]:
        a = dot(x, i2h_weight, transpose_b=True) + i2h_bias
        c = dot(states[0], h2h_weight, transpose_b=True) + h2h_bias
        states = STEPS[mode](a, c, *states)
        h.append(states[0])
    return [h[0] if data.ndim == 2 else stack(*h, axis=0), *states[1:]]


_layer = Composed(_all_steps, "_rnn_layer_by_steps")


def gradients_by_steps(gs: Any, inputs: Any, needs: Any, mode: str) -> list[Any]:
    """The gradients of the inputs of `_rnn_layer`, from those of its outputs, recorded."""
    return pull_back(_layer, gs, inputs, [needs[i] for i in range(len(inputs))], {"mode": mode})
