"""Products of matrices on a GPU: calls of cuBLAS that a CUDA graph can contain.

CuPy's `matmul` cannot be captured, because it sets cuBLAS's stream before each call. With three or
more axes it copies float16 to float32 and transposed operands to contiguous arrays, and builds
tables of pointers. So cuBLAS is called here, through ctypes, in the library that CuPy has loaded.
Each lane has a handle, whose stream and workspace are set once.

cuBLAS reads matrices by columns: an array (M, N) in order is to cuBLAS a matrix of N rows. So the
product out = a @ b is computed as out.T = b.T @ a.T. Each operand is described by whether it is
transposed, and by its `ld`, the distance from one column to the next:

>>> a, b, out = (operand_of(np.empty(shape)) for shape in ((8, 6), (6, 5), (8, 5)))
>>> found = plan(a, b, out)
>>> found.calls[0].left, found.calls[0].right           # b and a
(Matrix(transpose=0, ld=5, step=0), Matrix(transpose=0, ld=6, step=0))

More axes are a batch: matrices at equal distances, which one call computes. The distance 0 repeats
an operand. A batch whose matrices share the right operand, and whose rows follow each other, is one
product of two matrices:

>>> a, out = (operand_of(np.empty(shape)) for shape in ((9, 8, 6), (9, 8, 5)))
>>> [(call.m, call.n, call.k, call.batch) for call in plan(a, b, out).calls]
[(5, 72, 6, 1)]
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
from d2lmini.cuda import module
from d2lmini.cuda.kernels.formulas import Operand, broadcast_strides, merge_axes, operand_of
from d2lmini.cuda.kernels.launch import Recording
from d2lmini.cuda.stream_worker import thread_state
from d2lmini.ops.products import kernels

#: Bytes of a handle's workspace: NVIDIA's advice for compute capability 9.0 and up, and below.
WORKSPACE, SMALL_WORKSPACE = 32 << 20, 4 << 20

#: dtype: cuBLAS's number of the dtype and of the arithmetic; the C type of the factors.
KINDS = {"e": (2, 68, ctypes.c_float), "f": (0, 68, ctypes.c_float), "d": (1, 70, ctypes.c_double)}
_TF32 = 77
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


class GemmPlan(NamedTuple):
    """The calls that compute a product.

    copies  which of a, b and out have strides that cuBLAS cannot use: they must be copied, and
            there are no calls
    """

    copies: tuple[bool, bool, bool]
    calls: tuple[GemmCall, ...]


@kernels.register("cuda")
def matmul(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
    """a @ b into `out`: (..., M, K) x (..., K, N) -> (..., M, N), batches broadcast.

    By cuBLAS for float16 (sums are float32), float32 (or TF32, see `module.allow_tf32`) and
    float64; by CuPy for other dtypes. Operands may be strided views.
    """
    if a.shape[-1] == 1:
        return xp.multiply(a, b, out=out)
    is_apart = out is None
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = xp.empty((*batch, a.shape[-2], b.shape[-1]), np.result_type(a.dtype, b.dtype))
    lane = thread_state.lane
    is_ours = lane is not None and library_of(xp) is not None
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
    copies, calls = plan(*map(operand_of, (a, b, out)))
    if any(copies) or not is_apart:
        a, b = (x.copy() if copied else x for x, copied in zip((a, b), copies))
        place = out if is_apart and not copies[2] else xp.empty(out.shape, out.dtype)
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
def plan(a: Operand, b: Operand, out: Operand) -> GemmPlan:
    """How to write a @ b to `out`; no array is empty."""
    (M, K), N, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    strides = [broadcast_strides(x, out.shape) for x in (a, b, out)]
    (a0, a1), (b0, b1), (out0, out1) = (walk[-2:] for walk in strides)
    sizes, walks = merge_axes(batch, [walk[:-2] for walk in strides])
    if sizes and walks[1][-1] == 0 and (
        M == 1 or (walks[0][-1], walks[2][-1]) == (M * a0, M * out0)
    ):  # fmt: skip
        if M == 1:
            a0, out0 = walks[0][-1], walks[2][-1]
        M *= sizes[-1]
        sizes, walks = sizes[:-1], [walk[:-1] for walk in walks]
    # The longest axis of the batch goes to cuBLAS; each index along the others is one call.
    longest = sizes.index(max(sizes)) if sizes else 0
    step_a, step_b, step_out = (walk[longest] if sizes else 0 for walk in walks)

    place = _matrix(N, M, out1, out0, step_out)
    left, right = _matrix(N, K, b1, b0, step_b), _matrix(K, M, a1, a0, step_a)
    if place is None or place.transpose or left is None or right is None:
        is_bad = place is None or bool(place.transpose)
        return GemmPlan((right is None, left is None, is_bad), ())

    together = sizes[longest] if sizes else 1
    if max(M, N, K, together, left.ld, right.ld, place.ld) > _MAX_INT:
        raise MXNetError(f"a product of {a.shape} and {b.shape} is too large for cuBLAS")
    calls = []
    for at in combinations(*(range(1 if i == longest else s) for i, s in enumerate(sizes))):
        begin = tuple(sum(i * s for i, s in zip(at, walk)) for walk in walks)
        calls.append(GemmCall(N, M, K, left, right, place, together, begin))
    return GemmPlan((False, False, False), tuple(calls))


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
    while a stream is captured. The handle of a lane that is gone is reused by the next lane of its
    device.
    """

    def __init__(self, xp: Any):
        major = xp.cuda.runtime.runtimeGetVersion() // 1000
        name = f"cublas64_{major}.dll" if os.name == "nt" else f"libcublas.so.{major}"
        self._check = xp.cuda.cublas.check_status
        self._memory = xp.cuda.Memory
        self._cublas = ctypes.CDLL(name)
        # Called with ctypes' own numbers and pointers only: without `argtypes` in two thirds of the
        # time.
        self._gemm = self._cublas.cublasGemmEx
        self._gemm_batched = self._cublas.cublasGemmStridedBatchedEx
        # The handle and workspace of each lane; free ones, by device.
        self._handles: weakref.WeakKeyDictionary[Any, tuple] = weakref.WeakKeyDictionary()
        self._free: dict[int, list[tuple]] = {}
        self._factors = {
            char: tuple(ctypes.byref(kind[2](x)) for x in (1, 0)) for char, kind in KINDS.items()
        }

    def prepare(
        self, lane: Any, call: GemmCall, dtype: np.dtype
    ) -> Callable[[Any, Any, Any], None]:
        """One call as a function of where a, b and out begin, to put on the stream of a lane; one
        thread at a time may call it."""
        char, is_alone = dtype.char, call.batch == 1
        kind, arithmetic, _ = KINDS[char]
        one, zero = self._factors[char]
        number, how = ctypes.c_int, ctypes.c_int(arithmetic)
        pleft, pright, pout = (ctypes.c_void_p() for _ in range(3))

        def matrix(pointer: Any, m: Matrix) -> list[Any]:
            step = [] if is_alone else [ctypes.c_longlong(m.step)]
            return [pointer, number(kind), number(m.ld), *step]

        sizes = call.left.transpose, call.right.transpose, call.m, call.n, call.k
        args = (
            self._handle(lane), *map(number, sizes), one, *matrix(pleft, call.left),
            *matrix(pright, call.right), zero, *matrix(pout, call.out),
            *([] if is_alone else [number(call.batch)]), how, number(-1),
        )  # fmt: skip
        function = self._gemm if is_alone else self._gemm_batched
        begin_a, begin_b, begin_out = (i * dtype.itemsize for i in call.begin)
        check = self._check

        def multiply(a: Any, b: Any, out: Any) -> None:
            pleft.value, pright.value = b.ptr + begin_b, a.ptr + begin_a
            pout.value = out.ptr + begin_out
            if char == "f":
                how.value = _TF32 if module.tf32 else arithmetic
            status = function(*args)
            if status:
                check(status)

        return multiply

    def _handle(self, lane: Any) -> Any:
        found = self._handles.get(lane)
        if found is None:
            free = self._free.setdefault(lane.device.ordinal, [])
            found = free.pop() if free else self._new(lane.device)
            handle, workspace = found
            self._call("SetStream_v2", handle, ctypes.c_void_p(lane.stream.handle.ptr))
            # Set the workspace after the stream: cublasSetStream resets the workspace.
            pointer, nbytes = ctypes.c_void_p(workspace.ptr), ctypes.c_size_t(workspace.size)
            self._call("SetWorkspace_v2", handle, pointer, nbytes)
            self._handles[lane] = found
            weakref.finalize(lane, free.append, found).atexit = False
        return found[0]

    def _new(self, device: Any) -> tuple:
        properties = device.xp.cuda.runtime.getDeviceProperties(device.ordinal)
        nbytes = WORKSPACE if properties["major"] >= 9 else SMALL_WORKSPACE
        workspace = self._memory(nbytes)
        handle = ctypes.c_void_p()
        self._call("Create_v2", ctypes.byref(handle))
        self._call("SetMathMode", handle, ctypes.c_int(_NO_REDUCED_PRECISION))
        return handle, workspace

    def _call(self, name: str, *args: Any) -> None:
        self._check(getattr(self._cublas, f"cublas{name}")(*args))


#: CuPy module -> cuBLAS.
libraries: dict[Any, Any] = {}
_lock = threading.Lock()


def library_of(xp: Any) -> Any:
    """cuBLAS for a module; None if cuBLAS cannot be called: then CuPy multiplies. A recording is
    taken for cuBLAS itself."""
    if isinstance(xp, Recording):
        return xp
    with _lock:
        if xp not in libraries:
            try:
                libraries[xp] = Library(xp)
            except (AttributeError, OSError):
                libraries[xp] = None
        return libraries[xp]
