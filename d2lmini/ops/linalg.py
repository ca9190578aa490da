"""Matrix products: dot, batch_dot, BLAS's gemm under MXNet's name `linalg_gemm2`, FullyConnected.

>>> from d2lmini import nd
>>> a = nd.array([[1, 2], [3, 4]])
>>> nd.dot(a, a, transpose_b=True)
<BLANKLINE>
[[ 5. 11.]
 [11. 25.]]
<NDArray 2x2 @cpu(0)>
>>> nd.dot.cost([((2, 2), "float32")] * 2).flops          # 2 * M * N * K
16.0

Each op calls `products.matmul` on views: a transposed operand is a view of the same memory, which
BLAS reads at no extra cost, and the result is written to `out`. BLAS has no routine for float16
and bfloat16: their products accumulate in float32 and are rounded once.

The gradient of every product is two products. With y = a b and g the gradient of y,

    da = g b^T        db = a^T g

and the gradient of a transposed operand is transposed as well (`_gradients_of_product`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_axes, check_float, check_numbers, check_optional, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import ALL, NOWHERE, Shape, Spec, op
from d2lmini.ops.products import matmul
from d2lmini.ops.reduce import reshape_to, sum_


def _gradients_of_product(
    product: Callable, g: Any, a: Any, b: Any, transpose_a: bool, transpose_b: bool, needs: Any,
    places: Any = NOWHERE,
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of product(a, b, transpose_a, transpose_b), themselves matrix products."""
    of_a = (b, g, transpose_b, True) if transpose_a else (g, b, False, not transpose_b)
    of_b = (g, a, True, transpose_a) if transpose_b else (a, g, not transpose_a, False)
    return tuple([
        product(x, y, transpose_a=ta, transpose_b=tb, out=places[i]) if needs[i] else None
        for i, (x, y, ta, tb) in enumerate((of_a, of_b))
    ])  # fmt: skip


def _check_inner(a: Shape, b: Shape, i: int, j: int, hint: str = "") -> None:
    if a[i] != b[j]:
        raise MXNetError(
            f"inner sizes differ: a is {a}, b is {b}, need a.shape[{i}] == b.shape[{j}]{hint}"
        )


# -- dot ------------------------------------------------------------------------------------------


def _as_matrices(
    lhs: Shape, rhs: Shape, transpose_a: bool, transpose_b: bool
) -> tuple[Shape, bool, Shape, bool, Shape]:
    """dot as one matrix product: (shape of a, is a transposed, the same for b, shape of the
    result). A vector is a row on the left and a column on the right."""
    if not lhs or not rhs:
        raise MXNetError(f"needs at least one axis each, a is {lhs}, b is {rhs}; use * for scalars")
    if len(lhs) == len(rhs) == 1 and (transpose_a or transpose_b):
        raise MXNetError("two vectors cannot be transposed; leave out transpose_a and transpose_b")
    transpose_a = transpose_a and len(lhs) > 1
    transpose_b = transpose_b and len(rhs) > 1
    inner, left = (lhs[0], lhs[1:]) if transpose_a else (lhs[-1], lhs[:-1])
    right = rhs[:-1] if transpose_b else rhs[1:]
    fits = len(lhs) == len(rhs) == 2 and inner == rhs[0 if transpose_b else 1]
    hint = f"; did you mean transpose_b={not transpose_b}?" if fits else ""
    _check_inner(lhs, rhs, 0 if transpose_a else -1, -1 if transpose_b else 0, hint)
    a = (inner, prod(left)) if transpose_a else (prod(left), inner)
    b = (prod(right), inner) if transpose_b else (inner, prod(right))
    return a, transpose_a, b, transpose_b, (left + right) or (1,)


def _infer_dot(lhs: Spec, rhs: Spec, *, transpose_a: bool, transpose_b: bool, **_: Any) -> Spec:
    check_numbers(lhs, rhs)
    return Spec(_as_matrices(lhs.shape, rhs.shape, transpose_a, transpose_b)[-1], lhs.dtype)


def _flops_product(
    A: Spec, *_: Spec, out: Spec, transpose_a: bool, axis: int = -2, **_attrs: Any
) -> float:
    return 2.0 * out.size * A.shape[axis if transpose_a else -1]


@op(infer=_infer_dot, flops=partial(_flops_product, axis=0))
def dot(
    xp, lhs, rhs, *, transpose_a: bool = False, transpose_b: bool = False,
    forward_stype: str | None = None, out=None,
):  # fmt: skip
    """Sum of products over the last axis of lhs and the first of rhs: (M, K) x (K, N) -> (M, N).

    (A..., K) x (K, B...) -> (A..., B...); two vectors give shape (1,). transpose_a sums over the
    first axis of lhs instead of the last, (K, A...); transpose_b over the last of rhs, (B..., K);
    next to a matrix they have no effect on a vector. One dtype for both, kept: float16 and bfloat16
    (accumulated in float32, rounded once), float32, float64, and integers, which MXNet refuses on
    the CPU (without BLAS, hence slow). forward_stype, for sparse storage, is accepted and has no
    effect.

    MXNetError at the call when inner sizes or dtypes differ, or for scalars. Cost: 2 M N K.

    For matrices y[i, j] = sum over k of lhs[i, k] * rhs[k, j]:

    >>> nd.dot(nd.array([[1, 2], [3, 4]]), nd.array([[1], [10]]))
    <BLANKLINE>
    [[21.]
     [43.]]
    <NDArray 2x1 @cpu(0)>
    """
    if lhs.ndim == rhs.ndim == 2:
        return matmul(xp, lhs.T if transpose_a else lhs, rhs.T if transpose_b else rhs, out)
    a, ta, b, tb, shape = _as_matrices(lhs.shape, rhs.shape, transpose_a, transpose_b)
    left, right = lhs.reshape(a), rhs.reshape(b)
    left, right = (left.T if ta else left), (right.T if tb else right)
    place = None if out is None else out.reshape(left.shape[0], right.shape[1])
    product = matmul(xp, left, right, place)
    return product.reshape(shape) if out is None else out


@dot.gradient(saves="lhs rhs lhs.shape rhs.shape")
def _(g, lhs, rhs, lhs_shape, rhs_shape, *, transpose_a, transpose_b, needs=ALL, places=NOWHERE):
    if len(lhs_shape) == len(rhs_shape) == 2:
        return _gradients_of_product(dot, g, lhs, rhs, transpose_a, transpose_b, needs, places)
    a, ta, b, tb, _shape = _as_matrices(lhs_shape, rhs_shape, transpose_a, transpose_b)
    g = reshape_to(g, (a[1 if ta else 0], b[0 if tb else 1]))
    left, right = reshape_to(lhs, a), reshape_to(rhs, b)
    da, db = _gradients_of_product(dot, g, left, right, ta, tb, needs)
    return [
        x if x is None else reshape_to(x, shape) for x, shape in ((da, lhs_shape), (db, rhs_shape))
    ]


# -- batches of products --------------------------------------------------------------------------


def _infer_batch_dot(
    lhs: Spec, rhs: Spec, *, transpose_a: bool, transpose_b: bool, **_: Any
) -> Spec:
    check_numbers(lhs, rhs)
    a, b = lhs.shape, rhs.shape
    if len(a) < 3:
        raise MXNetError(f"needs three axes or more, a is {a}, b is {b}; use dot for matrices")
    if len(a) != len(b) or a[:-2] != b[:-2]:
        raise MXNetError(f"a is {a}, b is {b}, need shapes that agree on all but the last two axes")
    _check_inner(a, b, -2 if transpose_a else -1, -1 if transpose_b else -2)
    rows, columns = a[-1 if transpose_a else -2], b[-2 if transpose_b else -1]
    return Spec((*a[:-2], rows, columns), lhs.dtype)


@op(infer=_infer_batch_dot, flops=_flops_product)
def batch_dot(
    xp, lhs, rhs, *, transpose_a: bool = False, transpose_b: bool = False,
    forward_stype: str | None = None, out=None,
):  # fmt: skip
    """The matrix products of two batches: (B..., M, K) x (B..., K, N) -> (B..., M, N).

    transpose_a and transpose_b transpose each matrix first. dtypes as for `dot`. MXNetError at the
    call unless there are three or more axes and all but the inner sizes agree: batches do not
    broadcast. Cost: 2 B M N K.

    >>> nd.batch_dot(nd.ones((8, 2, 3)), nd.ones((8, 3, 5))).shape
    (8, 2, 5)
    """
    left = lhs.swapaxes(-2, -1) if transpose_a else lhs
    right = rhs.swapaxes(-2, -1) if transpose_b else rhs
    return matmul(xp, left, right, out)


@batch_dot.gradient(saves="lhs rhs")
def _(g, lhs, rhs, *, transpose_a, transpose_b, needs=ALL):
    return _gradients_of_product(batch_dot, g, lhs, rhs, transpose_a, transpose_b, needs)


# -- gemm -----------------------------------------------------------------------------------------


@composed("linalg_gemm2", flops=_flops_product, left_out=("axis",))
def gemm2(A, B, *, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0):
    """alpha op(A) op(B), where op is the identity or the transposition; single matrices or batches.

    A (..., M, K), B (..., K, N) -> (..., M, N). MXNetError at the call for shapes and dtypes. Cost:
    2 M N K for each pair.
    """
    product = dot if A.ndim == 2 else batch_dot
    y = product(A, B, transpose_a=transpose_a, transpose_b=transpose_b)
    return y if alpha == 1 else y * alpha


# -- FullyConnected -------------------------------------------------------------------------------


def _infer_fully_connected(
    data: Spec, weight: Spec, bias: Spec | None = None, *, num_hidden: int, no_bias: bool,
    flatten: bool,
) -> Spec:  # fmt: skip
    check_float(data, weight, bias)
    check_optional("bias", bias, not no_bias, f"no_bias={no_bias}")
    check_axes(data, 1, "one axis or more")
    inner = prod(data.shape[1:]) if flatten else data.shape[-1]
    check_shape(
        "weight", weight, (num_hidden, inner),
        why=f"num_hidden and the inputs of data {data.shape} with flatten={flatten}",
    )  # fmt: skip
    check_shape("bias", bias, (num_hidden,))
    outer = data.shape[:1] if flatten else data.shape[:-1]
    return Spec((*outer, num_hidden), data.dtype)


def unless_no_bias(attrs: dict[str, Any]) -> tuple[str, ...]:
    return () if attrs["no_bias"] else ("bias",)


def flops_of_layer(
    data: Spec, weight: Spec, bias: Spec | None = None, *, out: Spec, **_: Any
) -> float:
    """One multiplication and one addition for each output and each weight that contributes."""
    return 2.0 * out.size * prod(weight.shape[1:]) + (0 if bias is None else out.size)


def _rows(shape: Shape, flatten: bool) -> Shape:
    """data as a matrix with one sample per row."""
    return (shape[0], prod(shape[1:])) if flatten else (prod(shape[:-1]), shape[-1])


@op(infer=_infer_fully_connected, flops=flops_of_layer, optional=unless_no_bias)
def FullyConnected(
    xp, data, weight, bias=None, *, num_hidden: int, no_bias: bool = False, flatten: bool = True,
    out=None,
):  # fmt: skip
    """y = data weight^T + bias, a layer of `num_hidden` units.

    data (N, ...), where the axes after the first are merged into one of size K -> (N, num_hidden);
    with flatten False data (..., K) -> (..., num_hidden). weight (num_hidden, K), bias
    (num_hidden,) unless no_bias. One floating dtype, kept. MXNetError at the call for shapes and
    dtypes.
    Cost: 2 N K num_hidden.

    >>> weight, bias = nd.ones((5, 12)), nd.zeros(5)
    >>> nd.FullyConnected(nd.ones((2, 3, 4)), weight, bias, num_hidden=5).shape
    (2, 5)
    """
    flat = data.ndim == 2  # reshaping would change nothing
    rows = data if flat else data.reshape(_rows(data.shape, flatten))
    place = out if flat or out is None else out.reshape(len(rows), num_hidden)
    y = matmul(xp, rows, weight.T, place)
    if bias is not None:
        # For one row NumPy adds arrays of equal shape in half the time.
        xp.add(y, bias[None] if len(y) == 1 else bias, y)
    if flat:
        return y
    return y.reshape((data.shape[:1] if flatten else data.shape[:-1]) + (num_hidden,))


@FullyConnected.gradient(saves="data data.shape weight")
def _(g, data, shape, weight, *, num_hidden, no_bias, flatten, needs=ALL, places=NOWHERE):
    flat = len(shape) == 2  # reshaping would change nothing
    rows = shape if flat else _rows(shape, flatten)
    g = g if flat else reshape_to(g, (rows[0], num_hidden))
    dx = dw = None
    if needs[0]:
        dx = dot(g, weight)
        dx = dx if flat else reshape_to(dx, shape)
    if needs[1]:
        dw = dot(g, data if flat else reshape_to(data, rows), transpose_a=True, out=places[1])
    return (dx, dw) if no_bias else (dx, dw, sum_(g, axis=0, out=places[2]) if needs[2] else None)


@FullyConnected.infer_inputs
def _(given, out, attrs):
    data, weight, hidden = given["data"], given.get("weight"), attrs["num_hidden"]
    if not data:
        return {}
    inner = prod(data[1:]) if attrs["flatten"] else data[-1]
    found = {"weight": (hidden, inner), "bias": (hidden,)}
    if out and (len(data) == 2 or not attrs["flatten"]):
        found["data"] = (*out[:-1], weight[1] if weight else 0)
    return found
