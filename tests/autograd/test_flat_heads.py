"""Heads that no gradient leads to: their gradients are zeros, as in MXNet, and no error.

A law over all rows of all operations without a gradient (comparisons, argmax, round, ...): the
operation as the head, and before one that has a gradient; op by op and compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_rows.table import ROWS
from rows import by, over

from d2lmini import autograd, nd
from d2lmini import sym as symbols
from d2lmini.graph.cached_op import CachedOp
from d2lmini.ops.core import registry


def leaf(values: Any, req: str = "write", dtype: str = "float32") -> nd.NDArray:
    x = nd.array(values, dtype=dtype)
    x.attach_grad(req)
    return x


# -- the op table ----------------------------------------------------------------------------------


def is_flat(case: Any) -> bool:
    """Is it an operation without a gradient that one can ask for one?"""
    op = registry[case.op]
    numbers = all(np.asarray(x).dtype.kind != "b" for x in case.inputs)
    return op.rule is None and not op.mutates and len(case.inputs) > 0 and numbers


def kind(case: Any) -> tuple:
    """Of rows that are alike in this the first is enough."""
    return case.op, case.attrs.keys(), *[np.asarray(x).dtype for x in case.inputs]


FLAT_ROWS = list(
    {str(kind(c)): c for c in reversed(ROWS) if c.op in registry and is_flat(c)}.values()
)


@pytest.mark.parametrize("compiled", [False, True])
@over("case", by(lambda case: case.op, FLAT_ROWS), name=lambda case: case.id)
def test_an_operation_without_a_gradient_gives_zeros(case, compiled):
    op = registry[case.op]
    call: Callable = lambda *xs: op(*xs, **case.attrs)  # noqa: E731
    xs = [leaf(x, dtype=np.asarray(x).dtype) for x in case.inputs]
    if compiled:
        names = [symbols.var(f"x{i}") for i in range(len(xs))]
        call = CachedOp(op(*names, **case.attrs))
    for x in xs:
        x.grad[:] = 7
    with autograd.record():
        found = call(*xs)
        heads = found if isinstance(found, list) else [found]
        after = [y * 2 for y in heads]
    grads = autograd.grad(after, xs, retain_graph=True)
    autograd.backward([*heads, *after])
    for g in (*grads, *(x.grad for x in xs)):
        assert not g.asnumpy().any()
