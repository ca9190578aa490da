"""Products in pieces: equal to plain ones for all sizes and layouts, to the bit whoever helps."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import autograd, engine, nd
from d2lmini.device import blas
from d2lmini.ops.products import matmul

SIZES = [
    (32, 256, 768), (300, 2, 1000), (5, 3, 2), (0, 4, 3), (4, 0, 3), (1, 7, 1), (600, 700, 60),
    (60, 700, 600), (513, 512, 515), (700, 1, 500), (2, 1, 3), (2100, 1100, 1), (1, 1100, 2100),
    (20, 50000, 30),
]  # fmt: skip


def view(rows: int, columns: int, layout: str, seed: int, dtype: str = "float32") -> np.ndarray:
    """A matrix of small whole numbers, so that sums are exact in any order."""
    x = np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(dtype)
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "columns":
        wide = np.zeros((rows, 2 * columns + 3), dtype)
        wide[:, 2 : 2 + columns] = x
        return wide[:, 2 : 2 + columns]
    return x


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("layout_a", ["plain", "transposed", "columns"])
@pytest.mark.parametrize("layout_b", ["plain", "transposed", "columns"])
def test_pieces_make_up_the_product(sizes, layout_a, layout_b):
    rows, inner, columns = sizes
    a, b = view(rows, inner, layout_a, 0), view(inner, columns, layout_b, 1)
    want = a @ b
    np.testing.assert_array_equal(matmul(np, a, b), want)
    for layout in ("plain", "transposed", "columns"):
        out = view(rows, columns, layout, 2)
        assert matmul(np, a, b, out) is out
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    "a, b",
    [
        ((64, 130, 70), (64, 70, 90)),
        ((130, 70), (64, 70, 90)),
        ((64, 130, 70), (70, 90)),
        ((1, 64, 20, 70), (3, 1, 70, 300)),
        ((2, 600, 300), (2, 300, 500)),
        ((0, 500, 500), (0, 500, 500)),
    ],
)
def test_batches_are_cut_between_their_matrices(a, b):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in (a, b))
    want = a @ b
    np.testing.assert_array_equal(matmul(np, a, b), want)
    turned = np.empty(want.swapaxes(-1, -2).shape, "float32").swapaxes(-1, -2)
    a, b = (np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in (a, b))
    np.testing.assert_array_equal(matmul(np, a, b, turned), want)


@pytest.mark.parametrize("layout", ["plain", "transposed", "columns"])
@pytest.mark.parametrize("shape", [(40, 30), (700, 300), (601, 1200)])
def test_a_matrix_times_itself_transposed_is_symmetric_to_the_bit(shape, layout):
    a = view(*shape, layout, 0)
    np.testing.assert_array_equal(matmul(np, a, a.T), a @ a.T.copy())
    a = np.random.default_rng(0).standard_normal(shape).astype("float32")
    y = matmul(np, a, a.T)
    np.testing.assert_array_equal(y, y.T)
    np.testing.assert_allclose(y, a @ a.T.copy(), rtol=1e-4, atol=1e-3)


def test_large_products_are_left_to_no_thread_of_blas(monkeypatch):
    seen = []

    def watched(a, b, out=None, *, plain=np.matmul):
        seen.extend(dial.read() for dial in blas._dials())
        return plain(a, b, out=out)

    before = [dial.read() for dial in blas._dials()]
    monkeypatch.setattr(np, "matmul", watched)
    with engine.use("threaded", workers=2, inline_below=0):
        x = nd.ones((600, 600))
        nd.dot(x, x).wait_to_read()
        nd.linalg.gemm2(x, x).wait_to_read()
        nd.batch_dot(nd.ones((4, 300, 300)), nd.ones((4, 300, 300))).wait_to_read()
        nd.FullyConnected(x, x, no_bias=True, num_hidden=600).wait_to_read()
        pictures, kernel = nd.ones((2, 64, 30, 30)), nd.ones((64, 64, 3, 3))
        nd.Convolution(pictures, kernel, no_bias=True, kernel=(3, 3), num_filter=64).wait_to_read()
    assert len(seen) > 10 and set(seen) == {1}
    assert [dial.read() for dial in blas._dials()] == before


def results() -> bytes:
    """The bits of products of all kinds, forward and backward."""
    rng = np.random.default_rng(3)

    def array(*shape):
        return nd.array(rng.standard_normal(shape), dtype="float32")

    x, w, v, many = array(700, 300), array(520, 300), array(300, 1), array(40, 90, 90)
    for each in (x, w, many):
        each.attach_grad()
    with autograd.record():
        y = nd.FullyConnected(x, w, no_bias=True, num_hidden=520)
        z = nd.batch_dot(many, many, transpose_b=True)
        total = (y * y).sum() + z.sum() + nd.dot(x, v).sum()
    total.backward()
    gram = nd.linalg.gemm2(x, x, transpose_b=True)
    half = nd.dot(x.astype("float16"), w.astype("float16"), transpose_b=True)
    all_of_them = [y, z, total, gram, half, x.grad, w.grad, many.grad]
    return b"".join(array.asnumpy().tobytes() for array in all_of_them)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_bits_depend_neither_on_workers_nor_on_threads_of_blas(workers, threads):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    with engine.use("naive"):
        want = results()
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        with engine.use("threaded", workers=workers) if workers else engine.use("naive"):
            assert results() == want
        assert max(dial.read() for dial in blas._dials()) == threads
