"""Files of Symbols between d2lmini and the real MXNet 1.9.1, in both directions (`make
test-mxnet`).

Every row of the op table that has a Symbol becomes a file: MXNet reads ours and computes the same,
and what it writes for the same call computes the same here.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from symbol_values import evaluate
from test_ops import ROWS, find

from d2lmini import nd, sym
from d2lmini.ops.core import Op
from d2lmini.symbol.node import Node

MXNET = os.environ.get("D2LMINI_MXNET_PYTHON")
if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)


def encode(value: Any) -> Any:
    """Arrays as plain tuples, dtypes as names."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value


def ask(rows: list[dict]) -> list[Any]:
    """What MXNet says to rows of `tools/mxnet_symbols.py`."""
    program = Path(__file__).parent / "tools" / "mxnet_symbols.py"
    got: list[Any] = []
    while len(got) < len(rows):
        left = pickle.dumps(rows[len(got) :], 2)
        result = subprocess.run(
            [str(MXNET), str(program)], input=left, capture_output=True, timeout=600
        )
        stream = io.BytesIO(result.stdout)
        while True:
            try:
                got.append(pickle.load(stream))
            except (EOFError, pickle.UnpicklingError):
                break
        if result.returncode:  # MXNet itself fell over this row; go on behind it
            got.append("the process ended: " + result.stderr.decode()[-200:])
    return got


def has_symbol(case: Any) -> bool:
    """Is the row one op, with inputs, that gives the same numbers each time and writes nothing?"""
    op = find(case.op)
    if not isinstance(op, Op) or op.random or not case.inputs:
        return False
    if op.mxnet_rule:  # said in other ops there, but for what those do not take
        key = case.attrs.get("key", ())
        several = sum(type(i) is int or (type(i) is tuple and i[0] == "at") for i in key) > 1
        strange = any(np.asarray(i).dtype == bool or np.size(i) == 0 for i in case.inputs)
        return not several and not strange and case.attrs.get("batch_axis") != -1
    if not case.mxnet:
        return False
    if op.name.endswith("_update") or "_update_phase" in op.name:  # no part of any graph
        return False
    arrays = all(isinstance(i, np.ndarray) for i in case.inputs)
    return arrays and bool(op.mxnet_rule or op.in_mxnet) and op.outputs != 0


COMPARED = [case for case in ROWS if has_symbol(case)]
IDS = [case.id for case in COMPARED]


def symbol_of(case: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The row as a Symbol of variables x0, x1, ..., and their values."""
    op = find(case.op)
    given = tuple(nd.array(i, dtype=i.dtype) for i in case.inputs)
    _, attrs = op.bind(given, dict(case.attrs))
    values = {f"x{i}": x for i, x in enumerate(case.inputs)}
    node = Node(op, "y", tuple((Node(None, name), 0) for name in values), attrs)
    return sym.Symbol(tuple((node, i) for i in range(node.n_outputs))), values


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """What MXNet makes of every row."""
    rows = []
    for case in COMPARED:
        symbol, values = symbol_of(case)
        attrs = {k: encode(v) for k, v in case.attrs.items()}
        # Not one op there; and its CTCLoss takes label lengths alone only by name.
        apart = find(case.op).mxnet_rule or case.attrs.get("use_label_lengths")
        rows.append(
            {
                "text": symbol.tojson(remove_amp_cast=False),
                "values": {k: encode(v) for k, v in values.items()},
                "op": None if apart else (case.op.split(".")[-1], list(values), attrs),
            }
        )
    return ask(rows)


def same(mine: list[np.ndarray], theirs: list[Any], case: Any) -> None:
    assert len(mine) == len(theirs)
    for ours, (_, dtype, shape, data) in zip(mine, theirs, strict=True):
        want = np.frombuffer(data, dtype).reshape(shape)
        assert ours.shape == want.shape
        assert ours.dtype == want.dtype
        loose = 10 if ours.dtype != np.float16 else 100
        np.testing.assert_allclose(
            ours.astype("float64"), want.astype("float64"),
            rtol=loose * max(case.rtol, 1e-5), atol=loose * max(case.atol, 1e-6),
        )  # fmt: skip


@pytest.mark.parametrize("row", range(len(COMPARED)), ids=IDS)
def test_both_read_what_the_other_wrote(row: int, answers: list[Any]):
    case, answer = COMPARED[row], answers[row]
    if isinstance(answer, str) and answer.startswith("the process ended"):
        pytest.skip(f"MXNet crashes on this row: {answer}")
    assert isinstance(answer, dict), f"MXNet refuses our file: {answer}"
    symbol, values = symbol_of(case)
    mine = evaluate(symbol, values)
    same(mine, answer["outputs"], case)
    # MXNet writes again what it read: names, attributes, hidden outputs.
    theirs = json.loads(answer["again"])
    theirs["attrs"].pop("is_np_shape", None)  # the mode in which shapes like () and (0,) are read
    assert theirs == json.loads(symbol.tojson(False))
    for text in (symbol.tojson(False), answer["again"], answer["written"] or symbol.tojson()):
        for once, again in zip(mine, evaluate(sym.load_json(text), values), strict=True):
            if find(case.op).mxnet_rule:
                np.testing.assert_allclose(once, again, rtol=2e-3 if once.itemsize == 2 else 1e-5)
            else:
                np.testing.assert_array_equal(once, again)
