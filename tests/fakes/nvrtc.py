"""Compile CUDA C without a GPU: NVRTC alone, as its wheel brings it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from d2lmini.cuda.kernels.launch import OPTIONS


def missing() -> str:
    """Why nothing can be compiled here; empty if it can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        _nvrtc().getVersion()
    except Exception as problem:
        return f"NVRTC cannot be loaded: {problem}"
    return ""


def compiled(source: str, arch: str, options: Sequence[str] = OPTIONS) -> bytes:
    """The machine code of a source for an architecture ('sm_90'); AssertionError with the
    compiler's words."""
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={arch}", "-ftz=true", *options))
    except nvrtc.NVRTCError as problem:
        raise AssertionError(f"{problem}\n{nvrtc.getProgramLog(program)}\n{source}") from None
    code = nvrtc.getCUBIN(program) if arch.startswith("sm") else nvrtc.getPTX(program)
    nvrtc.destroyProgram(program)
    assert len(code) > 500
    return code


def knows(arch: str) -> bool:
    """Does this version compile for an architecture? Old ones are dropped in time."""
    return not missing() and int(arch.removeprefix("sm_")) in _nvrtc().getSupportedArchs()


def _nvrtc() -> Any:
    _find_library()
    from cupy.cuda import nvrtc

    return nvrtc


def _find_library() -> None:
    """Load NVRTC from the wheel, where the system's loader would not look."""
    import ctypes

    spec = importlib.util.find_spec("nvidia.cuda_nvrtc") if _has_nvidia() else None
    if spec is not None and spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            for path in sorted(Path(folder).glob("lib/libnvrtc.so.*")):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _has_nvidia() -> bool:
    return importlib.util.find_spec("nvidia") is not None
