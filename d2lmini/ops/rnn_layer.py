"""One recurrent layer in one direction as an op with separate weights: the op of the cells.

For a single step data is (N, C), for a whole sequence (T, N, C). A sequence is one operation, which
takes a third of the time of T single steps.

>>> from d2lmini import nd
>>> w = [nd.ones((6, 3)) / 9, nd.ones((6, 2)) / 9, nd.zeros(6), nd.zeros(6)]
>>> h = nd.ones((1, 2))
>>> one = nd._internal._rnn_layer(nd.ones((1, 3)), *w, h, mode="gru")
>>> all = nd._internal._rnn_layer(nd.ones((4, 1, 3)), *w, h, mode="gru")
>>> one.shape, all.shape, (one == all[0]).asnumpy().all()
((1, 2), (4, 1, 2), np.True_)

`rnn_compute.py` has the computation, on arrays. To be differentiable more than once, the gradient
is written here a second time, in recorded ops on values.
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.core import ALL, Spec, modes, op
from d2lmini.ops.join import concat, split
from d2lmini.ops.linalg import dot
from d2lmini.ops.rnn_compute import KINDS, Weights, empty_outputs, layer_of, views_of


def _infer(
    data: Spec, i2h_weight: Spec, h2h_weight: Spec, i2h_bias: Spec, h2h_bias: Spec, state: Spec,
    state_cell: Spec | None = None, *, mode: str,
) -> list[Spec]:  # fmt: skip
    check_choice("mode", mode, tuple(KINDS))
    check_float(data, i2h_weight, h2h_weight, i2h_bias, h2h_bias, state, state_cell)
    check_optional("state_cell", state_cell, mode == "lstm", f"mode={mode!r}")
    if len(data.shape) not in (2, 3) or len(state.shape) != 2:
        raise MXNetError(
            f"data is {data.shape}, state {state.shape}, need (N, C) or (T, N, C), and (N, H)"
        )
    N, H = data.shape[-2], state.shape[1]
    G = KINDS[mode].n_gates * H
    why = f"mode={mode!r} with data {data.shape} and {H} units"
    for name, spec, shape in (
        ("i2h_weight", i2h_weight, (G, data.shape[-1])), ("h2h_weight", h2h_weight, (G, H)),
        ("i2h_bias", i2h_bias, (G,)), ("h2h_bias", h2h_bias, (G,)), ("state", state, (N, H)),
        ("state_cell", state_cell, (N, H)),
    ):  # fmt: skip
        check_shape(name, spec, shape, why=why)
    reserve = prod(data.shape[:-1]) * H * sum(KINDS[mode].keeps)
    y = Spec((*data.shape[:-1], H), data.dtype)
    return [y, *([state] if mode == "lstm" else []), Spec((reserve,), data.dtype)]


def _flops(data: Spec, i2h_weight: Spec, h2h_weight: Spec, *_: Spec, out: Spec, mode: str) -> float:
    return 2.0 * prod(data.shape[:-1]) * (i2h_weight.size + h2h_weight.size) + 40 * out.size


def _steps(a: Any) -> Any:
    """(N, X) as (1, N, X)."""
    return a[None] if a.ndim == 2 else a


def _read(vector: Any, y: Any, widths: tuple[int, ...]) -> list[Any]:
    """The arrays (T, N, width * H) in a vector: what a layer keeps, or its slopes."""
    T, N, H = y.shape
    return views_of(vector, [(T, N, k * H) for k in widths])


@op(
    "_rnn_layer", infer=_infer, flops=_flops, outputs=lambda mode, **_: 1 + (mode == "lstm"),
    copied_dtypes="eE",
)  # fmt: skip
def rnn_layer(
    xp, data, i2h_weight, h2h_weight, i2h_bias, h2h_bias, state, state_cell=None, *, mode: str,
    out=None,
):  # fmt: skip
    """A layer over one step (N, C) -> (N, H) or a sequence (T, N, C) -> (T, N, H): all states.

    mode and formulas as in `RNN`; state, and state_cell for 'lstm', (N, H) precede the first step;
    'lstm' also returns the last cell state. i2h_weight (G, C), h2h_weight (G, H), biases (G,),
    G = H times 1, 4 or 3. One dtype; 16 bits are computed in float32. MXNetError at the call
    for shapes and dtypes.
    """
    inputs = (data, i2h_weight, h2h_weight, i2h_bias, h2h_bias, state, state_cell)
    if out is None:
        out = empty_outputs(xp, _infer, inputs, mode=mode)
    y = _steps(out[0])
    states = [state] if state_cell is None else [state, state_cell]
    last = layer_of(xp, mode).forward(
        _steps(data),
        Weights(*inputs[1:5]),
        states,
        y,
        _read(out[-1], y, KINDS[mode].keeps),
        backwards=False,
    )
    if state_cell is not None:
        out[1][...] = last[1]
    return out


@rnn_layer.gradient(saves="y data i2h_weight h2h_weight i2h_bias h2h_bias state state_cell")
def _(
    g, y, data, i2h_weight, h2h_weight, i2h_bias, h2h_bias, state, state_cell, *, mode, needs=ALL
):  # fmt: skip
    states = [state] if state_cell is None else [state, state_cell]
    g_cell = g[1] if mode == "lstm" else None
    if modes.recording:
        w = Weights(i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        return _gradients(g[0], g_cell, data, w, states, mode)
    *others, D = rnn_layer_backward(
        g[0], y[0], y[-1], i2h_weight, h2h_weight, state, state_cell, g_cell,
        mode=mode, wants_data=needs[0],
    )  # fmt: skip
    dx = others.pop(0) if needs[0] else None
    weights = rnn_layer_weights(D, data, y[0], state, mode=mode) if any(needs[1:5]) else [None] * 4
    return [dx, *weights, *others]


def _infer_backward(
    g: Spec, y: Spec, reserve: Spec, i2h_weight: Spec, h2h_weight: Spec, state: Spec, *_: Spec,
    mode: str, wants_data: bool,
) -> list[Spec]:  # fmt: skip
    data = [Spec((*y.shape[:-1], i2h_weight.shape[1]), y.dtype)] * wants_data
    D = Spec((y.size * sum(KINDS[mode].slopes),), y.dtype)
    return [*data, *([state] * (1 + (mode == "lstm"))), D]


@op(
    "_rnn_layer_backward", infer=_infer_backward,
    flops=lambda g, y, reserve, i2h_weight, h2h_weight, *_, out, wants_data, **_attrs: (
        2.0 * prod(y.shape[:-1]) * (h2h_weight.size + wants_data * i2h_weight.size) + 20 * y.size
    ),
    outputs=lambda mode, wants_data, **_: 2 + (mode == "lstm") + wants_data,
    copied_dtypes="eE",
)  # fmt: skip
def rnn_layer_backward(
    xp, g, y, reserve, i2h_weight, h2h_weight, state, state_cell=None, g_cell=None, *, mode: str,
    wants_data: bool, out=None,
):  # fmt: skip
    """Backward of `_rnn_layer`: gradients of data (if needed), state and state_cell (LSTM), and the
    vector D, from which `_rnn_layer_weights` computes the others. Nothing depends on these, so they
    are a separate operation. g_cell is the gradient of the last cell state.
    """
    given = [state] if state_cell is None else [state, state_cell]
    if out is None:
        arrays = (g, y, reserve, i2h_weight, h2h_weight, state)
        out = empty_outputs(xp, _infer_backward, arrays, mode=mode, wants_data=wants_data)
    heads = list(out[wants_data:-1])
    heads[0][...] = 0
    if state_cell is not None:
        heads[1][...] = g_cell
    layer, y, w = layer_of(xp, mode), _steps(y), Weights(i2h_weight, h2h_weight, None, None)
    D = _read(out[-1], y, layer.slopes)
    layer.backward(
        D, w, given, y, _read(reserve, y, KINDS[mode].keeps), _steps(g), heads, backwards=False
    )
    if wants_data:
        layer.into_inputs(D, w, _steps(out[0]), add=False)
    return out


def _infer_weights(D: Spec, data: Spec, y: Spec, state: Spec, *, mode: str) -> list[Spec]:
    H = state.shape[1]
    G = KINDS[mode].n_gates * H
    return [Spec(shape, D.dtype) for shape in ((G, data.shape[-1]), (G, H), (G,), (G,))]


@op(
    "_rnn_layer_weights", infer=_infer_weights, outputs=4, copied_dtypes="eE",
    flops=lambda D, data, y, state, *, out, mode: (
        2.0 * out.shape[0] * (prod(data.shape) + prod(y.shape))
    ),
)  # fmt: skip
def rnn_layer_weights(xp, D, data, y, state, *, mode: str, out=None):
    """Gradients of `_rnn_layer` for both weights and both biases."""
    if out is None:
        out = empty_outputs(xp, _infer_weights, (D, data, y, state), mode=mode)
    y = _steps(y)
    layer_of(xp, mode).into_weights(
        _read(D, y, KINDS[mode].slopes), _steps(data), y, state, Weights(*out), backwards=False
    )
    return out


for backward_op in (rnn_layer_backward, rnn_layer_weights):

    @backward_op.gradient()
    def _(g):
        raise MXNetError("its gradient is not supported: record while differentiating instead")


# -- the gradient again, in ops on values ----------------------------------------------------------


def _gradients(g: Any, g_cell: Any, data: Any, w: Weights, states: list[Any], mode: str) -> list:
    """The results of `rnn_layer_backward`, for all inputs; recorded."""
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
    more = [] if g_cell is None else [g_cell]
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
