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

from math import prod

import numpy as onp

from d2lmini.np.binding import Array
from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.reductions import sum
from d2lmini.np.selection import diagonal
from d2lmini.np.shapes import broadcast_to, ravel, transpose
from d2lmini.np.values import as_type, check_array, drop_axes, fill, is_number, promote, reshape_to
from d2lmini.ops.core import normalize_axis, registry

_multiply = ELEMENTWISE["multiply"]


def _pair(name, a, b):
    """Both operands in one dtype; bool counts as int64, since BLAS has no products of bool."""
    a, b = promote(name, check_array(name, a), check_array(name, b))
    return [as_type(x, "int64") if x.dtype.kind == "b" else x for x in (a, b)]


# -- products of arrays whose axes have labels -----------------------------------------------------


def _product(a, left, b, right, kept):
    """The product of two arrays, and its labels: those that both have and that are `kept`, then the
    other ones of `a` and of `b`; it sums over the rest. ValueError if sizes differ there."""
    batch = [label for label in left if label in right and label in kept]
    summed = [label for label in left if label in right and label not in kept]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    sizes, others = dict(zip(left, a.shape)), dict(zip(right, b.shape))
    for label in summed:
        if sizes[label] != others[label]:
            raise ValueError(
                f"shapes {a.shape} and {b.shape} not aligned: axis {left.index(label)} has size "
                f"{sizes[label]}, axis {right.index(label)} has size {others[label]}"
            )
    if batch and not summed:
        labels = left + columns
        return _multiply(_aligned(a, left, labels), _aligned(b, right, labels)), labels
    sizes |= others
    first = [batch] if batch else []
    a, b = _pair("einsum", a, b)
    a = _grouped(a, left, [*first, rows, summed], sizes)
    b = _grouped(b, right, [*first, summed, columns], sizes)
    labels = batch + rows + columns
    result = registry["batch_dot" if batch else "dot"](a, b)
    return _shaped(result, tuple([sizes[label] for label in labels])), labels


def _grouped(x, labels, groups, sizes):
    """`x` with an axis for each group of labels."""
    order = [labels.index(label) for group in groups for label in group]
    shape = tuple([prod([sizes[label] for label in group]) for group in groups])
    return _shaped(_ordered(x, order), shape)


def _shaped(x, shape):
    return x if x.shape == shape else reshape_to(x, shape)


def _ordered(x, order):
    return x if order == list(range(x.ndim)) else transpose(x, order)


def _aligned(x, labels, wanted):
    """`x` with its axes in the order of `wanted`, size 1 for labels that it has not."""
    order = [labels.index(label) for label in wanted if label in labels]
    shape = tuple(x.shape[labels.index(i)] if i in labels else 1 for i in wanted)
    return reshape_to(_ordered(x, order), shape)


def tensordot(a, b, axes=2):
    """The product over pairs of axes: the last n of `a` and the first n of `b`, or those listed.
    ValueError if the sizes of a pair differ."""
    a, b = _pair("tensordot", a, b)
    if is_number(axes):
        axes = range(a.ndim - int(axes), a.ndim), range(int(axes))
    pairs = [[x] if is_number(x) else x for x in axes]
    ours, theirs = ([normalize_axis(i, x.ndim) for i in axes] for x, axes in zip((a, b), pairs))
    if len(ours) != len(theirs):
        raise ValueError(f"np.tensordot: the axes {ours} and {theirs} are no pairs")
    left = list(range(a.ndim))
    right = [ours[theirs.index(i)] if i in theirs else a.ndim + i for i in range(b.ndim)]
    return _product(a, left, b, right, ())[0]


def _of_last_axis(a, b, axis):
    """The product over the last axis of `a` and an axis of `b`, counted from the end."""
    left, right = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    right[max(axis, -b.ndim)] = left[-1]
    return _product(a, left, b, right, ())[0]


def dot(a, b, out=None):
    """The product over the last axis of `a` and the last but one of `b` (its only one)."""
    if is_number(a) or is_number(b):
        return _multiply(a, b, out)
    a, b = _pair("dot", a, b)
    if not a.shape or not b.shape:
        return _multiply(a, b, out)
    return fill(out, _of_last_axis(a, b, -2))


def matmul(a, b, out=None):
    """Products of matrices in the last two axes; the others broadcast, vectors get an axis.
    ValueError for arrays without axes and for sizes that do not fit."""
    a, b = _pair("matmul", a, b)
    if not a.shape or not b.shape:
        raise ValueError("np.matmul: arrays without axes have no matrix product; use a * b")
    lead = onp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shapes = [lead + tuple(x.shape[-2:]) for x in (a, b)]
    a, b = (x if x.shape == s else broadcast_to(x, s) for x, s in zip((a, b), shapes))
    batch = list(range(len(lead)))
    left = [*batch, "row", "inner"] if a.ndim - len(batch) == 2 else [*batch, "inner"]
    right = [*batch, "inner", "column"] if b.ndim - len(batch) == 2 else [*batch, "inner"]
    return fill(out, _product(a, left, b, right, batch)[0])


def inner(a, b):
    """The product over the last axes."""
    if is_number(a) or is_number(b) or not a.shape or not b.shape:
        return _multiply(a, b)
    return _of_last_axis(a, b, -1)


def outer(a, b):
    """All products of an element of `a` with one of `b`."""
    a, b = _pair("outer", a, b)
    return _product(ravel(a), [0], ravel(b), [1], ())[0]


def vdot(a: Array, b):
    """The sum of the products of the elements."""
    return dot(ravel(a), ravel(check_array("vdot", b)))


def kron(a, b):
    """The Kronecker product: each element of `a` times all of `b`."""
    a, b = _pair("kron", a, b)
    ndim = max(a.ndim, b.ndim)
    left = (1,) * (ndim - a.ndim) + tuple(a.shape)
    right = (1,) * (ndim - b.ndim) + tuple(b.shape)
    a = reshape_to(a, tuple(size for n in left for size in (n, 1)))
    b = reshape_to(b, tuple(size for n in right for size in (1, n)))
    return reshape_to(a * b, tuple(m * n for m, n in zip(left, right)))


def trace(a: Array, offset=0, axis1=0, axis2=1, out=None):
    """The sum along a diagonal of two axes."""
    return fill(out, sum(diagonal(a, offset, axis1, axis2), -1))


def einsum(*operands, **_optimize):
    """Sums of products, by subscripts such as 'ij,jk->ik' (einsum in NumPy's notation, with
    '...' for any axes). ValueError for subscripts that do not fit the arrays."""
    subscripts, *arrays = operands
    arrays = [check_array("einsum", x) for x in arrays]
    terms, result = _subscripts(subscripts.replace(" ", ""), [x.ndim for x in arrays])
    total, labels = _term(arrays[0], terms[0])
    for number, (x, term) in enumerate(zip(arrays[1:], terms[1:]), 1):
        later = set(result).union(*terms[number + 1 :])
        x, term = _term(x, term)
        total, labels = _product(total, labels, x, term, later)
    gone = tuple(i for i, label in enumerate(labels) if label not in result)
    total = sum(total, gone) if gone else total
    labels = [label for label in labels if label in result]
    if sorted(labels) != sorted(result):
        raise ValueError(f"einsum: the result {''.join(result)} names a label that no input has")
    order = [labels.index(label) for label in result]
    return _ordered(total, order) if order else drop_axes(total)


def _subscripts(text, ndims):
    """The labels of each input and of the result."""
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
        terms.append(_labels(term, extra))
    if arrow:
        return terms, _labels(right, widest)
    named = [label for term in terms for label in term if label[0] != "."]
    return terms, _labels("...", widest) + sorted(i for i in set(named) if named.count(i) == 1)


def _labels(term, extra):
    """A label for each axis; '...' stands for `extra` axes, with labels of their own."""
    before, dots, after = term.partition("...")
    return [*before, *(f".{extra - i}" for i in range(extra) if dots), *after]


def _term(x, labels):
    """An input whose labels are distinct: of a repeated label the diagonal is taken."""
    labels = list(labels)
    for label in list(dict.fromkeys(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = registry["diag"](x, k=0, axis1=first, axis2=second)
            labels = [other for i, other in enumerate(labels) if i not in (first, second)] + [label]
    return x, labels


def polyval(p: Array, x):
    """The polynomial with these coefficients, the highest power first, at `x` (Horner's rule)."""
    p, x = promote("polyval", p, check_array("polyval", x))
    y = p[0] + registry["zeros_like"](x)
    for i in range(1, p.size):
        y = y * x + p[i]
    return y
