"""Products of arrays in `np`: dot, matmul, tensordot, einsum and their relatives.

>>> from d2lmini import np
>>> A = np.arange(6).reshape(2, 3)
>>> np.dot(A, np.ones(3)), np.matmul(np.ones((4, 2, 3)), A.T).shape, np.dot(np.ones(3), np.ones(3))
(array([ 3., 12.]), (4, 2, 2), array(3.))
>>> np.einsum("ij,kj->ik", A, A)
array([[ 5., 14.],
       [14., 50.]])
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as onp

from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.reductions import sum
from d2lmini.np.selection import diagonal
from d2lmini.np.shapes import broadcast_to, expand_dims, ravel, transpose
from d2lmini.np.values import (
    as_type,
    check_array,
    drop_axes,
    dtype_of,
    fill,
    is_number,
    promote,
    reshape_to,
)
from d2lmini.ops.core import normalize_axis, registry

multiply = ELEMENTWISE["multiply"]


def _pair(name: str, a: Any, b: Any) -> list[Any]:
    """Both operands in one dtype; bool counts as int64, since BLAS has no products of bool."""
    a, b = promote(name, check_array(name, a), check_array(name, b))
    return [as_type(x, "int64") if dtype_of(x).kind == "b" else x for x in (a, b)]


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The product over the last axis of `a` and the last but one of `b` (its only one)."""
    if is_number(a) or is_number(b):
        return multiply(a, b, out)
    a, b = _pair("dot", a, b)
    if not a.shape or not b.shape:
        return multiply(a, b, out)
    return fill(out, tensordot(a, b, ([len(a.shape) - 1], [max(0, len(b.shape) - 2)])))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The product over pairs of axes: the last n of `a` and the first n of `b`, or those listed.
    ValueError if the sizes of a pair differ."""
    a, b = _pair("tensordot", a, b)
    if is_number(axes):
        left = list(range(len(a.shape) - int(axes), len(a.shape)))
        right = list(range(int(axes)))
    else:
        left, right = ([x] if is_number(x) else list(x) for x in axes)
        left = [normalize_axis(x, len(a.shape)) for x in left]
        right = [normalize_axis(x, len(b.shape)) for x in right]
    sizes = [a.shape[i] for i in left]
    if sizes != [b.shape[i] for i in right]:
        raise ValueError(
            f"shapes {a.shape} and {b.shape} not aligned: the axes {left} and {right} have sizes "
            f"{tuple(sizes)} and {tuple(b.shape[i] for i in right)}"
        )
    rows = [i for i in range(len(a.shape)) if i not in left]
    columns = [i for i in range(len(b.shape)) if i not in right]
    shape = tuple([a.shape[i] for i in rows] + [b.shape[i] for i in columns])
    inner = prod(sizes)
    a = reshape_to(_ordered(a, rows + left), (prod(a.shape[i] for i in rows), inner))
    b = reshape_to(_ordered(b, right + columns), (inner, prod(b.shape[i] for i in columns)))
    return reshape_to(registry["dot"](a, b), shape)


def _ordered(x: Any, axes: list[int]) -> Any:
    return x if axes == list(range(len(axes))) else transpose(x, axes)


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """Products of matrices in the last two axes; the others broadcast, vectors get an axis.
    ValueError for arrays without axes and for sizes that do not fit."""
    a, b = _pair("matmul", a, b)
    if not a.shape or not b.shape:
        raise ValueError("np.matmul: arrays without axes have no matrix product; use a * b")
    if len(a.shape) <= 2 and len(b.shape) <= 2:
        return fill(out, tensordot(a, b, ([len(a.shape) - 1], [max(0, len(b.shape) - 2)])))
    row, column = len(a.shape) == 1, len(b.shape) == 1
    a = expand_dims(a, 0) if row else a
    b = expand_dims(b, 1) if column else b
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"np.matmul: {a.shape} and {b.shape} do not fit: {a.shape[-1]} columns, "
                         f"{b.shape[-2]} rows")  # fmt: skip
    lead = tuple(onp.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    flat = [
        reshape_to(broadcast_to(x, lead + tuple(x.shape[-2:])), (prod(lead), *x.shape[-2:]))
        for x in (a, b)
    ]
    shape = lead + (() if row else (a.shape[-2],)) + (() if column else (b.shape[-1],))
    return fill(out, reshape_to(registry["batch_dot"](*flat), shape))


def inner(a: Any, b: Any) -> Any:
    """The product over the last axes."""
    if is_number(a) or is_number(b) or not a.shape or not b.shape:
        return multiply(a, b)
    return tensordot(a, b, ([len(a.shape) - 1], [len(b.shape) - 1]))


def outer(a: Any, b: Any) -> Any:
    """All products of an element of `a` with one of `b`."""
    a, b = _pair("outer", a, b)
    return tensordot(ravel(a), ravel(b), 0)


def vdot(a: Any, b: Any) -> Any:
    """The sum of the products of the elements."""
    return dot(ravel(a), ravel(b))


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product: each element of `a` times all of `b`."""
    a, b = _pair("kron", a, b)
    ndim = max(len(a.shape), len(b.shape))
    left = (1,) * (ndim - len(a.shape)) + tuple(a.shape)
    right = (1,) * (ndim - len(b.shape)) + tuple(b.shape)
    a = reshape_to(a, tuple(size for n in left for size in (n, 1)))
    b = reshape_to(b, tuple(size for n in right for size in (1, n)))
    return reshape_to(multiply(a, b), tuple(m * n for m, n in zip(left, right)))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, out: Any = None) -> Any:
    """The sum along a diagonal of two axes."""
    return fill(out, sum(diagonal(check_array("trace", a), offset, axis1, axis2), -1))


def einsum(*operands: Any, **_optimize: Any) -> Any:
    """Sums of products, by subscripts such as 'ij,jk->ik' (einsum in NumPy's notation, with
    '...' for any axes). ValueError for subscripts that do not fit the arrays."""
    subscripts, *arrays = operands
    arrays = [check_array("einsum", x) for x in arrays]
    terms, result = _subscripts(subscripts.replace(" ", ""), [len(x.shape) for x in arrays])
    total, labels = _term(arrays[0], terms[0])
    for number, (x, term) in enumerate(zip(arrays[1:], terms[1:]), 1):
        later = set(result).union(*terms[number + 1 :])
        total, labels = _contract(total, labels, *_term(x, term), later)
    gone = tuple(i for i, label in enumerate(labels) if label not in result)
    total = sum(total, gone) if gone else total
    labels = [label for label in labels if label in result]
    if sorted(labels) != sorted(result):
        raise ValueError(f"einsum: the result {''.join(result)} names a label that no input has")
    order = [labels.index(label) for label in result]
    return _ordered(total, order) if order else drop_axes(total)


def _subscripts(text: str, ndims: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each input and of the result; '...' becomes labels of its own."""
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ndims):
        raise ValueError(f"einsum: {len(inputs)} subscripts in {text!r} for {len(ndims)} arrays")
    terms, widest = [], 0
    for term, ndim in zip(inputs, ndims):
        extra = ndim - len(term.replace("...", ""))
        if extra < 0 or (extra and "..." not in term):
            raise ValueError(f"einsum: {term!r} does not name the {ndim} axes of its array")
        widest = max(widest, extra)
        before, dots, after = term.partition("...")
        middle = [f".{extra - i}" for i in range(extra)] if dots else []
        terms.append([*before, *middle, *after])
    dotted = [f".{widest - i}" for i in range(widest)]
    if arrow:
        before, dots, after = right.partition("...")
        return terms, [*before, *(dotted if dots else []), *after]
    flat = [label for term in terms for label in term if not label.startswith(".")]
    return terms, dotted + sorted(label for label in set(flat) if flat.count(label) == 1)


def _term(x: Any, labels: list[str]) -> tuple[Any, list[str]]:
    """An input whose labels are distinct: of a repeated label the diagonal is taken."""
    labels = list(labels)
    for label in list(dict.fromkeys(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = registry["diag"](x, k=0, axis1=first, axis2=second)
            labels = [other for i, other in enumerate(labels) if i not in (first, second)] + [label]
    return x, labels


def _contract(
    a: Any, left: list[str], b: Any, right: list[str], later: set[str]
) -> tuple[Any, list[str]]:
    """The product of two terms, summed over the labels that are not needed later."""
    summed = [label for label in left if label in right and label not in later]
    batch = [label for label in left if label in right and label in later]
    if batch:
        labels = left + [label for label in right if label not in left]
        x = _aligned(a, left, labels)
        y = _aligned(b, right, labels)
        if not summed:
            return multiply(x, y), labels
        rows = [label for label in left if label not in right]
        columns = [label for label in right if label not in left]
        sizes = {**dict(zip(left, a.shape)), **dict(zip(right, b.shape))}
        shape = [prod(sizes[label] for label in part) for part in (batch, rows, summed, columns)]
        x = reshape_to(_ordered(a, [left.index(i) for i in batch + rows + summed]),
                       (shape[0], shape[1], shape[2]))  # fmt: skip
        y = reshape_to(_ordered(b, [right.index(i) for i in batch + summed + columns]),
                       (shape[0], shape[2], shape[3]))  # fmt: skip
        labels = batch + rows + columns
        product = registry["batch_dot"](*promote("einsum", x, y))
        return reshape_to(product, tuple(sizes[label] for label in labels)), labels
    axes = [left.index(label) for label in summed], [right.index(label) for label in summed]
    rest = [i for i in left if i not in summed] + [i for i in right if i not in summed]
    return tensordot(a, b, axes), rest


def _aligned(x: Any, labels: list[str], wanted: list[str]) -> Any:
    """`x` with its axes in the order of `wanted`, size 1 for labels that it has not."""
    order = [labels.index(label) for label in wanted if label in labels]
    sizes = iter([x.shape[i] for i in order])
    shape = tuple(next(sizes) if label in labels else 1 for label in wanted)
    return reshape_to(_ordered(x, order), shape)


def polyval(p: Any, x: Any) -> Any:
    """The polynomial with these coefficients, the highest power first, at `x` (Horner's rule)."""
    p, x = promote("polyval", check_array("polyval", p), check_array("polyval", x))
    y = p[0] + registry["zeros_like"](x)
    for i in range(1, p.size):
        y = y * x + p[i]
    return y


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        dot, tensordot, matmul, inner, outer, vdot, kron, trace, einsum, polyval,
    )
}  # fmt: skip
