"""The op table against the real MXNet 1.9.1, where one is at hand (`make test-mxnet`).

D2LMINI_MXNET_PYTHON names an interpreter that has `mxnet==1.9.1` and `numpy==1.23.5`.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ops import ROWS, run

MXNET = os.environ.get("D2LMINI_MXNET_PYTHON")
if not MXNET:
    pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter", allow_module_level=True)

COMPARED = [case for case in ROWS if case.mxnet]


def encode(value: Any) -> Any:
    """Arrays as plain tuples, dtypes as names."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value


@pytest.fixture(scope="session")
def answers() -> list[Any]:
    """What MXNet says to every row."""
    rows = [
        (c.op, [encode(i) for i in c.inputs], {k: encode(v) for k, v in c.attrs.items()})
        for c in COMPARED
    ]
    oracle = Path(__file__).parent / "tools" / "mxnet_oracle.py"
    got: list[Any] = []
    while len(got) < len(rows):
        left = pickle.dumps(rows[len(got) :], 2)
        result = subprocess.run(
            [str(MXNET), str(oracle)], input=left, capture_output=True, timeout=600
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


@pytest.mark.parametrize("row", range(len(COMPARED)), ids=[c.id for c in COMPARED])
def test_op_equals_mxnet(row: int, answers: list[Any]):
    case, theirs = COMPARED[row], answers[row]
    if isinstance(theirs, str) and theirs.startswith("the process ended"):
        pytest.skip(f"MXNet crashes on this row: {theirs}")
    assert isinstance(theirs, list), f"MXNet refuses this row: {theirs}"
    for mine, (_, dtype, shape, data) in zip(run(case), theirs, strict=True):
        want = np.frombuffer(data, dtype).reshape(shape)
        assert mine.shape == want.shape
        assert mine.dtype == want.dtype
        loose = 10 if mine.dtype != np.float16 else 100
        np.testing.assert_allclose(
            mine.astype("float64"), want.astype("float64"),
            rtol=loose * max(case.rtol, 1e-5), atol=loose * max(case.atol, 1e-6),
        )  # fmt: skip
