"""bfloat16 (needs ml_dtypes): each op computes on float32 copies and rounds once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from op_rows.table import OP_ROWS, find
from oracle import Oracle
from rows import by, over

from d2lmini import MXNetError, nd, optimizer
from d2lmini.ops.core import Op

bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


# -- every op --------------------------------------------------------------------------------------


def is_comparable(case: Any) -> bool:
    op = find(case.op)
    arrays = [x for x in case.inputs if isinstance(x, np.ndarray)]
    return (
        isinstance(op, Op)
        and bool(arrays)
        and (not op.random or (op.name == "RNN" and not case.attrs.get("p")))
        and all(x.dtype != np.float16 and x.dtype != np.float64 for x in arrays)
        and any(x.dtype == np.float32 for x in arrays)
        # Factorizations, and masters of mixed precision, are for float32 and float64.
        and not op.name.startswith(("linalg_", "mp_", "multi_mp_", "preloaded_multi_mp_", "_svd"))
        and "dtype" not in case.attrs
    )


# The first rows of each op are the usual ones.
BY_OP = by(lambda case: case.op, [case for case in OP_ROWS if is_comparable(case)])


@over("case", {op: rows[:2] for op, rows in BY_OP.items()}, name=lambda case: case.id)
def test_an_op_rounds_what_float32_gives(case: Any):
    assert_rounds(case, bfloat16)


@over("case", {op: BY_OP[op][:2] for op in ("RNN", "_rnn_layer")}, name=lambda case: case.id)
def test_a_recurrent_layer_rounds_float16_too(case: Any):
    assert_rounds(case, np.dtype(np.float16))


def assert_rounds(case: Any, dtype: np.dtype) -> None:
    """The op on arrays of `dtype` gives what it gives on the same numbers as float32, rounded."""
    op = find(case.op)
    halves = [
        x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x
        for x in case.inputs
    ]

    def run(inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        given = [nd.array(x, dtype=x.dtype) if isinstance(x, np.ndarray) else x for x in inputs]
        results = op(*given, **case.attrs)
        results = results if isinstance(results, list) else [results]
        return [y.asnumpy() for y in results], [x.asnumpy() for x in given if hasattr(x, "_spec")]

    try:
        found, changed = run(halves)
    except MXNetError as problem:
        assert "needs float32" in str(problem) or "dtype" in str(problem)  # refused for float16 too
        return
    wide = [x.astype(np.float32) if getattr(x, "dtype", 0) == dtype else x for x in halves]
    expected, also_changed = run(wide)
    for one, other in zip([*found, *changed], [*expected, *also_changed], strict=True):
        rounded = other.astype(one.dtype)
        np.testing.assert_array_equal(one.astype(float), rounded.astype(float), strict=True)


def test_the_dtype_of_a_result():
    x = nd.ones((2, 3), dtype="bfloat16")
    for y in (x + x, x * 2.5, x.exp(), nd.dot(x, x.T), x.mean(), x[0], x.reshape((3, 2)), x == x):
        assert y.dtype is bfloat16.type
    assert x.argsort().dtype == np.float32
    assert nd.array([1, 2], dtype=bfloat16).dtype is bfloat16.type
    with pytest.raises(MXNetError, match="dtypes differ: bfloat16, float32"):
        x + nd.ones((2, 3))


def test_sums_and_products_accumulate_in_float32():
    """In bfloat16 itself 256 + 1 is 256, in float16 2048 + 1 is 2048."""
    for dtype, n in (("bfloat16", 1024), ("float16", 4096)):
        x = nd.ones((1, n), dtype=dtype)
        assert x.sum().asscalar() == nd.dot(x, x.T).asscalar() == n
        y = nd.FullyConnected(x, x, no_bias=True, num_hidden=1)
        assert y.asscalar() == nd.batch_dot(x.expand_dims(0), x.T.expand_dims(0)).asscalar() == n


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "lamb", "rmsprop"])
def test_optimizers_keep_a_float32_copy(name: str):
    """A thousand steps of a thousandth: each alone is too small for a weight of 16 bits."""
    weights = [nd.ones((3,), dtype=dtype) for dtype in ("float32", "bfloat16", "float16")]
    for weight in weights:
        opt = optimizer.create(name, learning_rate=1e-3, multi_precision=True)
        state = opt.create_state_multi_precision(0, weight)
        for _ in range(50):
            opt.update_multi_precision(0, weight, nd.ones((3,), dtype=weight.dtype), state)
    exact, brain, half = (w.asnumpy().astype(np.float32) for w in weights)
    assert exact[0] < 0.97
    np.testing.assert_array_equal(brain, exact.astype(bfloat16).astype(np.float32))
    np.testing.assert_array_equal(half, exact.astype(np.float16).astype(np.float32))


# -- the package -----------------------------------------------------------------------------------


def test_the_package_is_imported_at_the_first_use():
    program = """
        import sys
        from d2lmini import autograd, gluon, nd, sym
        from d2lmini.contrib import amp
        nd.ones(3, dtype="float16") + 1
        assert "ml_dtypes" not in sys.modules
        sys.modules["ml_dtypes"] = None  # as if it were not installed
        for call in (lambda: nd.ones(3, dtype="bfloat16"), lambda: nd.ones(3).astype("bfloat16"),
                     lambda: amp.init("bfloat16"), lambda: sym.var("x", dtype="bfloat16")):
            try:
                call()
            except ImportError as problem:
                assert "pip install d2lmini[bfloat16]" in str(problem), problem
            else:
                raise AssertionError("no error")
    """
    lines = "\n".join(line[8:] for line in program.splitlines())
    subprocess.run([sys.executable, "-c", lines], check=True, timeout=60)


def test_a_wrong_dtype_lists_the_dtypes():
    with pytest.raises(TypeError, match=r"float17.*bfloat16|not understood"):
        nd.ones(2, dtype="float17")


# -- beside PyTorch --------------------------------------------------------------------------------


def in_torch(torch, name, arrays):
    def cast(x):
        return torch.from_numpy(x.copy()).to(getattr(torch, name))

    a, b, w = map(cast, arrays)
    functional = torch.nn.functional
    results = [
        a + b, a * b, a / b, torch.exp(a), torch.tanh(a), a @ w, functional.softmax(a, -1), a.sum(),
        a.mean(0), functional.layer_norm(a, a.shape[-1:]), functional.linear(a, w.T.contiguous()),
        functional.log_softmax(a, -1), torch.sqrt(a.abs()),
    ]  # fmt: skip
    return [y.float().numpy() for y in results]


@pytest.fixture(scope="module")
def torch():
    with Oracle("torch") as oracle:
        if not oracle.python:
            pytest.skip("D2LMINI_TORCH_PYTHON names no interpreter")
        yield oracle


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_results_are_those_of_torch(name: str, torch: Oracle):
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((6, 9), (6, 9), (9, 4))]
    a, b, w = (nd.array(x).astype(name) for x in arrays)
    one, zero = nd.ones(9).astype(name), nd.zeros(9).astype(name)
    ours = [
        a + b, a * b, a / b, nd.exp(a), nd.tanh(a), nd.dot(a, w), nd.softmax(a), a.sum(),
        a.mean(axis=0), nd.LayerNorm(a, one, zero),
        nd.FullyConnected(a, w.T, no_bias=True, num_hidden=4), nd.log_softmax(a),
        nd.sqrt(nd.abs(a)),
    ]  # fmt: skip
    theirs = torch.ask(in_torch, name, arrays)
    ulp = 2.0**-7 if name == "bfloat16" else 2.0**-10
    for mine, its in zip(ours, theirs, strict=True):
        found = mine.asnumpy().astype("float32")
        its = its.reshape(found.shape)
        np.testing.assert_allclose(found, its, rtol=1.01 * ulp, atol=1e-3 * ulp)
