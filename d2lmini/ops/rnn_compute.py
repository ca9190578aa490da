"""One layer of `RNN` in one direction: forward and backward over all steps.

With a = W x + b for all steps at once, c = U h + d in each step, both split into gates of H
numbers, and s the sigmoid, the kinds of layers are

    relu, tanh    h' = f(a + c)
    GRU           r, z = s(a + c)    n = tanh(a_n + r c_n)                  h' = n + z (h - n)
    LSTM          i, f, o = s(a + c)    g = tanh(a_g + c_g)    c' = f c + i g    h' = o tanh(c')

The gates are stored in the order r z n and i f g o, as in MXNet and cuDNN; the GRU is cuDNN's,
whose reset gate comes after the product (K. Cho et al., 2014, have it before).

A kind defines the computation between the products of a step; `Layer` has the products and the loop
over time, which all kinds share:

    back       D = slopes * (gradient of h')          dh = D U + the part that bypasses the gates
               dW = sum over steps of D^T x           dU = sum over steps of D^T h

`slopes` are the derivatives of h' for a and c. They depend on forward values only, so they are
computed for all steps before the backward loop; a step of that loop is one product and a few
multiplications.

All computes in place on arrays of NumPy or CuPy. Arrays that are often processed are separate and
contiguous: NumPy processes columns of a wider array row by row, which took twice as long.

>>> sorted(KINDS)
['gru', 'lstm', 'rnn_relu', 'rnn_tanh']
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import accumulate
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from d2lmini.ops import chunking
from d2lmini.ops.core import Shape
from d2lmini.ops.kernels import with_kernels
from d2lmini.ops.products import matmul
from d2lmini.ops.scalar_cache import maximum_scalar, scalars

#: Slopes of several steps are computed in chunks of about this many numbers.
GRAIN = 1 << 17


class Weights(NamedTuple):
    """Parameters of one layer and direction; G = gates * H: (G, I), (G, H), (G,), (G,)."""

    i2h: Any
    h2h: Any
    i2h_bias: Any
    h2h_bias: Any


class Layer:
    """The parts that all kinds share. A kind defines

    n_gates  rows of the weights for each unit
    keeps    the values of k for the arrays (T, N, k H) that backward needs besides the outputs
    slopes   the values of k for the parts of D: the first is the gradient of a, the last that of c
    step     (c, w, states, y, kept, work) -> next states: completes a step after its product c and
             fills y, the next h. kept: the parts of this step; `work` (N, H) is scratch memory
    back     (D, before, kept, across, y, g, heads): fills D, the gradients of a and c, from the
             last step to the first, which updates `heads`. before: the states before each step;
             across: U
    """

    n_gates = 1
    keeps: ClassVar[tuple[int, ...]] = ()
    slopes: ClassVar[tuple[int, ...]] = (1,)
    step: Callable[..., list[Any]]
    back: Callable[..., None]

    def __init__(self, xp: Any):
        self.xp = xp

    # -- forward ----------------------------------------------------------------------------------

    def forward(
        self, x: Any, w: Weights, states: list[Any], y: Any, kept: list[Any], backwards: bool
    ) -> list[Any]:
        """Fill y (T, N, H), which may be a part of a wider array, and `kept`; returns the last
        states. x (T, N, I); states: h, or h and c, (N, H); backwards: start at the last step."""
        xp = self.xp
        T, N, H = y.shape
        self.inputs(rows(x), w, y, kept)
        y, *kept = in_order(backwards, y, *kept)
        across = w.h2h.T
        c, work = (xp.empty((N, k * H), y.dtype) for k in (self.n_gates, 1))
        for t in range(T):
            matmul(xp, states[0], across, c)
            states = self.step(c, w, states, y[t], [a[t] for a in kept], work)
        return states

    def inputs(self, x: Any, w: Weights, y: Any, kept: list[Any]) -> None:
        """Compute the products of all inputs, plus all biases that can be added here."""
        place = kept[0] if kept else y
        matmul(self.xp, x, w.i2h.T, rows(place))
        place += w.i2h_bias + w.h2h_bias

    # -- back -------------------------------------------------------------------------------------

    def backward(
        self, x: Any, w: Weights, states: list[Any], y: Any, kept: list[Any], g: Any,
        heads: list[Any], grads: Weights, dx: Any, backwards: bool,
    ) -> None:  # fmt: skip
        """Fill grads and dx (T, N, I), to which `backwards` adds (None: not needed).

        g (T, N, H) is the gradient of y, `heads` (N, H) those of the last states; these arrays
        become the gradients of `states`."""
        xp, (T, N, H) = self.xp, y.shape
        D = [xp.empty((T, N, k * H), y.dtype) for k in self.slopes]
        before = []
        for first, after in zip(states, (y, *kept[-1:])):
            parts = (after[1:], first[None]) if backwards else (first[None], after[:-1])
            before.append(xp.concatenate(parts)[:T] if T > 1 else first[None][:T])
        steps, states_before, kept = (in_order(backwards, *a) for a in (D, before, kept))
        y_steps, g_steps = in_order(backwards, y, g)
        self.back(steps, states_before, kept, w.h2h, y_steps, g_steps, heads)
        adds = backwards
        for part, d in self.gates_of_a(D):
            matmul(xp, d.T, rows(x), grads.i2h[part])
            sum_rows(xp, d, grads.i2h_bias[part])
            if dx is not None and adds:
                rows(dx)[...] += matmul(xp, d, w.i2h[part])
            elif dx is not None:
                matmul(xp, d, w.i2h[part], rows(dx))
            adds = True
        matmul(xp, rows(D[-1]).T, rows(before[0]), grads.h2h)
        sum_rows(xp, rows(D[-1]), grads.h2h_bias)

    def gates_of_a(self, D: list[Any]) -> list[tuple[slice, Any]]:
        """Pairs of the rows of the weight W and their gradients of a, (T N, rows)."""
        return [(slice(None), rows(D[0]))]

    def share(self, slopes: Callable[..., None], *arrays: Any) -> None:
        """Call `slopes(xp, *arrays)` on chunks of all steps, in parallel."""
        T = len(arrays[0])
        n = min(T, arrays[1].size // GRAIN)
        body = partial(slopes, self.xp)
        chunking.share(self.xp, T, n, lambda part: body(*(a[part] for a in arrays)))


def in_order(backwards: bool, *arrays: Any) -> list[Any]:
    """Views of arrays (T, ...) in the order of the steps: `backwards` begins at the last."""
    return [a[::-1] for a in arrays] if backwards else list(arrays)


def views_of(vector: Any, shapes: tuple[Shape, ...]) -> list[Any]:
    """Split a vector into views of these shapes, in order."""
    return [vector[part].reshape(shape) for part, shape in zip(_parts_of(shapes), shapes)]


@lru_cache(maxsize=1024)
def _parts_of(shapes: tuple[Shape, ...]) -> list[slice]:
    ends = list(accumulate(map(prod, shapes)))
    return list(map(slice, [0, *ends], ends))


def rows(a: Any) -> Any:
    """(T, N, X) as (T N, X), a view."""
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2])


@with_kernels
def sum_rows(xp: Any, x: Any, out: Any) -> None:
    """Fill out (X,) with the sums of the columns of x (R, X)."""
    np.sum(x, axis=0, out=out)


class Tanh(Layer):
    """h' = tanh(a + c). a is computed in the memory of h'."""

    def activate(self, y: Any) -> None:
        self.xp.tanh(y, out=y)

    def slope(self, y: Any, out: Any) -> None:
        self.xp.square(y, out=out)
        self.xp.subtract(1, out, out=out)

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        y += c
        self.activate(y)
        return [y]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        (slopes,), (dh,) = D, heads
        self.slope(y, slopes)
        for t in reversed(range(len(g))):
            dh += g[t]
            d = slopes[t]
            d *= dh
            matmul(self.xp, d, across, dh)


class Relu(Tanh):
    """h' = max(a + c, 0)."""

    def activate(self, y: Any) -> None:
        maximum_scalar(self.xp, y, 0, y)

    def slope(self, y: Any, out: Any) -> None:
        self.xp.greater(y, 0, out=out)


def split_gates(gates: Any, n: int) -> Any:
    """(..., n H) as (..., n, H), a view."""
    return gates.reshape(*gates.shape[:-1], n, gates.shape[-1] // n)


class LSTM(Layer):
    """Keeps the gates i f g o and the cell states."""

    n_gates = 4
    keeps = (4, 1)
    slopes = (4,)

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        xp, (gates, cell) = self.xp, kept
        gates += c
        H = y.shape[1]
        i, f, g, o = (gates[:, k * H : k * H + H] for k in range(4))
        # The sigmoid of x is (1 + tanh(x / 2)) / 2: one pass of tanh computes all four gates.
        half, first = scalars[xp][gates.dtype][0.5], gates[:, : 2 * H]
        first *= half
        o *= half
        xp.tanh(gates, out=gates)
        first *= half
        first += half
        o *= half
        o += half
        xp.multiply(i, g, out=work)
        xp.multiply(f, states[1], out=cell)
        cell += work
        xp.tanh(cell, out=work)
        xp.multiply(o, work, out=y)
        return [y, cell]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        (gates, cells), (dh, dc) = kept, heads
        through = self.xp.empty(cells.shape, cells.dtype)
        H = dh.shape[1]
        D4, work = split_gates(D[0], 4), self.xp.empty(dh.shape, dh.dtype)
        self.share(lstm_slopes, before[1], gates, cells, D4, through)
        for t in reversed(range(len(g))):
            dh += g[t]
            self.xp.multiply(dh, through[t], out=work)
            dc += work
            d = D4[t]
            d[:, :3] *= dc[:, None]
            d[:, 3] *= dh
            dc *= gates[t, :, H : 2 * H]
            matmul(self.xp, D[0][t], across, dh)


class GRU(Layer):
    """Keeps the gates r z, the gate n, and the state's part of n, U_n h + d_n."""

    n_gates = 3
    keeps = (2, 1, 1)
    slopes = (1, 3)  # for a_n, and for c

    def inputs(self, x: Any, w: Weights, y: Any, kept: list[Any]) -> None:
        rz, n, _ = kept
        cut = rz.shape[2]
        for place, gates in ((rz, slice(0, cut)), (n, slice(cut, None))):
            matmul(self.xp, x, w.i2h[gates].T, rows(place))
        rz += w.i2h_bias[:cut] + w.h2h_bias[:cut]
        n += w.i2h_bias[cut:]

    def step(self, c, w, states, y, kept, work) -> list[Any]:
        xp, (rz, n, share) = self.xp, kept
        cut = rz.shape[1]
        rz += c[:, :cut]
        xp.add(c[:, cut:], w.h2h_bias[cut:], out=share)
        # The op `sigmoid` does not serve: NumPy 2.4 computes np.negative(x, out=x) wrongly where x
        # is one column of four.
        number = scalars[xp][rz.dtype]
        rz *= number[-1]
        xp.exp(rz, out=rz)
        rz += number[1]
        xp.divide(number[1], rz, out=rz)
        xp.multiply(rz[:, : cut // 2], share, out=work)
        n += work
        xp.tanh(n, out=n)
        xp.subtract(states[0], n, out=work)
        work *= rz[:, cut // 2 :]
        xp.add(n, work, out=y)
        return [y]

    def back(self, D, before, kept, across, y, g, heads) -> None:
        (dn, dc), (dh,) = D, heads
        self.share(gru_slopes, before[0], *kept, dn, dc)
        z, dc3 = kept[0][:, :, dh.shape[1] :], split_gates(dc, 3)
        work = self.xp.empty(dh.shape, dh.dtype)
        for t in reversed(range(len(g))):
            dh += g[t]
            dn[t] *= dh
            dc3[t] *= dh[:, None]
            matmul(self.xp, dc[t], across, work)
            dh *= z[t]
            dh += work

    def gates_of_a(self, D: list[Any]) -> list[tuple[slice, Any]]:
        dn, dc = (rows(d) for d in D)
        cut = 2 * dn.shape[1]
        return [(slice(0, cut), dc[:, :cut]), (slice(cut, None), dn)]


# -- the slopes of many steps ----------------------------------------------------------------------


def gru_slopes(xp: Any, h: Any, rz: Any, n: Any, share: Any, dn: Any, dc: Any) -> None:
    """Fill dn (..., H) with dh'/da_n and dc (..., 3H) with dh'/dc; the first two parts of dc are
    dh'/da as well. The other arrays are as `GRU.step` left them."""
    H = n.shape[-1]
    r, z = rz[..., :H], rz[..., H:]
    xp.multiply(1 - n * n, 1 - z, out=dn)
    xp.multiply((1 - z) * z, h - n, out=dc[..., H : 2 * H])
    dcn = dn * r
    dc[..., 2 * H :] = dcn
    xp.multiply(dcn * share, 1 - r, out=dc[..., :H])


def lstm_slopes(xp: Any, c: Any, gates: Any, c_next: Any, slopes: Any, through: Any) -> None:
    """Fill slopes (..., 4, H) with dc'/da_i, dc'/da_f, dc'/da_g, dh'/da_o, and `through` (..., H)
    with dh'/dc'. The other arrays are as `LSTM.step` left them."""
    gates = split_gates(gates, 4)
    i, f, g, o = (gates[..., k, :] for k in range(4))
    xp.multiply((1 - i) * i, g, out=slopes[..., 0, :])
    xp.multiply((1 - f) * f, c, out=slopes[..., 1, :])
    xp.multiply(1 - g * g, i, out=slopes[..., 2, :])
    bent = xp.tanh(c_next)
    xp.multiply((1 - o) * o, bent, out=slopes[..., 3, :])
    xp.multiply(1 - bent * bent, o, out=through)


#: Kinds of layers, by `mode`.
KINDS: dict[str, type[Layer]] = {"rnn_relu": Relu, "rnn_tanh": Tanh, "lstm": LSTM, "gru": GRU}


@with_kernels
def layer_of(xp: Any, mode: str) -> Layer:
    """The layer of a kind, for arrays of the module `xp`."""
    return KINDS[mode](xp)
