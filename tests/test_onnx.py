"""Nets and ops written as ONNX, run by onnxruntime: the same numbers as here.

Needs the packages onnx and onnxruntime (`pip install d2lmini[onnx,test]`); skipped without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from symbol_values import evaluate
from test_ops import ROWS, find

from d2lmini import nd, sym
from d2lmini.base import MXNetError
from d2lmini.ops.core import Op
from d2lmini.symbol.node import Node

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from d2lmini.onnx import export_model, get_operator_support  # noqa: E402
from d2lmini.onnx.graph import exported  # noqa: E402
from d2lmini.onnx.writer import CONVERTERS  # noqa: E402


def run(model: Any, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime gives for a model, or a file."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in values.items() if k in wanted})


# -- every op --------------------------------------------------------------------------------------


def convertible(case: Any) -> bool:
    op = find(case.op)
    if not isinstance(op, Op) or op.name not in CONVERTERS or op.name == "RNN":
        return False
    arrays = all(isinstance(i, np.ndarray) and i.size and i.dtype != bool for i in case.inputs)
    return bool(case.inputs) and arrays


CASES = [case for case in ROWS if convertible(case)]


def symbol_of(case: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The row as a Symbol of variables x0, x1, ..., and their values."""
    op = find(case.op)
    given = tuple(nd.array(i, dtype=i.dtype) for i in case.inputs)
    bound, attrs = op.bind(given, dict(case.attrs))
    places, values, left = [], {}, list(case.inputs)
    for x in bound:
        if x is None:
            places.append(None)
            continue
        name = f"x{len(values)}"
        values[name] = left.pop(0)
        places.append((Node(None, name), 0))
    node = Node(op, "y", tuple(places), attrs)
    return sym.Symbol(tuple((node, i) for i in range(node.n_outputs))), values


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_op_equals_onnxruntime(case: Any):
    symbol, values = symbol_of(case)
    inputs = {k: (v.shape, v.dtype) for k, v in values.items()}
    try:
        model = exported(symbol, {}, inputs)
    except MXNetError as problem:
        pytest.skip(str(problem))
    try:
        theirs = run(model, values)
    except Exception as problem:
        if "NOT_IMPLEMENTED" in str(problem) or "INVALID_GRAPH" in str(problem):
            pytest.skip(f"onnxruntime does not do this: {str(problem)[:150]}")
        raise
    for mine, y in zip(evaluate(symbol, values), theirs, strict=True):
        assert mine.shape == y.shape
        assert mine.dtype == y.dtype
        half = mine.dtype == np.float16
        np.testing.assert_allclose(
            y.astype("float64"), mine.astype("float64"), rtol=1e-2 if half else 2e-4,
            atol=1e-2 if half else 1e-5,
        )  # fmt: skip
