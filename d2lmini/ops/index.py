"""Ops that select by one index array: take, Embedding, pick, one_hot, index_copy.

The index is an ordinary value: an array that may not be computed yet. Its shape determines the
result's shape, so the call returns at once; the task reads its numbers when it runs.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2], [3, 4], [5, 6]])
>>> nd.take(x, nd.array([2, 0, 9]))
<BLANKLINE>
[[5. 6.]
 [1. 2.]
 [5. 6.]]
<NDArray 3x2 @cpu(0)>
>>> nd.pick(x, nd.array([1, 0, 1]))
<BLANKLINE>
[2. 3. 6.]
<NDArray 3 @cpu(0)>

Indices may have any dtype; floats are truncated towards zero (2.9 is 2), as in MXNet, whose arrays
are float32 by default. For indices outside the axis `take`, `pick` and `Embedding` clip, and
`one_hot` gives an empty row.

`subscript.py` selects by `x[key]`.

**Places.** An op that selects reads its elements at certain places of an array. Its *adjoint* makes
an array of zeros and adds elements up at these places. Each is the gradient of the other:

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

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_shape, refuse_gradient, require
from d2lmini.ops.composed import composed
from d2lmini.ops.core import ALL, NOWHERE, DType, Op, Shape, Spec, normalize_axis, op, with_axis
from d2lmini.ops.create import zeros
from d2lmini.ops.kernels import with_kernels


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


def as_three_axes(shape: Shape, axis: int) -> tuple[int, int, int]:
    """The shape (before, n, behind) that leaves `axis`, of size n, where it is and merges the axes
    on both sides."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def scatter(xp: Any, where: Any, values: Any, shape: Shape, out: Any) -> Any:
    """Zeros of `shape`, and there[where] = values; of several values for one place one remains."""
    out = zeros.compute(xp, shape=shape, dtype=values.dtype, out=out)
    out[where] = values
    return out


@with_kernels
def scatter_add(xp: Any, places: Any, values: Any, shape: Shape, out: Any) -> Any:
    """Zeros of `shape`, then for each i in order: rows[places[i]] += values[i], in rows as long as
    those of `values`. float16 adds up in float32: to 2048 it could not add 1."""
    out = xp.empty(shape, values.dtype) if out is None else out
    total = out if out.dtype.char != "e" else np.empty(shape, np.float32)
    total[...] = 0
    width = values.size // max(places.size, 1)
    if width != 1:  # ufunc.at is fast for flat indices only
        places = places.reshape(-1, 1) * width + np.arange(width)
    np.add.at(total.reshape(-1), places.ravel(), values.ravel().astype(total.dtype, copy=False))
    if total is not out:
        out[...] = total
    return out


def _check_not_empty(size: int, indices: Spec) -> None:
    if size == 0 and indices.size:
        raise MXNetError(f"no index fits an axis of size 0, got {indices.size} indices")


# -- take ------------------------------------------------------------------------------------------


def _infer_take(a: Spec, indices: Spec, *, axis: int = 0, mode: str = "clip") -> Spec:
    check_choice("mode", mode, ("clip", "wrap", "raise"))
    axis = normalize_axis(axis, len(a.shape))
    _check_not_empty(a.shape[axis], indices)
    return Spec(with_axis(a.shape, axis, *indices.shape), a.dtype)


@op(infer=_infer_take, flops=0, free_dtypes=("indices",))
def take(xp, a, indices, *, axis: int = 0, mode: str = "clip", out=None):
    """Slices of `a` along `axis`: y[..., i, ...] = a[..., indices[i], ...].

    a (A..., n, B...) and indices (I...) of any dtype -> (A..., I..., B...) of a's dtype.
    Outside [0, n): mode 'clip' takes the nearest end (so -1 is 0), 'wrap' counts modulo n (-1 is
    the last), 'raise' fails at run time. MXNetError at the call for axis or mode.

    >>> nd.take(nd.array([10, 20, 30]), nd.array([2, 0])).asnumpy().tolist()
    [30.0, 10.0]
    """
    if xp is np and mode == "clip":  # NumPy's "wrap" is a loop that a far index keeps going
        return xp.take(a, integers(np, indices), axis, out, mode)
    return xp.take(a, positions(xp, indices, a.shape[axis], mode), axis, out)


@adjoint(take, "_take_grad")
def take_grad(xp, g, indices, *, shape: Shape, axis: int, mode: str, out=None):
    """The gradient of `take`: g added up at the positions of the selected elements."""
    before, n, _ = as_three_axes(shape, axis)
    rows = positions(xp, indices, n, mode).ravel()
    if before > 1:
        rows = xp.arange(before).reshape(-1, 1) * n + rows
    return scatter_add(xp, rows, g, shape, out)


def _infer_embedding(
    data: Spec, weight: Spec, *, input_dim: int, output_dim: int, **_: Any
) -> Spec:
    check_shape("weight", weight, (input_dim, output_dim), why="(input_dim, output_dim)")
    _check_not_empty(input_dim, data)
    return Spec((*data.shape, output_dim), weight.dtype)


@op(infer=_infer_embedding, flops=0, free_dtypes=("data",))
def Embedding(
    xp, data, weight, *, input_dim: int, output_dim: int, dtype: DType = "float32",
    sparse_grad: bool = False, out=None,
):  # fmt: skip
    """The rows of `weight` with the numbers in `data`: a vector for each word.

    data (I...) of any dtype, weight (input_dim, output_dim) -> (I..., output_dim) of weight's
    dtype; numbers outside are clipped. `dtype` is for symbols. `sparse_grad` is accepted; the
    gradient is dense anyway. MXNetError at the call if weight has another shape.

    >>> nd.Embedding(nd.array([2, 0]), nd.array([[1], [2], [3]]), input_dim=3, output_dim=1).shape
    (2, 1)
    """
    return take.compute(xp, weight, data, axis=0, mode="clip", out=out)


@Embedding.gradient(saves="data")
def _(g, data, *, input_dim, output_dim, needs=ALL, places=NOWHERE):
    if needs[0]:
        raise MXNetError(
            "Embedding: data has no gradient; leave out its attach_grad(), or pass data.detach()"
        )
    shape = input_dim, output_dim
    return None, take_grad(g, data, shape=shape, axis=0, mode="clip", out=places[1])


@Embedding.infer_inputs
def _(given, out, attrs):
    return {"weight": (attrs["input_dim"], attrs["output_dim"])} if given["data"] else {}


# -- pick: one element per row ---------------------------------------------------------------------


def _infer_pick(
    data: Spec, index: Spec, *, axis: int | None = -1, keepdims: bool = False, mode: str = "clip"
) -> Spec:
    check_choice("mode", mode, ("clip", "wrap"))
    if axis is None:
        raise MXNetError("axis=None is not supported, give the axis to pick along")
    axis = normalize_axis(axis, len(data.shape))
    dropped, kept = _picked_shapes(data.shape, axis)
    if not len(data.shape) == 1 == index.size:
        why = f"one index for each element of data {data.shape} without axis {axis}"
        check_shape("index", index, dropped, kept, why=why)
    _check_not_empty(data.shape[axis], index)
    return Spec(kept if keepdims else dropped, data.dtype)


def _picked_shapes(shape: Shape, axis: Any) -> tuple[Shape, Shape]:
    """`shape` without `axis`, and with size 1 there."""
    return with_axis(shape, axis) or (1,), with_axis(shape, axis, 1)


def _pick_places(xp: Any, shape: Shape, index: Any, axis: Any, mode: str) -> Any:
    """Flat positions of the picked elements in an array of `shape`, as (before, after)."""
    before, n, after = as_three_axes(shape, axis)
    found = positions(xp, index, n, mode).reshape(before, after)
    rows = xp.arange(before).reshape(-1, 1) * n + found
    return rows if after == 1 else rows * after + xp.arange(after)


@op(aliases=["choose_element_0index"], infer=_infer_pick, flops=0, free_dtypes=("index",))
def pick(xp, data, index, *, axis: int | None = -1, keepdims: bool = False, mode: str = "clip"):
    """One element along `axis` for each place of the others: y[i] = data[i, index[i]].

    data (A..., n, B...) and index (A..., B...) or (A..., 1, B...) -> (A..., B...), or with
    keepdims (A..., 1, B...), of data's dtype; of a vector (1,). Outside [0, n): 'clip' or 'wrap',
    as in `take`. MXNetError at the call for axis, mode or the index's shape.

    >>> nd.pick(nd.array([[1, 2], [3, 4]]), nd.array([0, 1])).asnumpy().tolist()
    [1.0, 4.0]
    """
    y = data.reshape(-1)[_pick_places(xp, data.shape, index, axis, mode)]
    return y.reshape(_picked_shapes(data.shape, axis)[keepdims])


@adjoint(pick, "_pick_grad")
def _pick_grad(
    xp, g, index, *, shape: Shape, axis: int, mode: str, keepdims: bool = False, out=None
):
    """The gradient of `pick`: zeros, and g at the picked positions, which are all different. A g
    that broadcasts to `shape` stays where it is picked."""
    if g.size != index.size:
        g = pick.compute(xp, xp.broadcast_to(g, shape), index, axis=axis, mode=mode)
    places = _pick_places(xp, shape, index, axis, mode)
    flat = None if out is None else out.reshape(-1)
    return scatter(xp, places.ravel(), g.ravel(), (prod(shape),), flat).reshape(shape)


@composed(
    flops=0, free_dtypes=("indices",), presumed_dtypes={"indices": "int32"}, constants=("indices",)
)
def batch_take(a, indices):
    """y[i] = a[i, indices[i]], clipped: the older name of `pick` along the last axis.

    a (N, n), indices (N,), int32 -> (N,), or another shape of indices with N elements. MXNetError
    at the call for another number or dtype of indices. Unlike in MXNet there is a gradient.
    """
    if a.ndim < 2 or indices.size != prod(a.shape[:-1]):
        raise MXNetError(f"indices is {indices.shape}, need {a.shape[:-1]}: one for each row of a")
    if indices.dtype != np.int32:
        raise MXNetError(f"indices are int32, got {np.dtype(indices.dtype).name}; use pick()")
    return pick(a, indices.reshape(a.shape[:-1])).reshape(indices.shape)


def _infer_fill(lhs: Spec, mhs: Spec, rhs: Spec) -> Spec:
    if len(lhs.shape) != 2 or not mhs.shape == rhs.shape == lhs.shape[:1]:
        raise MXNetError(
            f"lhs is {lhs.shape}, mhs {mhs.shape}, rhs {rhs.shape}, need (N, n), (N,), (N,)"
        )
    return lhs


@refuse_gradient
@op(infer=_infer_fill, flops=0, symbolic=False)
def fill_element_0index(xp, lhs, mhs, rhs):
    """lhs with one element of each row replaced: y[i, rhs[i]] = mhs[i].

    lhs (N, n), mhs (N,), rhs (N,) -> (N, n) of lhs's dtype; a row whose rhs is outside is kept.
    """
    here = integers(xp, rhs)[:, None] == xp.arange(lhs.shape[1])
    return xp.where(here, mhs[:, None].astype(lhs.dtype, copy=False), lhs)


# -- one_hot ---------------------------------------------------------------------------------------


def _infer_one_hot(indices: Spec, *, depth: int, dtype: Any = "float32", **_: Any) -> Spec:
    require("depth", "0 or more", depth)
    return Spec((*indices.shape, depth), np.dtype(dtype))


@op(infer=_infer_one_hot, free_dtypes=("indices",), flops=0, grad=None)
def one_hot(
    xp, indices, *, depth: int, on_value: float = 1.0, off_value: float = 0.0,
    dtype: DType = "float32", out=None,
):  # fmt: skip
    """A row of length depth for each index: on_value at the index and off_value elsewhere.

    indices (I...) -> (I..., depth) of `dtype`; an index outside [0, depth) gives a row without
    on_value.

    >>> nd.one_hot(nd.array([0, 2]), depth=3).asnumpy().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    out = xp.empty((*indices.shape, depth), dtype) if out is None else out
    on, off = (np.array(value).astype(out.dtype)[()] for value in (on_value, off_value))
    column = integers(xp, indices)
    if xp is not np:
        out[...] = xp.where(column[..., None] == xp.arange(depth), on, off)
        return out
    out[...] = off
    column = column.reshape(-1)
    row = np.flatnonzero((column >= 0) & (column < depth))
    out.reshape(column.size, depth)[row, column[row]] = on
    return out
