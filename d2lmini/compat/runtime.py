"""Features of this build: MXNet's `runtime.Features`.

>>> from d2lmini.compat import runtime
>>> features = runtime.Features()
>>> features.is_enabled("lapack"), features["OPENCV"]
(True, ✖ OPENCV)

The names are MXNet's. Enabled are LAPACK (NumPy brings it), arrays of more than 2**31 elements, and
Python's handling of signals. MXNet's other libraries (MKLDNN, OPENCV, ...) are not used, so they
are off; `d2lmini info` tells which BLAS NumPy has. CUDA and CUDA_RTC (kernels compiled at run time)
are on where CuPy finds a GPU, NCCL where its library is installed too. Virtual GPUs do not count as
CUDA: `num_gpus()` tells whether there are devices.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from d2lmini import addons
from d2lmini.device import devices

__all__ = ["Feature", "Features", "feature_list"]

_NAMES = """
    CUDA CUDNN NCCL CUDA_RTC TENSORRT CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2 CPU_SSE4A
    CPU_AVX CPU_AVX2 OPENMP SSE F16C JEMALLOC BLAS_OPEN BLAS_ATLAS BLAS_MKL BLAS_APPLE LAPACK
    MKLDNN OPENCV CAFFE PROFILER DIST_KVSTORE CXX14 INT64_TENSOR_SIZE SIGNAL_HANDLER DEBUG TVM_OP
""".split()


class Feature(NamedTuple):
    """A feature's name and whether it is enabled."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def feature_list() -> list[Feature]:
    """All features that MXNet knows, in MXNet's order."""
    on = {"LAPACK", "INT64_TENSOR_SIZE", "SIGNAL_HANDLER"}
    if any(device.kind == "cuda" for device in devices.gpus()):
        on |= {"CUDA", "CUDA_RTC"}
        if addons.find("gpu").module.nccl() is not None:
            on.add("NCCL")
    return [Feature(name, name in on) for name in _NAMES]


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
