"""The arithmetic between the matrix products of a recurrent step.

With a = W x + b of the input and c = U h + d of the state, each split into gates of H numbers, and
s the sigmoid:

    GRU    r, z = s(a + c)    n = tanh(a_n + r c_n)                  h' = n + z (h - n)
    LSTM   i, f, o = s(a + c)    g = tanh(a_g + c_g)    c' = f c + i g    h' = o tanh(c')

The gates are stored in the order r z n and i f g o, as in MXNet and cuDNN; the GRU is cuDNN's,
whose reset gate comes after the product (K. Cho et al., 2014, have it before).

In backward, the derivative of h' for each gate is a product of numbers that do not depend on the
gradient of h'. `gru_slopes` and `lstm_slopes` compute these derivatives for all steps of a sequence
at once; each step only multiplies the gradient in.

All functions work in place on arrays of NumPy or CuPy. Arrays that are often processed are separate
and contiguous: NumPy processes columns of a wider array row by row, which took twice as long.

>>> import numpy as np
>>> rz, n, share, h = np.zeros((1, 4)), np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2))
>>> y, work = np.empty((1, 2)), np.empty((1, 2))
>>> gru_step(np, rz, n, share, h, y, work)                      # r = z = 1/2, n = 0
>>> y
array([[0.5, 0.5]])
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.scalar_cache import fit


def squash(xp: Any, x: Any) -> None:
    """x := 1 / (1 + e^-x).

    (The op `sigmoid` does not serve: NumPy 2.4 computes np.negative(x, out=x) wrongly where x is
    one column of four.)
    """
    number = fit[xp][x.dtype]
    x *= number[-1]
    xp.exp(x, out=x)
    x += number[1]
    xp.divide(number[1], x, out=x)


def split_gates(gates: Any, n: int) -> Any:
    """(..., n H) as (..., n, H), a view."""
    return gates.reshape(*gates.shape[:-1], n, gates.shape[-1] // n)


def gru_step(xp: Any, rz: Any, n: Any, share: Any, h: Any, y: Any, work: Any) -> None:
    """One step. rz (N, 2H) and n (N, H) hold a + c and a_n, and are filled with the gates. share is
    c_n, h the state; y becomes the next state; work is overwritten; all (N, H)."""
    H = h.shape[-1]
    squash(xp, rz)
    xp.multiply(rz[:, :H], share, out=work)
    n += work
    xp.tanh(n, out=n)
    xp.subtract(h, n, out=work)
    work *= rz[:, H:]
    xp.add(n, work, out=y)


def gru_slopes(xp: Any, h: Any, rz: Any, n: Any, share: Any, dn: Any, dc: Any) -> None:
    """Fill dn (..., H) with dh'/da_n and dc (..., 3H) with dh'/dc; the first two parts of dc are
    dh'/da as well. The other arrays are as `gru_step` left them."""
    H = n.shape[-1]
    r, z = rz[..., :H], rz[..., H:]
    dr, dz, dcn = dc[..., :H], dc[..., H : 2 * H], dc[..., 2 * H :]
    one = fit[xp][n.dtype][1]
    rest = one - z
    xp.multiply(n, n, out=dn)
    xp.subtract(one, dn, out=dn)
    dn *= rest
    rest *= z
    rest *= h - n
    dz[...] = rest
    xp.multiply(dn, r, out=rest)
    dcn[...] = rest
    rest *= share
    rest *= one - r
    dr[...] = rest


def lstm_step(xp: Any, gates: Any, c: Any, c_next: Any, y: Any, work: Any) -> None:
    """One step. gates (N, 4H) holds a + c and is filled with i f g o. c is the cell state; c_next
    and y become the next cell state and the next state; work is overwritten; all (N, H)."""
    H = c.shape[-1]
    i, f, g, o = (gates[:, k * H : k * H + H] for k in range(4))
    # The sigmoid of x is (1 + tanh(x / 2)) / 2: one pass of tanh computes all four gates.
    half = fit[xp][gates.dtype][0.5]
    first = gates[:, : 2 * H]
    first *= half
    o *= half
    xp.tanh(gates, out=gates)
    first *= half
    first += half
    o *= half
    o += half
    xp.multiply(i, g, out=work)
    xp.multiply(f, c, out=c_next)
    c_next += work
    xp.tanh(c_next, out=work)
    xp.multiply(o, work, out=y)


def lstm_slopes(xp: Any, c: Any, gates: Any, c_next: Any, slopes: Any, through: Any) -> None:
    """Fill slopes (..., 4, H) with dc'/da_i, dc'/da_f, dc'/da_g, dh'/da_o, and `through` (..., H)
    with dh'/dc'. The other arrays are as `lstm_step` left them."""
    gates = split_gates(gates, 4)
    i, f, g, o = (gates[..., k, :] for k in range(4))
    di, df, dg, do = (slopes[..., k, :] for k in range(4))
    one = fit[xp][gates.dtype][1]
    work = one - i
    work *= i
    xp.multiply(work, g, out=di)
    xp.subtract(one, f, out=work)
    work *= f
    xp.multiply(work, c, out=df)
    xp.multiply(g, g, out=work)
    xp.subtract(one, work, out=work)
    xp.multiply(work, i, out=dg)
    xp.tanh(c_next, out=through)
    xp.subtract(one, o, out=work)
    work *= o
    xp.multiply(work, through, out=do)
    through *= through
    xp.subtract(one, through, out=through)
    through *= o
