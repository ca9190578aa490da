"""Products on a GPU: what cuBLAS is asked for gives a @ b, wherever the operands lie."""

from __future__ import annotations

import ctypes
import subprocess
from types import SimpleNamespace as Space

import numpy as np
import pytest
from fakes import cublas, cuda_cpp
from gpu_kinds import fake_gpus

from d2lmini import engine, gpu, nd
from d2lmini.cuda import products
from d2lmini.cuda.kernels.formulas import operand_of

LAYOUTS = ["plain", "transposed", "columns", "every second", "reversed", "repeated"]


def laid(values: np.ndarray, layout: str) -> np.ndarray:
    """The same matrices, lying in memory as `layout` says."""
    if layout == "transposed":
        return np.ascontiguousarray(values.swapaxes(-2, -1)).swapaxes(-2, -1)
    if layout == "columns":
        wide = np.full((*values.shape[:-1], values.shape[-1] + 3), np.nan, values.dtype)
        wide[..., 2:-1] = values
        return wide[..., 2:-1]
    if layout == "every second":
        wide = np.full((*values.shape[:-1], 2 * values.shape[-1]), np.nan, values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    if layout == "reversed":
        return np.ascontiguousarray(values[..., ::-1, :])[..., ::-1, :]
    if layout == "repeated" and values.ndim > 2:
        return np.broadcast_to(values[:1], values.shape)
    return np.ascontiguousarray(values)


def computed(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, tuple]:
    """What the calls for a @ b leave in `out`, as `products._multiply` makes them, and these."""
    if out.strides[-2] < out.strides[-1]:
        found = computed(*(x.swapaxes(-2, -1) for x in (b, a, out)))
        return found[0].swapaxes(-2, -1), found[1]
    found = products.plan(*map(operand_of, (a, b, out)))
    if not found:
        return computed(*map(np.ascontiguousarray, (a, b, out)))[0], found
    for call in found:
        out[...] = cublas.gemm(call, a, b, out)
    return out, found


SHAPES = [
    ((), (3, 4), (4, 5)), ((), (1, 4), (4, 5)), ((), (3, 4), (4, 1)), ((), (1, 4), (4, 1)),
    ((), (3, 2), (2, 1)), ((6,), (3, 4), (4, 5)), ((6,), (1, 4), (4, 5)), ((6,), (3, 4), (4, 1)),
    ((2, 3), (3, 4), (4, 2)), ((2, 1), (3, 4), (4, 2)), ((2, 3, 2), (2, 4), (4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
@pytest.mark.parametrize(("batch", "left", "right"), SHAPES)
def test_the_calls_of_cublas_give_the_product(batch, left, right, layout_a, layout_b):
    rng = np.random.default_rng(0)
    a, b = (
        laid(rng.integers(-4, 5, (*batch, *shape)).astype("float32"), layout)
        for shape, layout in ((left, layout_a), (right, layout_b))
    )
    for layout in LAYOUTS[:-1]:
        out = laid(np.zeros((*batch, left[0], right[1]), "float32"), layout)
        np.testing.assert_array_equal(computed(a, b, out)[0], a @ b)


def calls(a: tuple, b: tuple, turn: str = "") -> tuple:
    """(how many calls, how many products each) for arrays in order; `turn`: a, b seen the other way
    round."""
    x, y = (np.zeros(shape, "float16") for shape in (a, b))
    x = x.swapaxes(-2, -1) if "a" in turn else x
    y = y.swapaxes(-2, -1) if "b" in turn else y
    _, found = computed(x, y, np.zeros_like(x @ y))
    return len(found), found[0].batch


def test_nothing_is_copied_and_one_call_does_it():
    assert calls((8, 3), (3, 5)) == (1, 1)
    assert calls((3, 8), (3, 5), "a") == calls((8, 3), (5, 3), "b") == (1, 1)
    assert calls((1, 8, 3), (1, 3, 5)) == (1, 1), "a batch of 1 is no batch"
    assert calls((9, 3, 8), (9, 5, 3), "ab") == (1, 9)
    assert calls((8, 3), (9, 3, 5)) == (1, 9), "a weight for all images"
    assert calls((9, 8, 3), (3, 5)) == (1, 9), "a weight for all rows"
    assert calls((4, 9, 8, 3), (4, 9, 3, 5)) == (1, 36)
    assert calls((2, 8, 3), (9, 2, 3, 5)) == (2, 9), "a call for each group"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_products_of_a_gpu(dtype):
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(-4, 5, (3, 4, 5)).astype(dtype),
        rng.integers(-4, 5, (3, 5, 2)).astype(dtype),
    )
    with fake_gpus(1, 2) as fake:
        x, y = nd.array(a, gpu(0), dtype), nd.array(b, gpu(0), dtype)
        np.testing.assert_array_equal(nd.batch_dot(x, y).asnumpy(), a @ b)
        by_cublas = fake.machine.issued["gemm"]
        assert by_cublas == (0 if dtype == "int32" else 1)
        np.testing.assert_array_equal(nd.dot(x[0], y[0]).asnumpy(), a[0] @ b[0])
        np.testing.assert_array_equal(nd.dot(x[0], y[0, :, :0]).asnumpy(), a[0] @ b[0, :, :0])
        np.testing.assert_array_equal(
            nd.dot(x[0, :, :0].copy(), y[0, :0]).asnumpy(), np.zeros((4, 2))
        )
        engine.waitall()


#: cuBLAS's functions as its header declares them; they multiply on the host.
LIBRARY = """
#include <cstddef>
struct Handle { void *stream, *workspace; size_t bytes; int mode; };
extern "C" {
int cublasCreate_v2(Handle** handle) { *handle = new Handle(); return 0; }
int cublasSetStream_v2(Handle* handle, void* stream) {
    handle->stream = stream;
    handle->workspace = nullptr;
    return 0;
}
int cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t bytes) {
    handle->workspace = workspace;
    handle->bytes = bytes;
    return 0;
}
int cublasSetMathMode(Handle* handle, int mode) { handle->mode = mode; return 0; }
int cublasGemmStridedBatchedEx(
    Handle* handle, int transa, int transb, int m, int n, int k, const void* alpha,
    const void* A, int Atype, int lda, long long strideA,
    const void* B, int Btype, int ldb, long long strideB, const void* beta,
    void* C, int Ctype, int ldc, long long strideC, int count, int compute, int algorithm
) {
    if (!handle->stream || !handle->workspace || handle->bytes != 32 << 20 || handle->mode != 16)
        return 1;
    if (Atype != 1 && Atype == Btype && Atype == Ctype) return 1000 * Atype + compute;
    if (Atype != 1 || Btype != 1 || Ctype != 1 || compute != 70 || algorithm != -1) return 15;
    const double *a = (const double*) A, *b = (const double*) B;
    for (int i = 0; i < count; ++i)
        for (int r = 0; r < m; ++r)
            for (int s = 0; s < n; ++s) {
                double sum = 0;
                for (int t = 0; t < k; ++t)
                    sum += a[i * strideA + (transa ? t + r * lda : r + t * lda)] *
                           b[i * strideB + (transb ? s + t * ldb : t + s * ldb)];
                double* c = (double*) C + i * strideC + r + s * ldc;
                *c = *(const double*) alpha * sum + *(const double*) beta * *c;
            }
    return 0;
}
int cublasGemmEx(
    Handle* handle, int transa, int transb, int m, int n, int k, const void* alpha,
    const void* A, int Atype, int lda, const void* B, int Btype, int ldb, const void* beta,
    void* C, int Ctype, int ldc, int compute, int algorithm
) {
    return cublasGemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta,
        C, Ctype, ldc, 0, 1, compute, algorithm);
}
}
"""


@pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")
def test_arguments_arrive_in_c_as_cublas_declares_them(tmp_path, monkeypatch):
    source, path = tmp_path / "cublas.cpp", tmp_path / "cublas.so"
    source.write_text(LIBRARY)
    subprocess.run([cuda_cpp.COMPILER, "-shared", "-fPIC", source, "-o", path], check=True)
    compiled = ctypes.CDLL(str(path))
    asked = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: asked.append(name) or compiled)
    statuses = []
    runtime = Space(
        runtimeGetVersion=lambda: 13010, getDeviceProperties=lambda ordinal: {"major": 9}
    )
    xp = Space(
        cuda=Space(
            runtime=runtime,
            cublas=Space(check_status=lambda status: statuses.append(status)),
            Memory=lambda nbytes: Space(ptr=4096, size=nbytes),
        )
    )
    library = products.Library(xp)
    assert "13" in asked[0]

    def lane() -> Space:
        class Lane(Space):
            __hash__ = object.__hash__

        return Lane(device=Space(xp=xp, ordinal=0), stream=Space(handle=Space(ptr=256)))

    def product(lane: Space, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
        found = products.plan(*map(operand_of, (a, b, out)))
        x, y, z = (Space(ptr=v.ctypes.data) for v in (a, b, out))
        for call in found:
            library.prepare(lane, call, out.dtype)(x, y, z)
        return out

    rng = np.random.default_rng(0)
    first = lane()
    for shapes in (((3, 4), (4, 5)), ((6, 3, 4), (6, 4, 5)), ((2, 6, 3, 4), (6, 4, 5))):
        a, b = (rng.integers(-4, 5, shape).astype("float64") for shape in shapes)
        np.testing.assert_array_equal(product(first, a, b), a @ b)
        turned = np.ascontiguousarray(b.swapaxes(-2, -1)).swapaxes(-2, -1)
        np.testing.assert_array_equal(product(first, a, turned), a @ b)
    second = lane()
    product(second, a, b)
    del first
    assert [*library._handles] == [second], "the workspace of a lane goes with the lane"
    assert not any(statuses)
    for number in (68, 77):  # 77 with CUPY_TF32=1
        monkeypatch.setitem(products.KINDS, "f", (0, number, ctypes.c_float))
        product(second, a[0].astype("float32"), b.astype("float32"))
        product(second, a[0].astype("float16"), b.astype("float16"))
        assert statuses[-2:] == [number, 2068], "float16 is added up in float32"
