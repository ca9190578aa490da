"""Features of this build: MXNet's `runtime.Features`.

>>> from d2lmini.compat import runtime
>>> features = runtime.Features()
>>> features.is_enabled("lapack"), features["OPENCV"]
(True, ✖ OPENCV)

The names are MXNet's. Enabled are: the BLAS and the instruction sets that NumPy uses, LAPACK (NumPy
brings it), arrays of more than 2**31 elements, and Python's handling of signals. MXNet's other
libraries (MKLDNN, OPENCV, ...) are not used, so they are off. CUDA and CUDA_RTC (kernels compiled
at run time) are on where CuPy finds a GPU, NCCL where its library is installed too. Virtual GPUs
do not count as CUDA: `num_gpus()` tells whether there are devices.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini import addons
from d2lmini.device import devices

__all__ = ["Feature", "Features", "feature_list"]

_NAMES = """
    CUDA CUDNN NCCL CUDA_RTC TENSORRT CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2 CPU_SSE4A
    CPU_AVX CPU_AVX2 OPENMP SSE F16C JEMALLOC BLAS_OPEN BLAS_ATLAS BLAS_MKL BLAS_APPLE LAPACK
    MKLDNN OPENCV CAFFE PROFILER DIST_KVSTORE CXX14 INT64_TENSOR_SIZE SIGNAL_HANDLER DEBUG TVM_OP
""".split()

# The part of a BLAS library's name in NumPy that identifies the library.
_BLAS = {"openblas": "BLAS_OPEN", "mkl": "BLAS_MKL", "accelerate": "BLAS_APPLE"}


# NumPy's names of instruction sets, where they differ from MXNet's.
_SIMD = {
    "X86_V2": "CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2",
    "X86_V3": "CPU_AVX CPU_AVX2 F16C",
    "SSE41": "CPU_SSE4_1",
    "SSE42": "CPU_SSE4_2",
    "F16C": "F16C",
}


class Feature(NamedTuple):
    """A feature's name and whether it is enabled."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


@lru_cache(maxsize=1)
def _list_enabled() -> frozenset[str]:
    config: Any = np.show_config(mode="dicts")
    blas = str(config.get("Build Dependencies", {}).get("blas", {}).get("name", "")).lower()
    on = {"LAPACK", "INT64_TENSOR_SIZE", "SIGNAL_HANDLER"}
    on.update(feature for part, feature in _BLAS.items() if part in blas)
    simd = config.get("SIMD Extensions", {})
    for name in [*simd.get("baseline", ()), *simd.get("found", ())]:
        on.update(_SIMD.get(name, f"CPU_{name}").split())
    return frozenset(on)


def feature_list() -> list[Feature]:
    """All features that MXNet knows, in MXNet's order."""
    on = _list_enabled() | _of_gpus()
    return [Feature(name, name in on) for name in _NAMES]


def _of_gpus() -> set[str]:
    if not any(device.kind == "cuda" for device in devices.gpus()):
        return set()
    has_nccl = addons.find("gpu").module.nccl() is not None
    return {"CUDA", "CUDA_RTC"} | ({"NCCL"} if has_nccl else set())


class Features(OrderedDict[str, Feature]):
    """The features by name."""

    def __init__(self) -> None:
        super().__init__((feature.name, feature) for feature in feature_list())

    def __repr__(self) -> str:
        return str(list(self.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """True if the feature is enabled. Case does not matter; RuntimeError for an unknown
        name."""
        name = feature_name.upper()
        if name not in self:
            raise RuntimeError(f"Feature {name!r} is unknown, known features are: {list(self)}")
        return self[name].enabled
