"""`np.random`: random arrays, after `mxnet.np.random`.

>>> from d2lmini import np
>>> np.random.normal(0, 1, size=(2, 3)).shape, np.random.randint(0, 5, 4).dtype
((2, 3), dtype('int64'))

float32 on the current context unless `dtype` and `ctx` are given; parameters may be arrays, which
broadcast. A number out of range is a ValueError at the call. `seed` is that of `d2lmini.random`.
"""

from __future__ import annotations

from typing import Any

import numpy as onp

from d2lmini.base import missing_attribute
from d2lmini.ndarray import random as nd
from d2lmini.np.creation import array
from d2lmini.np.values import as_type, drop_axes, fill, full_shape, is_array
from d2lmini.ops.checks import require
from d2lmini.ops.core import modes, registry
from d2lmini.ops.random_state import seed as seed
from d2lmini.symbol import functions as sym


def _shape_of(size: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape of a draw: `size`, else that of the parameters together."""
    if size is not None:
        return full_shape(size)
    shapes = [x.shape for x in parameters if is_array(x)]
    return tuple(onp.broadcast_shapes(*shapes)) if shapes else ()


def _checked(what: str, needs: str, value: Any) -> Any:
    """The parameter `what` of a draw; ValueError unless a number is what it `needs` to be (see
    `RANGES`). Arrays, which may not be computed yet, are not looked at."""
    if not is_array(value):
        require(what, needs, value)
    return value


def _draw(name: str, size: tuple[int, ...], dtype: Any, ctx: Any, **parameters: float) -> Any:
    """A draw of `nd.random`, in which a shape () means (1,); while a net is traced, a node that
    draws anew at each run."""
    shape, dtype = size or (1,), dtype or "float32"
    if modes.tracing is not None and modes.tracing.is_np:
        node = getattr(sym.random, name)(**parameters, shape=shape, dtype=dtype)
        drawn = modes.tracing.kind(node._entries)
    else:
        drawn = getattr(nd, name)(**parameters, shape=shape, dtype=dtype, ctx=ctx).as_np_ndarray()
    return drawn if size else drop_axes(drawn)


def _scaled(name: str, shift: Any, scale: Any, size: Any, dtype: Any, ctx: Any, out: Any) -> Any:
    """shift + scale * a standard draw; without `ctx` on the device of the first array of them."""
    arrays = [x for x in (shift, scale) if is_array(x)]
    ctx = ctx or (arrays[0].ctx if arrays else None)
    drawn = _draw(name, _shape_of(size, *arrays), dtype, ctx)
    is_standard = not arrays and (shift, scale) == (0.0, 1.0)
    return fill(out, drawn if is_standard else shift + scale * drawn)


def uniform(low=0.0, high=1.0, size=None, dtype=None, ctx=None, out=None) -> Any:
    """Evenly between low (included) and high."""
    width = _checked("np.random.uniform: high - low", "finite", high - low)
    return _scaled("uniform", low, width, size, dtype, ctx, out)


def normal(loc=0.0, scale=1.0, size=None, dtype=None, ctx=None, out=None) -> Any:
    """Gaussian with mean loc and standard deviation scale."""
    scale = _checked("np.random.normal: scale", "0 or more", scale)
    return _scaled("normal", loc, scale, size, dtype, ctx, out)


def randint(low, high=None, size=None, dtype=None, ctx=None, out=None) -> Any:
    """Integers from low (included) to high, or from 0 to low; int64. ValueError if high is not
    above low."""
    low, high = (0, low) if high is None else (low, high)
    if low >= high:
        raise ValueError(f"np.random.randint: low >= high: {low} and {high}")
    drawn = _draw("randint", _shape_of(size), dtype or "int64", ctx, low=low, high=high)
    return fill(out, drawn)


def rand(*size: int, **kwargs: Any) -> Any:
    """`uniform` between 0 and 1 with the sizes as arguments."""
    return uniform(size=size, **kwargs)


def randn(*size: int, **kwargs: Any) -> Any:
    """Standard `normal` with the sizes as arguments."""
    return normal(0.0, 1.0, size, **kwargs)


def multinomial(n, pvals, size=None, **_) -> Any:
    """How often each of the outcomes occurs in n trials; int64, shape (*size, len(pvals)). Waits
    for pvals; ValueError if one is negative or they sum to more than 1."""
    require("np.random.multinomial: n", "0 or more", n)
    p = pvals if is_array(pvals) else array(pvals, dtype="float32")
    values = p.asnumpy().astype("float64")
    require("np.random.multinomial: pvals", "0 or more", values)
    if values[:-1].sum() > 1.0 + 1e-6:
        raise ValueError("np.random.multinomial: sum(pvals[:-1]) > 1.0")
    bounds = array(onp.cumsum(values)[:-1], dtype="float32", ctx=p.ctx)
    u = uniform(0, 1, (*_shape_of(size), n, 1), ctx=p.ctx)
    outcomes = as_type(u >= bounds, "int64").sum(-1)
    return registry["one_hot"](outcomes, depth=p.size, dtype="int64").sum(axis=-2)


def shuffle(x: Any) -> None:
    """Put the rows of `x` in random order, in place."""
    x[...] = registry["_shuffle"](x)


def __getattr__(name: str) -> Any:
    raise missing_attribute("np.random", name, globals(), "; NumPy has more")
