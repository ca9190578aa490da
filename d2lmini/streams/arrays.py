"""Arrays on simulated GPUs, with CuPy's names: each operation is a kernel on the current stream.

    x = asarray(np.arange(3.0))        # a copy to the current device
    y = np.sqrt(x) + 1                 # two kernels; NumPy's functions accept these arrays
    np.multiply(y, 2, out=y)           # one kernel that writes where it reads
    y.get()                            # a copy to the host, which waits

Only what stream programs need is here: arithmetic and NumPy's elementwise functions, `sum`, basic
slices (views), and copies. An array of NumPy among the operands is a TypeError, as in CuPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from d2lmini.streams import machine as machines
from d2lmini.streams.host_memory import bounds, from_host, to_host
from d2lmini.streams.memory import MemoryPointer, alloc
from d2lmini.streams.order import Region


def region_of(array: Any) -> Region | None:
    """The bytes of its memory that an array spans; None if it is empty."""
    start, nbytes = bounds(array.raw)
    block = array.data.mem.block
    offset = start - block.address
    return Region(block, offset, offset + nbytes) if nbytes else None


def launch(
    name: str,
    function: Callable[..., tuple[np.ndarray, ...]],
    inputs: Sequence[Any],
    out: Sequence[Any],
) -> None:
    """Issue a kernel on the current stream: `function` of the NumPy arrays of `inputs` gives what
    `out` will hold. ValueError if an array is on another device than the current one."""
    machine = machines.current()
    queue = machine.current_queue
    for x in (*inputs, *out):
        if x.data.device_id != queue.device:
            raise ValueError(
                f"Array device must be same as the current device: array device = "
                f"{x.data.device_id} while current = {queue.device}"
            )
    # NumPy arrays only: work that is pending must not keep memory of the pool alive.
    raws, places = [x.raw for x in inputs], [x.raw for x in out]

    def run() -> None:
        for place, result in zip(places, function(*raws), strict=True):
            place[...] = result

    reads, writes = (
        [region for region in map(region_of, arrays) if region] for arrays in (inputs, out)
    )
    machine.issue(queue, name, run, reads, writes)


class ndarray(NDArrayOperatorsMixin):
    """`cupy.ndarray`: an array of the current device, or a view of `data`.

    raw   the NumPy array that stands for it; reading it is not checked
    data  the memory, which returns to the pool with the last array on it
    """

    def __init__(self, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None):
        raw = np.empty(shape, dtype)
        self.data = alloc(max(raw.nbytes, 1)) if memptr is None else memptr
        self.raw = np.ndarray(raw.shape, raw.dtype, self.data.raw)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.raw.shape

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements."""
        return self.raw.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.raw.nbytes

    @property
    def device(self) -> Any:
        """The device of its memory."""
        return self.data.device

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"<array {self.shape} {self.dtype} on device {self.data.device_id}>"

    # -- kernels

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.keys() - {"out"}:
            return NotImplemented
        return _apply(function.__name__, function, inputs, kwargs.get("out"))

    def sum(self) -> ndarray:
        """The sum of all elements, an array of no axes on the device."""
        return _apply("sum", np.sum, (self,), None)

    def copy(self) -> ndarray:
        """A copy on the current device: of an array of another device, too."""
        result = ndarray(self.shape, self.dtype)
        copyto(result, self)
        return result

    def __getitem__(self, key: Any) -> ndarray:
        """A view, for integers and slices."""
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, (int, slice, type(...))) for part in parts):
            raise TypeError(f"expected integers and slices as indices, got {key!r}")
        view = object.__new__(ndarray)
        view.data = self.data
        view.raw = self.raw[parts if ... in parts else (*parts, ...)]
        return view

    def __setitem__(self, key: Any, value: Any) -> None:
        """Issue a kernel that writes a number or an array of this device into a part."""
        _apply("copy", np.positive, (value,), (self[key],))

    # -- copies to and from the host

    def get(self, stream: Any = None, out: Any = None, blocking: bool = True) -> np.ndarray:
        """Copy to the host, by `stream` or the current one.

        out       the NumPy array for the values; None: a new one
        blocking  False, with `out` in pinned memory: return before the copy has run
        """
        values = np.empty_like(self.raw) if out is None or blocking else out
        self._check_host(values)
        region = region_of(self)
        if region is not None:
            to_host(self.raw, region, np.asarray(values), stream)
        if out is not None and blocking:
            self._check_host(out)
            out[...] = values
        return values if out is None else out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy `arr` here, by `stream` or the current one. It returns at once; `arr` in pinned
        memory must not change before the copy has run."""
        self._check_host(arr)
        region = region_of(self)
        if region is not None:
            from_host(self.raw, region, np.asarray(arr), stream)

    def item(self) -> Any:
        """The only element, as a Python number; it waits."""
        return self.get().item()

    def _check_host(self, host: Any) -> None:
        if not isinstance(host, np.ndarray) or (host.shape, host.dtype) != (self.shape, self.dtype):
            got = f"{getattr(host, 'shape', type(host).__name__)} of {getattr(host, 'dtype', '?')}"
            raise TypeError(f"expected a NumPy array {self.shape} of {self.dtype}, got {got}")


def _apply(name: str, function: Callable, inputs: Sequence[Any], out: Any) -> Any:
    """One kernel: a function of arrays and numbers, into `out` or a new array."""
    for x in inputs:
        if isinstance(x, np.ndarray) or not isinstance(x, (ndarray, int, float, np.generic)):
            raise TypeError(
                f"{name}: expected arrays of the device and numbers, got {type(x)}; "
                "asarray(x) copies a NumPy array to the device"
            )
    arrays = [x for x in inputs if isinstance(x, ndarray)]
    pattern = [None if isinstance(x, ndarray) else x for x in inputs]

    def compute(*raws: np.ndarray) -> tuple[np.ndarray, ...]:
        rest = iter(raws)
        return (function(*(next(rest) if x is None else x for x in pattern)),)

    if out is None:
        with np.errstate(all="ignore"):
            (like,) = compute(*(np.zeros(x.shape, x.dtype) for x in arrays))
        out = (ndarray(np.shape(like), like.dtype),)
    launch(name, compute, arrays, out)
    return out[0]


def fuse(function: Callable[..., Any]) -> Callable[..., ndarray]:
    """`cupy.fuse()`: make one kernel of a function of arrays.

    `function` gets NumPy arrays and numbers, and returns an array; the kernel takes arrays of the
    current device and numbers, and an array `out` for the result.
    """
    name = function.__name__

    @functools.wraps(function)
    def kernel(*inputs: Any, out: ndarray | None = None) -> ndarray:
        return _apply(name, function, inputs, None if out is None else (out,))

    return kernel


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """Copy numbers or a NumPy array to the current device, on the current stream. An array of this
    device is returned as it is, an array of another device is copied."""
    if isinstance(a, ndarray):
        return a if a.data.device_id == machines.current().current_device else a.copy()
    host = np.asarray(a, dtype)
    result = ndarray(host.shape, host.dtype)
    result.set(host)
    return result


def empty(shape: Any, dtype: Any = float) -> ndarray:
    """An array of the current device, full of NaN until it is written."""
    return ndarray(shape, dtype)


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    """An array of the current device, filled with zeros by a kernel on the current stream."""
    result = ndarray(shape, dtype)
    result[...] = 0
    return result


def copyto(dst: ndarray, src: ndarray) -> None:
    """Copy `src`, on any device, to `dst`, on the current stream. Both have the same shape and
    dtype, and are contiguous; ValueError otherwise."""
    if (dst.shape, dst.dtype) != (src.shape, src.dtype):
        raise ValueError(f"copyto: dst is {dst!r}, src is {src!r}: shapes and dtypes must agree")
    machine = machines.current()
    target, source = dst.raw, src.raw
    reads, writes = ([region] if region else [] for region in (region_of(src), region_of(dst)))
    machine.issue(machine.current_queue, "copy", lambda: np.copyto(target, source), reads, writes)
