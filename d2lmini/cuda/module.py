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
    cuda.cublas    check_status; importing it loads cuBLAS (`products`)

and ops use whatever functions they need.
"""

from __future__ import annotations

import importlib
import warnings
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

_INSTALL = (
    "CuPy is not installed: pip install 'd2lmini[gpu]' for CUDA 12, 'd2lmini[gpu13]' for CUDA 13"
)


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
