"""`np.random`: random arrays, after `mxnet.np.random`.

>>> from d2lmini import np
>>> np.random.normal(0, 1, size=(2, 3)).shape, np.random.randint(0, 5, 4).dtype
((2, 3), dtype('int64'))

float32 on the current context unless `dtype` and `ctx` are given; parameters may be arrays, which
broadcast. A parameter out of range is a ValueError at the call, or in an array an MXNetError at a
wait. `seed` is that of `d2lmini.random`.
"""

from __future__ import annotations

from typing import Any

import numpy as onp

from d2lmini.ndarray import random as nd
from d2lmini.np.creation import array, full
from d2lmini.np.elementwise import FUNCTIONS
from d2lmini.np.shapes import broadcast_to
from d2lmini.np.values import as_type, drop_axes, fill, full_shape, is_array
from d2lmini.ops.core import modes, registry
from d2lmini.ops.distributions import require
from d2lmini.random_state import seed as seed
from d2lmini.symbol import random as sym


def _shape(size: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape of a draw: `size`, else that of the parameters together."""
    if size is not None:
        return full_shape(size)
    return tuple(onp.broadcast_shapes(*[x.shape for x in parameters if is_array(x)]))


def checked(what: str, needs: str, value: Any) -> Any:
    """The parameter `what` of a draw; ValueError unless it is what it `needs` to be (see `RANGES`),
    at the call for a number and, as MXNetError, at a wait for an array."""
    if is_array(value):
        return registry["_in_range"](value, what=what, needs=needs)
    require(what, needs, value)
    return value


def _context(ctx: Any, *parameters: Any) -> Any:
    return ctx or next((x.ctx for x in parameters if is_array(x)), None)


def _draw(name: str, size: tuple[int, ...], dtype: Any, ctx: Any, *parameters: Any) -> Any:
    """A draw of `nd.random`, in which a shape () means (1,); while a net is traced, a node that
    draws anew at each run."""
    shape = size or (1,)
    if modes.tracing is not None and modes.tracing.is_np:
        node = getattr(sym, name)(*parameters, shape=shape, dtype=dtype)
        drawn = modes.tracing.kind(node._entries)
    else:
        draw = getattr(nd, name)
        drawn = draw(*parameters, shape=shape, dtype=dtype, ctx=ctx).as_np_ndarray()
    return drawn if size else drop_axes(drawn)


def _draw_scaled(
    name: str, shift: Any, scale: Any, size: Any, dtype: Any, ctx: Any, out: Any
) -> Any:
    """shift + scale * a draw of the standard distribution `name`."""
    ctx = _context(ctx, shift, scale)
    drawn = _draw(name, _shape(size, shift, scale), dtype or "float32", ctx)
    if is_array(shift) or is_array(scale) or (shift, scale) != (0.0, 1.0):
        drawn = shift + scale * drawn
    return fill(out, drawn)


def uniform(
    low: Any = 0.0, high: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Evenly between low (included) and high."""
    width = checked("np.random.uniform: high - low", "finite", high - low)
    return _draw_scaled("uniform", low, width, size, dtype, ctx, out)


def normal(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Gaussian with mean loc and standard deviation scale."""
    scale = checked("np.random.normal: scale", "0 or more", scale)
    return _draw_scaled("normal", loc, scale, size, dtype, ctx, out)


def rand(*size: int, **kwargs: Any) -> Any:
    """`uniform` between 0 and 1 with the sizes as arguments."""
    return uniform(size=size, **kwargs)


def randn(*size: int, **kwargs: Any) -> Any:
    """Standard `normal` with the sizes as arguments."""
    return normal(0.0, 1.0, size, **kwargs)


def randint(
    low: int, high: int | None = None, size: Any = None, dtype: Any = None, ctx: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Integers from low (included) to high, or from 0 to low; int64. ValueError if high is not
    above low."""
    low, high = (0, low) if high is None else (low, high)
    if low >= high:
        raise ValueError(f"np.random.randint: low >= high: {low} and {high}")
    return fill(out, _draw("randint", _shape(size), dtype or "int64", ctx, low, high))


def gamma(
    shape: Any, scale: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Gamma with this shape and scale."""
    scale = checked("np.random.gamma: scale", "above 0", scale)
    drawn = _gamma("gamma: shape", shape, _shape(size, shape, scale), dtype, ctx)
    return fill(out, drawn * scale)


def _gamma(what: str, shape: Any, whole: tuple[int, ...], dtype: Any, ctx: Any) -> Any:
    """Gamma with scale 1; `what` names the parameter `shape` in errors."""
    shape = checked(f"np.random.{what}", "above 0", shape)
    if not is_array(shape):
        return _draw("gamma", whole, dtype or "float32", ctx, shape, 1.0)
    alpha = as_type(broadcast_to(shape, whole), "float32")
    ones = full(whole, 1.0, ctx=shape.ctx)
    return registry["_sample_gamma"](alpha, ones, shape=(), dtype=dtype or "float32")


def exponential(scale: Any = 1.0, size: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Exponential with mean `scale`."""
    scale = checked("np.random.exponential: scale", "0 or more", scale)
    return fill(out, -scale * FUNCTIONS["log"](1 - uniform(0, 1, _shape(size, scale), ctx=ctx)))


def beta(a: Any, b: Any, size: Any = None, dtype: Any = None, ctx: Any = None) -> Any:
    """Beta with parameters a and b."""
    whole = _shape(size, a, b)
    x = _gamma("beta: a", a, whole, dtype, ctx)
    y = _gamma("beta: b", b, whole, dtype, ctx)
    return x / (x + y)


def chisquare(df: Any, size: Any = None, dtype: Any = None, ctx: Any = None) -> Any:
    """Chi-squared with df degrees of freedom."""
    return 2.0 * _gamma("chisquare: df / 2", df / 2, _shape(size, df), dtype, ctx)


def lognormal(
    mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, dtype: Any = None, ctx: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """The exponential of `normal`."""
    sigma = checked("np.random.lognormal: sigma", "0 or more", sigma)
    return FUNCTIONS["exp"](_draw_scaled("normal", mean, sigma, size, dtype, ctx, None), out)


def logistic(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, ctx: Any = None, out: Any = None
) -> Any:
    """Logistic with this location and scale."""
    scale = checked("np.random.logistic: scale", "0 or more", scale)
    u = uniform(0, 1, _shape(size, loc, scale), ctx=ctx)
    return fill(out, loc + scale * (FUNCTIONS["log"](u) - FUNCTIONS["log"](1 - u)))


def gumbel(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, ctx: Any = None, out: Any = None
) -> Any:
    """Gumbel with this location and scale."""
    scale = checked("np.random.gumbel: scale", "0 or more", scale)
    return fill(
        out, loc - scale * FUNCTIONS["log"](exponential(1.0, _shape(size, loc, scale), ctx))
    )


def rayleigh(scale: Any = 1.0, size: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Rayleigh with this scale."""
    scale = checked("np.random.rayleigh: scale", "0 or more", scale)
    return fill(out, scale * FUNCTIONS["sqrt"](2 * exponential(1.0, _shape(size, scale), ctx)))


def weibull(a: Any, size: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Weibull with shape a and scale 1."""
    a = checked("np.random.weibull: a", "above 0", a)
    return fill(out, exponential(1.0, _shape(size, a), ctx) ** (1 / a))


def pareto(a: Any, size: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Pareto II (Lomax) with shape a."""
    a = checked("np.random.pareto: a", "above 0", a)
    return fill(out, FUNCTIONS["expm1"](exponential(1.0, _shape(size, a), ctx) / a))


def power(a: Any, size: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Numbers in [0, 1] with density a x^(a-1)."""
    a = checked("np.random.power: a", "above 0", a)
    return fill(out, (1 - uniform(0, 1, _shape(size, a), ctx=ctx)) ** (1 / a))


def choice(
    a: Any, size: Any = None, replace: bool = True, p: Any = None, ctx: Any = None, out: Any = None
) -> Any:
    """Elements of `a`, or numbers below `a`, with probabilities `p`; int64 for numbers. ValueError
    for more elements than there are, without replacement."""
    count = a if isinstance(a, (int, onp.integer)) else a.shape[0]
    whole = _shape(size)
    number = int(onp.prod(whole, dtype=int))
    if not replace and number > count:
        raise ValueError(f"np.random.choice: cannot take {number} of {count} without replacement")
    # The largest of log p + Gumbel noise is drawn with probability p; the k largest, k without
    # replacement.
    rows = 1 if not replace else number
    scores = gumbel(0.0, 1.0, (rows, count), ctx)
    if p is not None:
        p = checked("np.random.choice: p", "0 or more", p if is_array(p) else onp.asarray(p))
        if p.shape != (count,):
            raise ValueError(f"np.random.choice: p has shape {p.shape}, need ({count},) as of a")
        p = p if is_array(p) else array(p, dtype="float32", ctx=ctx)
        scores = scores + FUNCTIONS["log"](as_type(p, "float32"))
    order = registry["topk"](scores, k=1 if replace else number, dtype="int64")
    places = order.reshape(whole)
    return fill(out, places if isinstance(a, (int, onp.integer)) else a[places])


def multinomial(n: int, pvals: Any, size: Any = None, **_: Any) -> Any:
    """How often each of the outcomes occurs in n trials; int64, shape (*size, len(pvals)). Waits
    for pvals; ValueError if one is negative or they sum to more than 1."""
    require("np.random.multinomial: n", "0 or more", n)
    p = pvals if is_array(pvals) else array(pvals, dtype="float32")
    values = p.asnumpy().astype("float64")
    require("np.random.multinomial: pvals", "0 or more", values)
    if values[:-1].sum() > 1.0 + 1e-6:
        raise ValueError("np.random.multinomial: sum(pvals[:-1]) > 1.0")
    whole = _shape(size)
    bounds = array(onp.cumsum(values)[:-1], dtype="float32", ctx=p.ctx)
    u = uniform(0, 1, (*whole, n, 1), ctx=p.ctx)
    above = as_type(u >= bounds, "int64").sum(-1)
    found = registry["one_hot"](above, depth=p.size, dtype="int64")
    return found.sum(axis=len(whole))


def multivariate_normal(
    mean: Any, cov: Any, size: Any = None, check_valid: Any = None, tol: Any = None
) -> Any:
    """Gaussian vectors with this mean and covariance."""
    whole = _shape(size) if size is not None else ()
    noise = normal(0.0, 1.0, (*whole, *mean.shape), ctx=mean.ctx)
    factor = registry["_linalg_potrf"](cov)
    return mean + (factor * noise[..., None, :]).sum(-1)


def shuffle(x: Any) -> None:
    """Put the rows of `x` in random order, in place."""
    x[...] = registry["_shuffle"](x)


def permutation(x: Any) -> Any:
    """The rows of `x`, or the numbers below `x`, in random order."""
    if isinstance(x, (int, onp.integer)):
        return choice(x, x, replace=False)
    return registry["_shuffle"](x)
