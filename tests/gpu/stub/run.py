"""CuPy itself without a GPU: `make test-cuda-stub`.

    python tests/gpu/stub/run.py [contract | capture | lost_device | titles | behaviour] [--write]
    python tests/gpu/stub/run.py host

The real CuPy runs on stand-ins for CUDA's libraries that are built from `src`: libcudart, libcuda,
and what CuPy is linked to besides. Shapes, dtypes, refusals and bugs are CuPy's own, and so are the
choice of kernels, streams, captures and the memory pool; kernels do not run, so no value is right.
`src/gpu_stub_boot.py` says what a test can ask of the stand-ins.

contract     every row of operations and layers: shapes, dtypes, launches, waits (`launches.txt`)
capture      what of small nets becomes CUDA graphs
lost_device  whether every wait ends when the GPU fails
titles       all generated kernels, compiled by the real NVRTC for sm_90
behaviour    what the library must not do, and what it relies on: tests by pytest; and of the
             questions to a real GPU those that do not ask for values
host         no check: microseconds of processor time that the host takes for each row of
             ../workloads.py, where no kernel takes time

It needs Linux on x86-64, a C++ compiler, and the packages that pip brings: CuPy as a wheel and as
sources. Where something of that is missing, this is said loudly, and the exit status is 77. What it
builds lies in build/gpu-stub; D2LMINI_GPU_STUB names another Python that has the stand-ins.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILT = ROOT / "build" / "gpu-stub"

CHECKS = ("contract", "capture", "lost_device", "titles", "behaviour")
NOT_RUN = 77
#: Those that the stand-ins can answer.
QUESTIONS = [f"{HERE.parent / 'questions.py'}::test_a_gpu_that_failed_is_told_of"]


HOST = """
import gpu_stub_boot, workloads
figures = dict(workloads.figures("d2lmini", workloads.ON_THE_HOST, cpu=True))
print(workloads.table(figures, {}))
"""


def missing() -> str:
    """What this machine lacks; empty if nothing does that can be known without trying."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return f"Linux on x86-64 is needed, this is {platform.system()} on {platform.machine()}"
    compiler = os.environ.get("CXX", "c++")
    tools = [tool for tool in (compiler, "nm", "readelf", "bash") if shutil.which(tool) is None]
    return f"{', '.join(tools)} not found: they come with a C++ compiler" if tools else ""


def built() -> str | None:
    """The Python that has the stand-ins, which are built first where they are out of date; None
    where packages cannot be had."""
    given = os.environ.get("D2LMINI_GPU_STUB")
    if given:
        return given
    environment = {**os.environ, "PROJECT": str(ROOT), "EXTRAS": "", "PYTHON": sys.executable}
    status = subprocess.run([str(HERE / "build"), str(BUILT)], env=environment).returncode
    if status == NOT_RUN:
        return None
    if status:
        raise SystemExit(status)
    return str(BUILT / "venv" / "bin" / "python")


def run(python: str, check: str, words: list[str]) -> bool:
    """One check, in a process of its own; did it pass?"""
    print(f"== {check}", flush=True)
    command = [python, str(HERE / f"{check}.py"), *words]
    if check == "host":
        command = [python, "-c", HOST]
    if check == "behaviour":
        command = [python, "-m", "pytest", "-q", "-p", "gpu_stub_boot", "-p", "no:cacheprovider"]
        command += ["-p", "no:xdist", str(HERE / "behaviour.py"), *QUESTIONS]
    paths = os.pathsep.join([str(ROOT), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "D2LMINI_TEST_CTX": "gpu(0)"}
    begin = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, env=environment).returncode
    print(f"-- {check}: {'FAILED' if status else 'passed'}, {time.monotonic() - begin:.0f} s")
    return status == 0


def main(words: list[str]) -> int:
    asked = [word for word in words if not word.startswith("-")] or list(CHECKS)
    known = (*CHECKS, "host")
    unknown = sorted({*asked} - {*known})
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    lacks = missing()
    python = None if lacks else built()
    if python is None:
        print(f"\nCUDA STUB NOT RUN: {lacks or 'the packages it is built from cannot be had'}")
        return NOT_RUN
    options = [word for word in words if word.startswith("-")]
    failed = [
        check for check in asked if not run(python, check, options if check == "contract" else [])
    ]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
