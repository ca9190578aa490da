"""From indices to places: where ops that select read, and where their gradients are added up.

An op that selects reads its elements at certain places of an array. Its *adjoint* makes an array of
zeros and adds elements up at these places. Each of the two is the gradient of the other:

>>> from d2lmini import autograd, nd
>>> x = nd.array([1, 2, 3])
>>> x.attach_grad()
>>> with autograd.record():
...     y = nd.take(x, nd.array([2, 0, 2])) * nd.array([10, 20, 30])
>>> y.backward()
>>> x.grad
<BLANKLINE>
[20.  0. 40.]
<NDArray 3 @cpu(0)>

An element that was selected twice gets the sum. Of floats as indices the fraction is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import Op, Shape, Spec, op
from d2lmini.ops.kernels import kind_of, with_kernels


def adjoint(select: Op, name: str, **facts: Any) -> Any:
    """Declare the adjoint of `select`, whose first input is what is selected from: an op of the
    same indices and attributes, and of the `shape` of its result. Both get their gradients."""
    data, *indices = select.input_names
    nothing = (None,) * len(indices)

    def declare(compute: Callable[..., Any]) -> Any:
        facts.setdefault("infer", lambda g, *_, shape, **__: Spec(shape, g.dtype))
        add_up: Op = op(name, **facts)(compute)

        @select.gradient(saves=" ".join([f"{data}.shape", *indices]))
        def _(g: Any, shape: Shape, *places: Any, **attrs: Any) -> tuple:
            return add_up(g, *places, shape=shape, **attrs), *nothing

        @add_up.gradient(saves=" ".join(indices))
        def _(g: Any, *places: Any, **attrs: Any) -> tuple:
            return select(g, *places, **attrs), *nothing

        select.rule_attrs = add_up.rule_attrs = select.attr_names
        return add_up

    return declare


def integers(xp: Any, index: Any) -> Any:
    """The index array as int64; floats are truncated towards zero, nan becomes very negative."""
    return index.astype(np.int64, copy=False)


def positions(xp: Any, index: Any, size: int, mode: str) -> Any:
    """int64 positions in [0, size), by MXNet's three modes for indices outside."""
    index = integers(xp, index)
    if mode == "wrap":
        return index % size
    if mode == "raise" and ((index < 0) | (index >= size)).any():
        raise MXNetError(f"take: an index is not in [0, {size})")
    return xp.minimum(xp.maximum(index, 0), size - 1)


def flatten_places(columns: Iterable[Any], shape: Shape) -> Any:
    """Positions in the flattened array of the elements at these coordinates, an array for each
    axis."""
    places: Any = 0
    for column, n in zip(columns, shape):
        places = places * n + column
    return places


def coordinate(xp: Any, shape: Shape, axis: int) -> Any:
    """For each element of an array of `shape` its position along `axis`."""
    steps = xp.arange(shape[axis]).reshape((-1,) + (1,) * (len(shape) - 1 - axis))
    return xp.broadcast_to(steps, shape)


def scatter(xp: Any, where: Any, values: Any, shape: Shape, out: Any) -> Any:
    """Zeros of `shape`, and there[where] = values; of several values for one place one remains."""
    if out is None:
        out = xp.zeros(shape, values.dtype)
    else:
        out.fill(0)
    out[where] = values
    return out


@with_kernels
def scatter_add(xp: Any, places: Any, values: Any, shape: Shape, out: Any) -> Any:
    """Zeros of `shape`, then for each i in order: flat[places[i]] += values[i]. float16 adds up in
    float32: to 2048 it could not add 1."""
    if out is None:
        out = xp.empty(shape, values.dtype)
    if xp is not np:
        return scatter_add.kernels[kind_of(xp)](xp, places, values, shape, out)
    total = out if out.dtype.char != "e" else np.empty(shape, np.float32)
    total[...] = 0
    # ufunc.at is fast for flat indices only, hence flat places.
    np.add.at(total.reshape(-1), places.ravel(), values.ravel().astype(total.dtype, copy=False))
    if total is not out:
        out[...] = total
    return out
