"""The arithmetic between the matrix products of a recurrent step, and as ops: one for each cell.

With a = W x + b (`i2h`) and c = U h + d (`h2h`), each cut into gates of H numbers, s the sigmoid:

    GRU    r, z = s(a + c)    n = tanh(a_n + r c_n)                  h' = n + z (h - n)
    LSTM   i, f, o = s(a + c)    g = tanh(a_g + c_g)    c' = f c + i g    h' = o tanh(c')

The order of the gates in memory is r z n and i f g o, as in MXNet and cuDNN; the GRU is cuDNN's,
whose reset gate comes after the product (K. Cho et al., 2014, has it before).

`nd.RNN` runs the functions here over whole sequences; the cells of `gluon.rnn` call the ops, one
where MXNet has ten. Backward, the derivative of every gate is a product of numbers that are known
before the gradient g comes, so `gru_slopes` and `lstm_slopes` prepare those and g is only
multiplied in: over a sequence, they prepare all steps at once.

>>> from d2lmini import nd
>>> i2h, h2h, h = nd.zeros((1, 6)), nd.zeros((1, 6)), nd.array([[2, 4]])
>>> nd._internal._gru_gates(i2h, h2h, h)            # z = 1/2, n = 0
<BLANKLINE>
[[1. 2.]]
<NDArray 1x2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float, check_shape
from d2lmini.ops.core import Spec, modes, op
from d2lmini.ops.join import concat
from d2lmini.ops.scalars import fit


def squash(xp: Any, x: Any) -> None:
    """x := 1 / (1 + e^-x), in place, as (1 + tanh(x / 2)) / 2.

    x may be some columns of an array. (On those the op `sigmoid` must not work in place: NumPy 2.4
    computes np.negative(x, out=x) wrongly for one column of four.)
    """
    half = fit[xp][x.dtype][0.5]
    x *= half
    xp.tanh(x, out=x)
    x *= half
    x += half


def cut(gates: Any, n: int) -> Any:
    """(..., n H) as (..., n, H), a view."""
    return gates.reshape(*gates.shape[:-1], n, gates.shape[-1] // n)


# -- GRU ------------------------------------------------------------------------------------------


def gru_step(xp: Any, gates: Any, rz: Any, hn: Any, h: Any, y: Any, work: Any) -> None:
    """One step. gates (N, 3H): holds a, is filled with r z n. rz (N, 2H) and hn (N, H) are c.
    h, y (N, H): the state and the next one. work (N, H) is overwritten."""
    H = h.shape[-1]
    first = gates[:, : 2 * H]
    first += rz
    squash(xp, first)
    n = gates[:, 2 * H :]
    xp.multiply(first[:, :H], hn, out=work)
    n += work
    xp.tanh(n, out=n)
    xp.subtract(h, n, out=work)
    work *= first[:, H:]
    xp.add(n, work, out=y)


def gru_slopes(xp: Any, gates: Any, hn: Any, h: Any, slopes: Any) -> None:
    """Fill slopes (..., 4, H) with dh'/da_n, dh'/da_r, dh'/da_z, dh'/dc_n, in this order: the last
    three are those of c. gates (..., 3H) are r z n."""
    gates = cut(gates, 3)
    r, z, n = gates[..., 0, :], gates[..., 1, :], gates[..., 2, :]
    dn, dr, dz, dcn = (slopes[..., i, :] for i in range(4))
    one = fit[xp][gates.dtype][1]
    xp.subtract(one, z, out=dcn)  # 1 - z, needed twice
    xp.subtract(h, n, out=dz)
    dz *= z
    dz *= dcn
    xp.multiply(n, n, out=dn)
    xp.subtract(one, dn, out=dn)
    dn *= dcn
    xp.multiply(dn, r, out=dcn)
    xp.subtract(one, r, out=dr)
    dr *= dcn
    dr *= hn


def _infer_gru(i2h: Spec, h2h: Spec, state: Spec) -> Spec:
    check_float(i2h, h2h, state, half=False)
    N, H = state.shape if len(state.shape) == 2 else (-1, -1)
    check_shape("i2h", i2h, (N, 3 * H), why=f"three gates for a state of shape {state.shape}")
    check_shape("h2h", h2h, (N, 3 * H), why=f"three gates for a state of shape {state.shape}")
    return state


@op("_gru_gates", infer=_infer_gru, flops=40)
def gru_gates(xp, i2h, h2h, state, *, out=None):
    """The next state of a GRU: i2h, h2h (N, 3H), state (N, H) -> (N, H); formula above.

    One dtype, float32 or float64. MXNetError at the call for shapes and dtypes."""
    H = state.shape[1]
    y = xp.empty(state.shape, state.dtype) if out is None else out
    work = xp.empty(state.shape, state.dtype)
    gru_step(xp, i2h.copy(), h2h[:, : 2 * H], h2h[:, 2 * H :], state, y, work)
    return y


@gru_gates.gradient(saves="i2h h2h state")
def _(g, i2h, h2h, state):
    if not modes.recording:
        return gru_gates_backward(g, i2h, h2h, state)
    # For higher orders, in plain ops.
    H = state.shape[1]
    a = [i2h.slice_axis(axis=1, begin=k * H, end=k * H + H) for k in range(3)]
    c = [h2h.slice_axis(axis=1, begin=k * H, end=k * H + H) for k in range(3)]
    r, z = (a[0] + c[0]).sigmoid(), (a[1] + c[1]).sigmoid()
    n = (a[2] + r * c[2]).tanh()
    dn = g * (1 - z) * (1 - n * n)
    dr = dn * c[2] * r * (1 - r)
    dz = g * (state - n) * z * (1 - z)
    return concat(dr, dz, dn, dim=1), concat(dr, dz, dn * r, dim=1), g * z


@op("_gru_gates_backward", infer=lambda g, i2h, h2h, state: [i2h, h2h, state], flops=20)
def gru_gates_backward(xp, g, i2h, h2h, state, *, out=None):
    """Gradients of `_gru_gates` for its inputs, all gates computed once more."""
    di, dh, ds = out or [xp.empty(a.shape, a.dtype) for a in (i2h, h2h, state)]
    N, H = state.shape
    gates, hn = i2h.copy(), h2h[:, 2 * H :]
    gru_step(xp, gates, h2h[:, : 2 * H], hn, state, ds, dh[:, :H])
    slopes = xp.empty((N, 4, H), g.dtype)
    gru_slopes(xp, gates, hn, state, slopes)
    xp.multiply(slopes[:, 1:], g[:, None], out=cut(dh, 3))
    di[:, : 2 * H] = dh[:, : 2 * H]
    xp.multiply(slopes[:, 0], g, out=di[:, 2 * H :])
    xp.multiply(g, gates[:, H : 2 * H], out=ds)
    return di, dh, ds


# -- LSTM -----------------------------------------------------------------------------------------


def lstm_step(xp: Any, gates: Any, c: Any, c_next: Any, y: Any, work: Any, clip: Any) -> None:
    """One step. gates (N, 4H): holds a + c, is filled with i f g o. c, c_next, y, work (N, H).
    clip: None, or a function that bounds c_next in place."""
    H = c.shape[-1]
    i, f, g, o = (gates[:, k * H : k * H + H] for k in range(4))
    squash(xp, gates[:, : 2 * H])
    xp.tanh(g, out=g)
    squash(xp, o)
    xp.multiply(i, g, out=work)
    xp.multiply(f, c, out=c_next)
    c_next += work
    if clip is not None:
        clip(c_next)
    xp.tanh(c_next, out=work)
    xp.multiply(o, work, out=y)


def lstm_slopes(xp: Any, gates: Any, c: Any, c_next: Any, slopes: Any, through: Any) -> None:
    """Fill slopes (..., 4, H) with dc'/da_i, dc'/da_f, dc'/da_g, dh'/da_o, and `through` (..., H)
    with dh'/dc'. gates (..., 4H) are i f g o."""
    gates = cut(gates, 4)
    i, f, g, o = (gates[..., k, :] for k in range(4))
    di, df, dg, do = (slopes[..., k, :] for k in range(4))
    one = fit[xp][gates.dtype][1]
    xp.subtract(one, i, out=di)
    di *= i
    di *= g
    xp.subtract(one, f, out=df)
    df *= f
    df *= c
    xp.multiply(g, g, out=dg)
    xp.subtract(one, dg, out=dg)
    dg *= i
    xp.tanh(c_next, out=through)
    xp.subtract(one, o, out=do)
    do *= o
    do *= through
    through *= through
    xp.subtract(one, through, out=through)
    through *= o


def _infer_lstm(i2h: Spec, h2h: Spec, state_cell: Spec) -> list[Spec]:
    check_float(i2h, h2h, state_cell, half=False)
    N, H = state_cell.shape if len(state_cell.shape) == 2 else (-1, -1)
    check_shape("i2h", i2h, (N, 4 * H), why=f"four gates for a state of shape {state_cell.shape}")
    check_shape("h2h", h2h, (N, 4 * H), why=f"four gates for a state of shape {state_cell.shape}")
    return [state_cell, state_cell]


@op("_lstm_gates", infer=_infer_lstm, flops=40, outputs=2)
def lstm_gates(xp, i2h, h2h, state_cell, *, out=None):
    """The next state and cell state of an LSTM: i2h, h2h (N, 4H), state_cell (N, H) -> two (N, H).

    One dtype, float32 or float64. MXNetError at the call for shapes and dtypes."""
    like = (state_cell.shape, state_cell.dtype)
    y, c_next = out or (xp.empty(*like), xp.empty(*like))
    lstm_step(xp, i2h + h2h, state_cell, c_next, y, xp.empty(*like), None)
    return y, c_next


@lstm_gates.gradient(saves="i2h h2h state_cell")
def _(g, i2h, h2h, state_cell):
    if not modes.recording:
        d, dc = lstm_gates_backward(g[0], g[1], i2h, h2h, state_cell)
        return d, d, dc
    H = state_cell.shape[1]
    a = i2h + h2h
    a = [a.slice_axis(axis=1, begin=k * H, end=k * H + H) for k in range(4)]
    i, f, n, o = a[0].sigmoid(), a[1].sigmoid(), a[2].tanh(), a[3].sigmoid()
    tanh_c = (f * state_cell + i * n).tanh()
    dc = g[1] + g[0] * o * (1 - tanh_c * tanh_c)
    d = concat(
        dc * n * i * (1 - i), dc * state_cell * f * (1 - f), dc * i * (1 - n * n),
        g[0] * tanh_c * o * (1 - o), dim=1,
    )  # fmt: skip
    return d, d, dc * f


@op("_lstm_gates_backward", infer=lambda g, gc, i2h, h2h, c: [i2h, c], flops=20, outputs=2)
def lstm_gates_backward(xp, g, gc, i2h, h2h, state_cell, *, out=None):
    """Gradients of `_lstm_gates` for i2h, which is that for h2h, and for state_cell."""
    d, dc = out or (xp.empty(i2h.shape, g.dtype), xp.empty(g.shape, g.dtype))
    N, H = g.shape
    gates = i2h + h2h
    c_next, through = xp.empty((N, H), g.dtype), xp.empty((N, H), g.dtype)
    lstm_step(xp, gates, state_cell, c_next, through, dc, None)
    slopes = cut(d, 4)
    lstm_slopes(xp, gates, state_cell, c_next, slopes, through)
    xp.multiply(g, through, out=dc)
    dc += gc
    slopes[:, :3] *= dc[:, None]
    slopes[:, 3] *= g
    dc *= gates[:, H : 2 * H]
    return d, dc


for each in (gru_gates_backward, lstm_gates_backward):

    @each.gradient()
    def _(g):
        raise MXNetError("its gradient is not built in: record while differentiating instead")
