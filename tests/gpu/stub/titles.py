"""Compile the kernels that the project writes, with the real NVRTC: it needs no GPU.

    python tests/gpu/stub/run.py titles

The texts are those that CuPy would have compiled for the rows of `contract` and the nets of
`capture`. A kernel is called after what it does, and
such a title may be the name of a function that CUDA has already ("rsqrt"): then the text does not
compile. Exit status 1 if one does not.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import time

Kernel = tuple[str, tuple[str, ...]]  # text and options


def collected() -> list[Kernel]:
    """The project's own kernels, each once. CuPy's include headers of CuPy's."""
    import capture
    import contract
    from common import stub

    contract.examine([], contract.Table())
    contract.examine_nets(contract.Table())
    capture.nets()
    return sorted({(s.text, s.options) for s in stub.sources if "cupy" not in s.text})


def refused(kernels: list[Kernel], architecture: str) -> list[tuple[str, str]]:
    """(what the compiler says, title) of those that do not compile."""
    from cupy.cuda import nvrtc

    found = []
    for text, options in kernels:
        program = nvrtc.createProgram(text, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, (f"-arch={architecture}", "-ftz=true", *options))
        except nvrtc.NVRTCError:
            log = nvrtc.getProgramLog(program)
            error = re.search(r"error: (.*)", log)
            title = re.search(r'extern "C" __global__ void (\w+)\(', text)
            found.append((error[1] if error else log[:100], title[1] if title else "?"))
        nvrtc.destroyProgram(program)
    return found


def main() -> int:
    architecture = sys.argv[1] if len(sys.argv) > 1 else "sm_90"
    kernels = collected()
    print(f"{len(kernels)} kernels", flush=True)
    begin = time.monotonic()
    # Another process, without the stub: NVRTC looks for the driver; it does without one, but not
    # with one that knows nothing.
    answer = subprocess.run(
        [sys.executable, __file__, "--compile", architecture],
        input=pickle.dumps(kernels),
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "GPU_STUB"},
        check=True,
    )
    failures: dict[str, list[str]] = {}
    for what, title in pickle.loads(answer.stdout):
        failures.setdefault(what, []).append(title)
    n = sum(map(len, failures.values()))
    print(f"{n} do not compile for {architecture}; {time.monotonic() - begin:.0f} s")
    for what, titles in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"  {what[:150]}\n      {len(titles)}: {', '.join(sorted(set(titles)))}"[:1000])
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        found = refused(pickle.load(sys.stdin.buffer), sys.argv[2])
        sys.stdout.buffer.write(pickle.dumps(found))
    else:
        sys.exit(main())
