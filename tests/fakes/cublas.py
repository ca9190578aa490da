"""cuBLAS of the fake: gemm as NVIDIA defines it, on the numbers that lie where the call says.

Matrices are read by columns: element (r, c) lies at r + c * ld, of a transposed one at c + r * ld.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from d2lmini.cuda.kernels.launch import C_TYPES
from d2lmini.cuda.products import GemmCall
from fakes.cuda_cpp import array_at


class CUBLASError(RuntimeError):
    """What `cupy.cuda.cublas` raises: `status` is cuBLAS's number, which is none of CUDA's."""

    def __init__(self, status: int):
        names = {3: "CUBLAS_STATUS_ALLOC_FAILED", 13: "CUBLAS_STATUS_EXECUTION_FAILED"}
        super().__init__(names[status])
        self.status = status


def gemm(call: GemmCall, turned: bool, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """What `out` holds after the call."""
    begin_a, begin_b, begin = call.begin
    left, right = (a, b) if turned else (b, a)
    begin_left, begin_right = (begin_a, begin_b) if turned else (begin_b, begin_a)
    x = _matrices(left, begin_left, call.left, call.m, call.k, call.batch)
    y = _matrices(right, begin_right, call.right, call.k, call.n, call.batch)
    wide = np.promote_types(out.dtype, "float32")
    memory = _memory(out).copy()
    assert call.ld >= call.m
    place = _view(memory, begin, (call.batch, call.m, call.n), (call.step, 1, call.ld))
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

    def gemm(self, lane: Any, call: GemmCall, turned: bool, a: Any, b: Any, out: Any) -> None:
        from fakes import cupy_arrays

        function = partial(_result, call, turned)
        cupy_arrays.hook.execute("gemm", function, (a, b, out), (out,))

    def prepare(self, lane: Any, call: GemmCall, turned: bool, dtype: Any) -> Any:
        """The call as a function of where a, b and out begin."""

        def multiply(*memory: Any) -> None:
            with lane.stream.handle:
                self.gemm(lane, call, turned, *[array_at(m, C_TYPES[dtype.char]) for m in memory])

        return multiply


def _result(call: GemmCall, turned: bool, *raws: np.ndarray) -> tuple[np.ndarray]:
    return (gemm(call, turned, *raws),)
