"""Products of matrices on a GPU: calls of cuBLAS that a CUDA graph can contain.

CuPy's `matmul` cannot be captured, because it sets cuBLAS's stream before each call. With three or
more axes it copies float16 to float32 and transposed operands to contiguous arrays, and builds
tables of pointers. So cuBLAS is called here, through ctypes, in the library that CuPy has loaded.
Each lane has a handle, whose stream and workspace are set once.

cuBLAS reads matrices by columns: an array (M, N) in order is to cuBLAS a matrix of N rows. So the
product out = a @ b is computed as out.T = b.T @ a.T. Each operand is described by whether it is
transposed, and by its `ld`, the distance from one column to the next:

>>> a, b, out = (operand_of(np.empty(shape)) for shape in ((8, 6), (6, 5), (8, 5)))
>>> calls = plan(a, b, out)
>>> calls[0].left, calls[0].right                       # b and a
(Matrix(transpose=0, ld=5, step=0), Matrix(transpose=0, ld=6, step=0))

More axes are a batch: matrices at equal distances, which one call computes. The distance 0 repeats
an operand:

>>> a, out = (operand_of(np.empty(shape)) for shape in ((9, 8, 6), (9, 8, 5)))
>>> [(call.m, call.n, call.k, call.batch, call.left.step) for call in plan(a, b, out)]
[(5, 8, 6, 9, 0)]
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product as combinations
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.cuda.kernels.formulas import Operand, broadcast_strides, merge_axes, operand_of
from d2lmini.cuda.kernels.launch import Recording
from d2lmini.cuda.stream_worker import thread_state
from d2lmini.ops.products import kernels

#: Bytes of a handle's workspace: NVIDIA's advice for compute capability 9.0 and up.
WORKSPACE = 32 << 20

#: dtype: cuBLAS's number of the dtype and of the arithmetic; the C type of the factors.
KINDS = {"e": (2, 68, ctypes.c_float), "f": (0, 68, ctypes.c_float), "d": (1, 70, ctypes.c_double)}
if os.environ.get("CUPY_TF32") == "1":  # CuPy's own switch
    KINDS["f"] = (0, 77, ctypes.c_float)
# Also where cuBLAS splits a sum of float16, its parts are added in float32.
_NO_REDUCED_PRECISION = 16
_MAX_INT = (1 << 31) - 1


class Matrix(NamedTuple):
    """An operand as cuBLAS reads it: transposed or not, the distance between columns, and the
    distance between the matrices of a batch."""

    transpose: int
    ld: int
    step: int


class GemmCall(NamedTuple):
    """One call of gemm: `batch` products (m, k) x (k, n) -> (m, n) of b and a. Distances
    are in elements, `begin` from the first elements of a, b and out."""

    m: int
    n: int
    k: int
    left: Matrix
    right: Matrix
    out: Matrix
    batch: int
    begin: tuple[int, ...]


@kernels.register("cuda")
def matmul(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
    """a @ b into `out`: (..., M, K) x (..., K, N) -> (..., M, N), batches broadcast.

    By cuBLAS for float16 (sums are float32), float32 (TF32 with CUPY_TF32=1) and float64;
    by CuPy for other dtypes. Operands may be strided views.
    """
    if a.shape[-1] == 1:
        return xp.multiply(a, b, out=out)
    is_apart = out is None
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = xp.empty((*batch, a.shape[-2], b.shape[-1]), np.result_type(a.dtype, b.dtype))
    lane = thread_state.lane
    is_ours = lane is not None and (isinstance(xp, Recording) or library_of(xp) is not None)
    if not is_ours or out.dtype.char not in KINDS or not a.dtype == b.dtype == out.dtype:
        xp.matmul(a, b, out=out)
    elif not a.shape[-1]:
        out.fill(0)
    elif out.size:
        is_apart = is_apart or not (xp.may_share_memory(out, a) or xp.may_share_memory(out, b))
        _multiply(xp, lane, a, b, out, is_apart)
    return out


def _multiply(xp: Any, lane: Any, a: Any, b: Any, out: Any, is_apart: bool = True) -> None:
    """a @ b into `out`, which is not empty; `is_apart`: it overlaps neither operand."""
    if out.strides[-2] < out.strides[-1]:  # out.T has its rows in order
        a, b, out = (x.swapaxes(-2, -1) for x in (b, a, out))
    calls = plan(*map(operand_of, (a, b, out)))
    if not calls or not is_apart:
        a, b = map(xp.ascontiguousarray, (a, b))
        place = out if is_apart and out.flags.c_contiguous else xp.empty(out.shape, out.dtype)
        _multiply(xp, lane, a, b, place)
        if place is not out:
            xp.copyto(out, place)
        return
    for call in calls:
        if isinstance(xp, Recording):
            xp.call(partial(_prepare, call, out.dtype), a, b, out)
        else:
            lane.device.retry(
                lambda call=call: _prepare(call, out.dtype, lane)(a.data, b.data, out.data)
            )


def _prepare(call: GemmCall, dtype: np.dtype, lane: Any) -> Callable[..., None]:
    return library_of(lane.device.xp).prepare(lane, call, dtype)  # type: ignore[no-any-return]


# -- layouts --------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def plan(a: Operand, b: Operand, out: Operand) -> tuple[GemmCall, ...]:
    """The calls that write a @ b to `out`; no array is empty. There are none where cuBLAS
    cannot use some strides; it can use arrays in order."""
    (M, K), N, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    strides = [broadcast_strides(x, out.shape) for x in (a, b, out)]
    (a0, a1), (b0, b1), (out0, out1) = (walk[-2:] for walk in strides)
    sizes, walks = merge_axes(batch, [walk[:-2] for walk in strides])
    # The longest axis of the batch goes to cuBLAS; each index along the others is one call.
    longest = sizes.index(max(sizes)) if sizes else 0
    step_a, step_b, step_out = (walk[longest] if sizes else 0 for walk in walks)

    place = _matrix(N, M, out1, out0, step_out)
    left, right = _matrix(N, K, b1, b0, step_b), _matrix(K, M, a1, a0, step_a)
    if place is None or place.transpose or left is None or right is None:
        return ()

    together = sizes[longest] if sizes else 1
    if max(M, N, K, together, left.ld, right.ld, place.ld) > _MAX_INT:
        raise MXNetError(f"a product of {a.shape} and {b.shape} is too large for cuBLAS")
    calls = []
    for at in combinations(*(range(1 if i == longest else s) for i, s in enumerate(sizes))):
        begin = tuple(sum(i * s for i, s in zip(at, walk)) for walk in walks)
        calls.append(GemmCall(N, M, K, left, right, place, together, begin))
    return tuple(calls)


def _matrix(rows: int, columns: int, down: int, across: int, step: int) -> Matrix | None:
    """How cuBLAS reads a matrix with the given element strides; None if cuBLAS cannot."""
    if step < 0:
        return None
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return Matrix(0, across if columns > 1 else rows, step)
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrix(1, down if rows > 1 else columns, step)
    return None


# -- cuBLAS ---------------------------------------------------------------------------------------


class Library:
    """cuBLAS, as CuPy has loaded it.

    A handle gets its stream and workspace when a lane first multiplies: CUDA refuses both calls
    while a stream is captured.
    """

    def __init__(self, xp: Any):
        major = xp.cuda.runtime.runtimeGetVersion() // 1000
        name = f"cublas64_{major}.dll" if os.name == "nt" else f"libcublas.so.{major}"
        self._check = xp.cuda.cublas.check_status
        self._memory = xp.cuda.Memory
        self._cublas = ctypes.CDLL(name)
        # The handle and workspace of each lane.
        self._handles: weakref.WeakKeyDictionary[Any, tuple] = weakref.WeakKeyDictionary()

    def prepare(
        self, lane: Any, call: GemmCall, dtype: np.dtype
    ) -> Callable[[Any, Any, Any], None]:
        """One call as a function of where a, b and out begin, to put on the stream of a lane; one
        thread at a time may call it."""
        number, is_alone = ctypes.c_int, call.batch == 1
        kind, arithmetic, factor = KINDS[dtype.char]
        one, zero = (ctypes.byref(factor(x)) for x in (1, 0))
        pleft, pright, pout = (ctypes.c_void_p() for _ in range(3))

        def matrix(pointer: Any, m: Matrix) -> list[Any]:
            step = [] if is_alone else [ctypes.c_longlong(m.step)]
            return [pointer, number(kind), number(m.ld), *step]

        sizes = call.left.transpose, call.right.transpose, call.m, call.n, call.k
        args = (
            self._handle(lane), *map(number, sizes), one, *matrix(pleft, call.left),
            *matrix(pright, call.right), zero, *matrix(pout, call.out),
            *([] if is_alone else [number(call.batch)]), number(arithmetic), number(-1),
        )  # fmt: skip
        # Called with ctypes' own numbers and pointers only: without `argtypes` in two thirds of the
        # time.
        cublas = self._cublas
        function = cublas.cublasGemmEx if is_alone else cublas.cublasGemmStridedBatchedEx
        begin_a, begin_b, begin_out = (i * dtype.itemsize for i in call.begin)
        check = self._check

        def multiply(a: Any, b: Any, out: Any) -> None:
            pleft.value, pright.value = b.ptr + begin_b, a.ptr + begin_a
            pout.value = out.ptr + begin_out
            status = function(*args)
            if status:
                check(status)

        return multiply

    def _handle(self, lane: Any) -> Any:
        if lane not in self._handles:
            handle, workspace = ctypes.c_void_p(), self._memory(WORKSPACE)
            self._call("Create_v2", ctypes.byref(handle))
            self._call("SetMathMode", handle, ctypes.c_int(_NO_REDUCED_PRECISION))
            self._call("SetStream_v2", handle, ctypes.c_void_p(lane.stream.handle.ptr))
            # Set the workspace after the stream: cublasSetStream resets the workspace.
            pointer = ctypes.c_void_p(workspace.ptr)
            self._call("SetWorkspace_v2", handle, pointer, ctypes.c_size_t(WORKSPACE))
            self._handles[lane] = handle, workspace
        return self._handles[lane][0]

    def _call(self, name: str, *args: Any) -> None:
        self._check(getattr(self._cublas, f"cublas{name}")(*args))


_lock = threading.Lock()


def library_of(xp: Any) -> Any:
    """cuBLAS for a module; None if cuBLAS cannot be called: then CuPy multiplies."""
    with _lock:  # lanes that ask at once get the same one
        return _library(xp)


@lru_cache
def _library(xp: Any) -> Any:
    try:
        return Library(xp)
    except (AttributeError, OSError):
        return None
