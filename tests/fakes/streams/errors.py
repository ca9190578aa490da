"""The errors that a simulated GPU raises, in CUDA's words, and the faults that a test plants."""

from __future__ import annotations

from dataclasses import dataclass

#: The errors of CUDA that the simulation knows, by their numbers.
STATUS = {
    1: "cudaErrorInvalidValue: invalid argument",
    2: "cudaErrorMemoryAllocation: out of memory",
    35: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    214: "cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
    400: "cudaErrorInvalidResourceHandle: invalid resource handle",
    600: "cudaErrorNotReady: device not ready",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    719: "cudaErrorLaunchFailure: unspecified launch failure",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during "
    "capture",
    905: "cudaErrorStreamCaptureIsolation: dependency created on uncaptured work in another stream",
}


class CUDARuntimeError(RuntimeError):
    """As `cupy.cuda.runtime` raises it: `status` is CUDA's number."""

    def __init__(self, status: int):
        super().__init__(STATUS.get(status, f"cudaError{status}"))
        self.status = status


class DeadlockError(RuntimeError):
    """The host waits for work that can never run."""


@dataclass
class Fault:
    """A planned failure: `status` on `device`, at the `after`-th work from now that fits `name`.

    at      "issue": the call raises; "run": the work fails later, and the first wait notices it;
            "malloc": an allocation raises
    sticky  the device is lost after the failure, as after an illegal address
    """

    device: int
    status: int = 700
    at: str = "run"
    name: str | None = None
    after: int = 0
    sticky: bool = True

    def strikes(self, device: int, name: str, at: str) -> bool:
        if (device, at) != (self.device, self.at) or self.name not in (None, name):
            return False
        self.after -= 1
        return self.after < 0
