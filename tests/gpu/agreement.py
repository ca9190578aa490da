"""All rows of operations, against NumPy, and of layers, against the CPU, on gpu(0), both ways.

Collected by `run.py` alone: it needs a GPU. Gradients of operations are compared with the CPU's.
"""

from __future__ import annotations

import numpy as np
import pytest
from gluon_rows.repeatable import ROWS as NETS
from gluon_rows.runner import Row, examine_here
from op_rows.case import Case
from op_rows.table import ROWS, expected, find

from d2lmini import autograd, cpu, engine, gpu, nd, random
from d2lmini.ops import random_state
from d2lmini.ops.core import Op

#: A GPU adds up in another order, and CuPy's functions differ from NumPy's in the last places.
RTOL, ATOL = 1e-3, 1e-4


@pytest.fixture(autouse=True)
def quiet():
    """What a row left behind, an error too, is no concern of the next."""
    yield
    try:
        engine.waitall()
    except Exception:
        engine.waitall()


def inputs_of(case: Case) -> list:
    return [nd.array(i, dtype=i.dtype) if isinstance(i, np.ndarray) else i for i in case.inputs]


def as_list(results) -> list:
    return results if isinstance(results, list) else [results]


@pytest.mark.parametrize("case", ROWS, ids=[case.id for case in ROWS])
def test_an_operation_equals_numpy(case: Case):
    with gpu(0):
        results = as_list(find(case.op)(*inputs_of(case), **case.attrs))
        for got, want in zip([r.asnumpy() for r in results], expected(case), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, max(case.rtol, RTOL), max(case.atol, ATOL))


def moving(case: Case, inputs: list) -> list[nd.NDArray]:
    """The inputs that gradients are asked for: floating numbers, and not written to."""
    op = find(case.op)
    mutated: list = []
    if isinstance(op, Op):
        bound, attrs = op.bind(tuple(inputs), dict(case.attrs))
        places = op.mutates(len(bound), attrs) if callable(op.mutates) else op.mutates
        mutated = [bound[i] for i in places]
    return [
        x
        for x in inputs
        if isinstance(x, nd.NDArray)
        and np.dtype(x.dtype).kind == "f"
        and not any(x is other for other in mutated)
    ]


def gradients(case: Case, ctx) -> list[np.ndarray]:
    """Those of all inputs that have one."""
    with ctx:
        inputs = inputs_of(case)
        places = moving(case, inputs)
        for x in places:
            x.attach_grad()
        with autograd.record():
            results = as_list(find(case.op)(*inputs, **case.attrs))
        heads = [r for r in results if np.dtype(r.dtype).kind == "f"]
        if not heads or not places:
            return []
        autograd.backward(heads)
        return [x.grad.asnumpy() for x in places]


WITH_GRADIENT = [case for case in ROWS if case.grad]


@pytest.mark.parametrize("case", WITH_GRADIENT, ids=[case.id for case in WITH_GRADIENT])
def test_its_gradient_is_the_cpus(case: Case):
    """Of what draws, its own of another run: each device draws numbers of its own."""
    try:
        with random_state.noting() as drawn:
            wanted = gradients(case, cpu())
    except Exception as problem:
        pytest.skip(f"the CPU says {type(problem).__name__}")
    if drawn:
        random.seed(0)
        wanted = gradients(case, gpu(0))
        random.seed(0)
    for got, want in zip(gradients(case, gpu(0)), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        half = got.dtype == np.float16
        np.testing.assert_allclose(
            got, want, max(case.rtol, 10 * RTOL if half else RTOL), 10 * ATOL
        )


@pytest.mark.parametrize("row", NETS, ids=[row.id for row in NETS])
def test_a_layer_says_what_the_cpu_says(row: Row):
    want = examine_here(row)
    with gpu(0):
        got = examine_here(row)
    assert got.keys() == want.keys()
    half = row.dtype == "float16"
    for key in want.keys() - {"about"}:
        assert (got[key].shape, got[key].dtype) == (want[key].shape, want[key].dtype), key
        np.testing.assert_allclose(
            got[key], want[key], max(row.rtol, 1e-2 if half else RTOL), 1e-2 if half else 10 * ATOL,
            err_msg=key,
        )  # fmt: skip
