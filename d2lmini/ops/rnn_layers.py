"""One layer of `RNN` in one direction: forward over all steps, and back.

A kind of layer (relu, tanh, LSTM, GRU) says what happens between the products of a step; the
products and the way through time are the same for all and stand in `Layer`. With a = W x + b for
all steps at once and c = U h in each step:

    forward    h' = f(a, c, h)
    back       D = slopes * (gradient of h')          dh = D U + what passes by the gates
               dW = sum over steps of D^T x           dU = sum over steps of D^T h

`slopes` are the derivatives of h' for a and c. Forward has fixed them all, so they are computed for
all steps before the way back begins, and a step of it is a product and a few multiplications.

>>> sorted(KINDS)
['gru', 'lstm', 'rnn_relu', 'rnn_tanh']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from d2lmini.device.parallel import parallel_for
from d2lmini.ops import pieces
from d2lmini.ops.linalg import matmul
from d2lmini.ops.rnn_gates import cut, gru_slopes, gru_step, lstm_slopes, lstm_step

#: Slopes of several steps are computed in pieces of about this many numbers.
GRAIN = 1 << 17


class Weights(NamedTuple):
    """Parameters of one layer and direction, of G = gates * H rows: (G, I), (G, H), (G,), (G,)."""

    i2h: Any
    h2h: Any
    i2h_bias: Any
    h2h_bias: Any


class Clip:
    """x := x between two bounds, in place; nan becomes the upper one if `nan`, else stays."""

    def __init__(self, xp: Any, low: float, high: float, nan: bool):
        self.xp, self.low, self.high, self.nan = xp, low, high, nan

    def __call__(self, x: Any) -> None:
        if self.nan:
            self.xp.fmin(x, self.high, out=x)
        self.xp.clip(x, self.low, self.high, out=x)

    def passes(self, x: Any) -> Any:
        """1 where the bounded x is inside, so that a gradient passes, else 0."""
        return ((x > self.low) & (x < self.high)).astype(x.dtype)


class Layer:
    """What all kinds share.

    n_gates  G / H: rows of the weights for each unit
    keeps    what backward needs of forward: arrays (T, N, k H), these k; the first, of all gates,
             is also where W x of all steps goes. Without any, backward needs the outputs alone
    slopes_per_unit  numbers in D for each unit; the last n_gates of them are the gradient of c
    """

    n_gates = 1
    keeps: ClassVar[tuple[int, ...]] = ()
    slopes_per_unit = 1

    def __init__(self, xp: Any, clip: Clip | None = None):
        self.xp = xp
        self.clip = clip

    # -- forward ----------------------------------------------------------------------------------

    def forward(
        self, x: Any, w: Weights, states: list[Any], y: Any, kept: list[Any], backwards: bool
    ) -> list[Any]:
        """Fill y (T, N, H), which may be a part of a wider array, and `kept`; returns the last
        states. x (T, N, I); states: h, or h and c, (N, H); backwards: from the last step on."""
        xp = self.xp
        T, N, H = y.shape
        a = kept[0] if kept else y
        matmul(xp, rows(x), w.i2h.T, out=rows(a))
        a += self.bias(w)
        # A product with a transposed matrix is slower: copied once it serves all steps.
        across = w.h2h.T.copy() if T > 2 else w.h2h.T
        c = xp.empty((N, self.n_gates * H), y.dtype)
        step = self.stepper(w, kept, xp.empty((N, H), y.dtype))
        for t in reversed(range(T)) if backwards else range(T):
            matmul(xp, states[0], across, out=c)
            states = step(t, c, states, y[t])
        return states

    def bias(self, w: Weights) -> Any:
        """What of both biases can be added before the steps."""
        return w.i2h_bias + w.h2h_bias

    def stepper(self, w: Weights, kept: list[Any], work: Any) -> Callable[..., list[Any]]:
        """A function (t, c, states, y) -> next states, which does what comes after the product of
        step t and fills y, the next h. `work` (N, H) is free to use."""
        raise NotImplementedError

    # -- back -------------------------------------------------------------------------------------

    def backward(
        self, x: Any, w: Weights, states: list[Any], y: Any, kept: list[Any], g: Any,
        heads: list[Any], grads: Weights, dx: Any, add: bool, backwards: bool,
    ) -> None:  # fmt: skip
        """Fill `grads`, and dx (T, N, I) unless it is None (adding to what is there if `add`).

        g (T, N, H) is the gradient of y, `heads` (N, H) those of the last states; these arrays
        become the gradients of `states`."""
        xp = self.xp
        T, N, H = y.shape
        D = xp.empty((T, N, self.slopes_per_unit * H), y.dtype)
        # Which step has no step before it, and which steps follow which.
        first, later, earlier = (
            (slice(T - 1, T), slice(0, T - 1), slice(1, T))
            if backwards
            else (slice(0, 1), slice(1, T), slice(0, T - 1))
        )
        extra = self.slopes(D, states, y, kept, first, later, earlier)
        order = range(T) if backwards else reversed(range(T))
        self.back(order, D, w, kept, g, heads, extra)
        self.into_inputs(rows(D), rows(x), w, grads, None if dx is None else rows(dx), add)
        dc = D[:, :, -self.n_gates * H :]  # the gradient of c
        matmul(xp, rows(dc[later]).T, rows(y[earlier]), grads.h2h)
        if T:
            grads.h2h[...] += matmul(xp, dc[first][0].T, states[0])
        xp.sum(rows(dc), axis=0, out=grads.h2h_bias)

    def slopes(
        self, D: Any, states: list[Any], y: Any, kept: list[Any], first: slice, later: slice,
        earlier: slice,
    ) -> Any:  # fmt: skip
        """Fill D with the slopes; returns what else `back` needs."""
        raise NotImplementedError

    def back(
        self, order: Iterable[int], D: Any, w: Weights, kept: list[Any], g: Any, heads: list[Any],
        extra: Any,
    ) -> None:  # fmt: skip
        """Multiply the gradients into D, step by step; `heads` go along, from last to first."""
        raise NotImplementedError

    def into_inputs(self, D: Any, x: Any, w: Weights, grads: Weights, dx: Any, add: bool) -> None:
        """From D, here the gradient of a: that of W, b and x. All with one row per step and
        sequence."""
        xp = self.xp
        matmul(xp, D.T, x, grads.i2h)
        xp.sum(D, axis=0, out=grads.i2h_bias)
        if dx is not None:
            _product(xp, D, w.i2h, dx, add)


def _product(xp: Any, a: Any, b: Any, out: Any, add: bool) -> None:
    if add:
        out += matmul(xp, a, b)
    else:
        matmul(xp, a, b, out=out)


def rows(a: Any) -> Any:
    """(T, N, X) as (T N, X), a view."""
    return a.reshape(a.shape[0] * a.shape[1], a.shape[2])


def _in_pieces(fill: Callable[..., None], *arrays: Any) -> None:
    """Call `fill` on pieces of the first axis of all arrays; idle workers help."""
    T = len(arrays[0])
    parts = pieces.cut(T, max(1, min(T, arrays[0].size // GRAIN)))
    parallel_for(len(parts), lambda i: fill(*(a[parts[i]] for a in arrays)))


class Tanh(Layer):
    """h' = tanh(a + c)."""

    def activate(self, y: Any) -> None:
        self.xp.tanh(y, out=y)

    def stepper(self, w: Weights, kept: list[Any], work: Any) -> Callable[..., list[Any]]:
        def step(t: int, c: Any, states: list[Any], y: Any) -> list[Any]:
            y += c
            self.activate(y)
            return [y]

        return step

    def slopes(self, D, states, y, kept, first, later, earlier) -> None:
        self.xp.multiply(y, y, out=D)
        self.xp.subtract(1, D, out=D)

    def back(self, order, D, w, kept, g, heads, extra) -> None:
        dh = heads[0]
        for t in order:
            dh += g[t]
            d = D[t]
            d *= dh
            matmul(self.xp, d, w.h2h, out=dh)


class Relu(Tanh):
    """h' = max(a + c, 0)."""

    def activate(self, y: Any) -> None:
        self.xp.maximum(y, 0, out=y)

    def slopes(self, D, states, y, kept, first, later, earlier) -> None:
        self.xp.greater(y, 0, out=D)


class LSTM(Layer):
    """Keeps the gates i f g o and the cell states."""

    n_gates = slopes_per_unit = 4
    keeps = (4, 1)

    def stepper(self, w: Weights, kept: list[Any], work: Any) -> Callable[..., list[Any]]:
        gates, cells = kept

        def step(t: int, c: Any, states: list[Any], y: Any) -> list[Any]:
            a = gates[t]
            a += c
            lstm_step(self.xp, a, states[1], cells[t], y, work, self.clip)
            return [y, cells[t]]

        return step

    def slopes(self, D, states, y, kept, first, later, earlier) -> Any:
        gates, cells = kept
        through = self.xp.empty(cells.shape, cells.dtype)

        def fill(gates: Any, before: Any, after: Any, D: Any, through: Any) -> None:
            lstm_slopes(self.xp, gates, before, after, cut(D, 4), through)

        for steps, before in ((first, states[1][None]), (later, cells[earlier])):
            _in_pieces(fill, gates[steps], before, cells[steps], D[steps], through[steps])
        return through

    def back(self, order, D, w, kept, g, heads, extra) -> None:
        through, (gates, cells), (dh, dc) = extra, kept, heads
        H = dh.shape[1]
        xp, D4, work = self.xp, cut(D, 4), self.xp.empty(dh.shape, dh.dtype)
        for t in order:
            dh += g[t]
            xp.multiply(dh, through[t], out=work)
            dc += work
            if self.clip is not None:
                dc *= self.clip.passes(cells[t])
            d = D4[t]
            d[:, :3] *= dc[:, None]
            d[:, 3] *= dh
            dc *= gates[t, :, H : 2 * H]
            matmul(xp, D[t], w.h2h, out=dh)


class GRU(Layer):
    """Keeps the gates r z n and the state's share of n, U_n h + d_n."""

    n_gates = 3
    keeps = (3, 1)
    slopes_per_unit = 4  # for a_n, and for r, z, n of c

    def bias(self, w: Weights) -> Any:
        bias = w.i2h_bias.copy()
        rz = len(bias) // 3 * 2
        bias[:rz] += w.h2h_bias[:rz]
        return bias

    def stepper(self, w: Weights, kept: list[Any], work: Any) -> Callable[..., list[Any]]:
        gates, shares = kept
        H = work.shape[1]
        bias = w.h2h_bias[2 * H :]

        def step(t: int, c: Any, states: list[Any], y: Any) -> list[Any]:
            share = self.xp.add(c[:, 2 * H :], bias, out=shares[t])
            gru_step(self.xp, gates[t], c[:, : 2 * H], share, states[0], y, work)
            return [y]

        return step

    def slopes(self, D, states, y, kept, first, later, earlier) -> None:
        gates, shares = kept

        def fill(gates: Any, shares: Any, before: Any, D: Any) -> None:
            gru_slopes(self.xp, gates, shares, before, cut(D, 4))

        for steps, before in ((first, states[0][None]), (later, y[earlier])):
            _in_pieces(fill, gates[steps], shares[steps], before, D[steps])

    def back(self, order, D, w, kept, g, heads, extra) -> None:
        dh = heads[0]
        H = dh.shape[1]
        xp, D4, z = self.xp, cut(D, 4), kept[0][:, :, H : 2 * H]
        work = xp.empty(dh.shape, dh.dtype)
        for t in order:
            dh += g[t]
            d = D4[t]
            d *= dh[:, None]
            matmul(xp, D[t, :, H:], w.h2h, out=work)
            dh *= z[t]
            dh += work

    def into_inputs(self, D: Any, x: Any, w: Weights, grads: Weights, dx: Any, add: bool) -> None:
        # In D a_n comes before r and z, in the weights behind them.
        H = D.shape[1] // 4
        n, rz = D[:, :H], D[:, H : 3 * H]
        for part, place in ((rz, slice(0, 2 * H)), (n, slice(2 * H, 3 * H))):
            matmul(self.xp, part.T, x, grads.i2h[place])
            self.xp.sum(part, axis=0, out=grads.i2h_bias[place])
            if dx is not None:
                _product(self.xp, part, w.i2h[place], dx, add)
            add = True


#: Kinds of layers, by `mode`.
KINDS: dict[str, type[Layer]] = {"rnn_relu": Relu, "rnn_tanh": Tanh, "lstm": LSTM, "gru": GRU}
