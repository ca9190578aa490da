"""Where CuPy comes from: CuPy is looked for in one place, when a GPU is first asked for.

Importing the library imports no CuPy. Without CuPy, or without a driver, nothing here fails.

Tests use a substitute made of NumPy (`tests/fakes`). The device uses these parts of CuPy:

    cuda.runtime   getDeviceCount, getDeviceProperties, memGetInfo
    cuda           Device, Stream(non_blocking=True), Event, get_elapsed_time, MemoryPool,
                   using_allocator, alloc_pinned_memory, MemoryPointer.copy_from_device_async,
                   UnownedMemory, memory.OutOfMemoryError, nccl; Stream.begin_capture, end_capture,
                   Graph.launch
    from_dlpack    and the DLPack methods of arrays
    ndarray        empty, asarray, copyto; get(stream, out=, blocking=False), set(array, stream)
    _core          set_compute_type (`allow_tf32`)
    cuda.cublas    check_status; importing it loads cuBLAS (`products`)

and ops use whatever functions they need.
"""

from __future__ import annotations

import importlib
import os
import warnings
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

_INSTALL = (
    "CuPy is not installed: pip install 'd2lmini[gpu]' for CUDA 12, 'd2lmini[gpu13]' for CUDA 13"
)

# Values for `_core.set_compute_type`: products of float32 in float32, or in TF32.
_DEFAULT, _TF32 = 1, 7

#: The setting of `allow_tf32`.
tf32 = os.environ.get("CUPY_TF32", "0") == "1"


class Found(NamedTuple):
    """CuPy's module, None if it is not installed or finds no usable GPU; how many GPUs CuPy finds;
    why there are none, and what to install."""

    cupy: Any
    gpus: int
    missing: str


@cache
def look() -> Found:
    """What is found, when this is first asked."""
    try:
        return _probe(importlib.import_module("cupy"))
    except Exception as problem:  # for instance a CUDA library that does not load
        text = f"CuPy is installed, but cannot be imported: {problem}"
        is_absent = isinstance(problem, ModuleNotFoundError) and problem.name == "cupy"
        return Found(None, 0, _INSTALL if is_absent else text)


def _probe(module: Any) -> Found:
    """Ask CuPy how many GPUs there are. Makes no stream to find out: a stream that fails prints an
    error of its own."""
    try:
        count = module.cuda.runtime.getDeviceCount()
    except Exception as problem:
        text = f"CuPy is installed, but CUDA's driver does not answer: {problem}"
        return Found(None, 0, text)
    if not count:
        return Found(None, 0, "CuPy is installed, but finds no GPU")
    return Found(module, count, "")


def nccl() -> Any:
    """NCCL, NVIDIA's library for sums over GPUs, through CuPy; None if it is not installed."""
    found = look().cupy
    if found is None:
        return None
    library = getattr(found.cuda, "nccl", None)
    if library is None:  # CuPy loads NCCL at the first use, and warns if it is missing
        with warnings.catch_warnings(), suppress(ImportError):
            warnings.simplefilter("ignore")
            library = importlib.import_module(f"{found.__name__}.cuda.nccl")
    return library if getattr(library, "available", False) else None


def allow_tf32(allow: bool) -> bool:
    """Let products of float32 matrices on GPUs use TF32, or not; returns the previous setting.

    TF32 is several times faster on GPUs of compute capability 8.0 and up and keeps 10 bits of each
    factor: errors of about 1e-3; older GPUs stay with float32. The default is off (unless CuPy's
    own switch CUPY_TF32=1 is set). The setting holds for the whole process; CUDA graphs keep the
    setting of their recording.
    """
    global tf32
    before, tf32 = tf32, bool(allow)
    found = look().cupy
    if found is not None:
        found._core.set_compute_type("float32", _TF32 if allow else _DEFAULT)
    return before
