"""Gradients of every op through the tape, against differences along random directions: first
order, and second order where the rule is made of ops that have rules themselves.

The rows are those of `op_rows/`, in float64. For a row f with output gradients h and directions u,
v (one array for each floating input), central differences of f and of its gradient G say what

    <h, f'(x) u> = <G(x), u>        <v, G'(x) u> = <gradient of <G(x), v>, u>

must be.
"""

from __future__ import annotations

import numpy as np
import pytest
from op_rows.case import Case
from op_rows.table import ROWS, find
from rows import by, over

from d2lmini import autograd, nd, random
from d2lmini.base import MXNetError
from d2lmini.ops.core import Op, invoke

#: Ops whose gradients are not differentiated again: what the error says.
ONCE = {
    "RNN": "a recurrent layer is not differentiable twice",
    "Pooling": "backward is non-differentiable|spread is non-differentiable",
    "gamma": "digamma is non-differentiable",
    "gammaln": "digamma is non-differentiable",
}

#: Ops of which only the first output passes a gradient.
FIRST_OUTPUT_ONLY = {"BatchNorm", "LayerNorm", "GroupNorm"}


def floating(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 0


def differentiable(case: Case) -> bool:
    op = find(case.op)
    return (
        case.grad
        and isinstance(op, Op)
        and op.rule is not None
        and any(floating(i) for i in case.inputs)
        and not any(isinstance(i, np.ndarray) and i.dtype == np.float16 for i in case.inputs)
    )


def zero_in_product(case: Case) -> bool:
    """The second derivative of a product is right only where no element is 0."""
    return find(case.op).name == "prod" and 0 in case.inputs[0]


FIRST = [
    (case, training)
    for case in ROWS
    if differentiable(case)
    for training in ((True, False) if "training" in find(case.op).injects else (True,))
]


def some(cases: list, most: int = 8) -> list:
    """At most so many rows of each op, from all over the table."""
    by_op: dict[str, list] = {}
    for case in cases:
        by_op.setdefault(find(case[0].op).name, []).append(case)
    return [c for rows in by_op.values() for c in rows[:: -(-len(rows) // most)]]


SECOND = some(
    [
        (case, training)
        for case, training in FIRST
        if find(case.op).name not in ONCE and not zero_in_product(case)
    ]
)


def each(rows: list):
    """One test for each op, through all its rows."""

    def name(row: tuple) -> str:
        return row[0].id if row[1] else f"{row[0].id}-predict"

    return over("case, training", by(lambda row: row[0].op, rows), name)


class Problem:
    """A row in float64 as a function of its floating inputs."""

    def __init__(self, case: Case, training: bool = True):
        self.op = find(case.op)
        self.training = training
        rng = np.random.default_rng(11)
        arrays = [
            i.astype("float64") if isinstance(i, np.ndarray) and i.dtype.kind == "f" else i
            for i in case.inputs
        ]
        inputs = [nd.array(a, dtype=a.dtype) if isinstance(a, np.ndarray) else a for a in arrays]
        bound, attrs = self.op.bind(tuple(inputs), dict(case.attrs))
        self.attrs = dict(attrs)  # the op remembers its own
        self.inputs = list(bound)
        dtype = self.attrs.get("dtype")
        if dtype is not None and np.dtype(dtype).kind == "f":
            self.attrs["dtype"] = np.dtype("float64")
        self.moving = [
            i
            for i, x in enumerate(bound)
            if x is not None and x.dtype == np.float64 and i not in mutated(self.op)
        ]
        self.at = [self.inputs[i].asnumpy() for i in self.moving]
        self.u = [rng.uniform(-1, 1, a.shape) for a in self.at]
        self.v = [rng.uniform(-1, 1, a.shape) for a in self.at]
        self.heads = [
            nd.array(rng.uniform(-1, 1, y.shape), dtype=y.dtype) for y in self.outputs(self.at)
        ]
        if self.op.name in FIRST_OUTPUT_ONLY:
            self.heads[1:] = [nd.zeros_like(h) for h in self.heads[1:]]

    def bound(self, arrays: list) -> tuple[list, list]:
        """Fresh inputs with the floating ones at `arrays`: (all, those)."""
        inputs = [x if x is None else x.copy() for x in self.inputs]
        for i, a in zip(self.moving, arrays, strict=True):
            inputs[i] = nd.array(a, dtype="float64")
        return inputs, [inputs[i] for i in self.moving]

    def outputs(self, arrays: list) -> list:
        inputs, _ = self.bound(arrays)
        with autograd.train_mode() if self.training else autograd.predict_mode():
            return self.call(inputs)

    def call(self, inputs: list) -> list:
        random.seed(5)
        result = invoke(self.op, tuple(inputs), self.attrs)
        return result if isinstance(result, list) else [result]

    def numeric(self, step: float) -> float:
        """<h, f'(x) u> by differences."""
        ends = [
            [y.asnumpy().astype("float64") for y in self.outputs(moved)]
            for moved in (self.moved(step), self.moved(-step))
        ]
        return sum(
            float((h.asnumpy() * (after - before)).sum()) / (2 * step)
            for h, after, before in zip(self.heads, *ends, strict=True)
        )

    def moved(self, step: float) -> list:
        """x + step u"""
        return [a + step * u for a, u in zip(self.at, self.u, strict=True)]

    def gradients(self, step: float, create_graph: bool = False) -> tuple[list, list]:
        """G(x + step u), and the inputs there."""
        inputs, xs = self.bound(self.moved(step))
        for x in xs:
            x.attach_grad()
        with autograd.record(train_mode=self.training):
            outs = self.call(inputs)
            if create_graph:
                total = sum((y * h).sum() for y, h in zip(outs, self.heads, strict=True))
                # All that does not lead to an output has the gradient zero.
                total = total + sum((x * 0).sum() for x in xs)
                return autograd.grad(total, xs, create_graph=True), xs
        autograd.backward(outs, self.heads, train_mode=self.training)
        return [x.grad for x in xs], xs

    def slope(self, step: float) -> float:
        """<G(x + step u), v>"""
        grads, _ = self.gradients(step)
        return dot(grads, self.v)


def mutated(op: Op) -> tuple:
    """The inputs that are states: changed in some mode, differentiated in none."""
    if op.variadic or not callable(op.mutates):
        return () if op.variadic else op.mutates
    training = {**op.defaults, "training": True}
    return tuple(op.mutates(len(op.input_names), training))


def dot(arrays: list, directions: list) -> float:
    return sum(float((g.asnumpy() * d).sum()) for g, d in zip(arrays, directions, strict=True))


def of(case: Case, training: bool) -> Problem:
    problem = Problem(case, training)
    if not problem.moving or any(h.dtype != np.float64 for h in problem.heads[:1]):
        pytest.skip("the output is not floating")
    return problem


@each(FIRST)
def test_gradient_through_the_tape(case: Case, training: bool):
    problem = of(case, training)
    grads, xs = problem.gradients(0.0)
    for g, x in zip(grads, xs, strict=True):
        assert g.shape == x.shape and g.dtype == x.dtype
    numeric = problem.numeric(1e-5)
    np.testing.assert_allclose(dot(grads, problem.u), numeric, rtol=2e-4, atol=1e-6)


@each(SECOND)
def test_second_order_through_the_tape(case: Case, training: bool):
    problem = of(case, training)
    grads, xs = problem.gradients(0.0, create_graph=True)
    with autograd.record():
        total = sum((g * nd.array(v, dtype="float64")).sum() for g, v in zip(grads, problem.v))
    total.backward()
    numeric = (problem.slope(1e-5) - problem.slope(-1e-5)) / 2e-5
    np.testing.assert_allclose(dot([x.grad for x in xs], problem.u), numeric, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", sorted(ONCE))
def test_what_is_not_differentiated_twice_says_so(name: str):
    case, training = next(c for c in FIRST if find(c[0].op).name == name)
    problem = Problem(case, training)
    with pytest.raises(MXNetError, match=ONCE[name]):
        grads, _ = problem.gradients(0.0, create_graph=True)
        with autograd.record():
            total = sum(g.sum() for g in grads)
        total.backward()
