"""cuBLAS of the fake: gemm as NVIDIA defines it, on the numbers that lie where the call says.

Matrices are read by columns: element (r, c) lies at r + c * ld, of a transposed one at c + r * ld.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from d2lmini.cuda.kernels.symbols import C_TYPES
from d2lmini.cuda.products import GemmCall
from fakes.cuda_cpp import array_at


class CUBLASError(RuntimeError):
    """What `cupy.cuda.cublas` raises: `status` is cuBLAS's number, which is none of CUDA's."""

    def __init__(self, status: int):
        names = {3: "CUBLAS_STATUS_ALLOC_FAILED", 13: "CUBLAS_STATUS_EXECUTION_FAILED"}
        super().__init__(names[status])
        self.status = status


def gemm(call: GemmCall, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """What `out` holds after the call."""
    begin_a, begin_b, begin = call.begin
    x = _matrices(b, begin_b, call.left, call.m, call.k, call.batch)
    y = _matrices(a, begin_a, call.right, call.k, call.n, call.batch)
    wide = np.promote_types(out.dtype, "float32")
    memory = _memory(out).copy()
    assert call.out.ld >= call.m
    place = _view(memory, begin, (call.batch, call.m, call.n), (call.out.step, 1, call.out.ld))
    place[...] = x.astype(wide) @ y.astype(wide)
    return as_strided(memory, out.shape, out.strides)


def _matrices(array: np.ndarray, begin: int, how: Any, rows: int, columns: int, count: int) -> Any:
    assert how.ld >= (columns if how.transpose else rows), "cuBLAS refuses such a distance"
    down, across = (how.ld, 1) if how.transpose else (1, how.ld)
    return _view(_memory(array), begin, (count, rows, columns), (how.step, down, across))


def _memory(array: np.ndarray) -> np.ndarray:
    """The numbers from the first of an array to its last."""
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides) if s > 0)
    return as_strided(array, (extent // array.itemsize + 1,), (array.itemsize,))


def _view(memory: np.ndarray, begin: int, shape: tuple, strides: tuple) -> np.ndarray:
    last = begin + sum((n - 1) * s for n, s in zip(shape, strides))
    assert begin >= 0 and last < memory.size, "beyond the end of the array"
    return as_strided(memory[begin:], shape, [s * memory.itemsize for s in strides])


class Library:
    """Stands for `cuda.products.Library`."""

    def prepare(self, lane: Any, call: GemmCall, dtype: Any) -> Any:
        """The call as a function of where a, b and out begin."""
        from fakes import cupy_arrays

        def multiply(*memory: Any) -> None:
            a, b, out = (array_at(m, C_TYPES[dtype.char]) for m in memory)
            with lane.stream.handle:
                cupy_arrays.hook.execute("gemm", partial(_result, call), (a, b, out), (out,))

        return multiply


def _result(call: GemmCall, *raws: np.ndarray) -> tuple[np.ndarray]:
    return (gemm(call, *raws),)
