"""Everything that needs a real GPU, in one run: `make test-gpu`.

    python tests/gpu/run.py [contract | ops | gluon | chapters | measure] ...

One GPU is enough: tests that want several make devices of their own on it. Each group is one run of
pytest; `measure` writes a table to tests/benchmarks/results/gpu-NAME.md. Ends with the groups that
failed, if any. `--fake` takes the fake of CUDA for `measure`, to see that the script works.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "benchmarks" / "results"
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "tools")]

#: Group -> what pytest is told.
GROUPS = {
    "contract": "tests/test_devices.py tests/test_devices_training.py tests/test_kvstore.py "
    "tests/test_trainer_devices.py",
    "ops": "tests/test_ops.py tests/test_ndarray.py tests/test_indexing.py tests/test_autograd.py "
    "tests/test_autograd_ops.py tests/test_random.py",
    "gluon": "tests/test_gluon_nn.py tests/test_gluon_rnn.py tests/test_gluon_loss.py "
    "tests/test_hybridize.py tests/test_hybridize_nets.py tests/test_training.py",
    # That they run, not that they print what a machine without GPUs prints.
    "chapters": "--nbval-lax --nbval-current-env --nbval-cell-timeout 300 --timeout 600 chapters",
}
ENVIRONMENT = {
    "D2LMINI_TEST_GPUS": "cuda",
    "D2LMINI_TEST_CTX": "gpu(0)",
    "D2LMINI_LOGICAL_GPUS": "2",
}


def run_group(name: str) -> bool:
    """Run one group of tests; whether it passed."""
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *GROUPS[name].split()]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **ENVIRONMENT}).returncode == 0


def table(cupy: Any, **small: dict) -> tuple[str, str]:
    """The name of the GPU and the text of its table."""
    import measure

    import d2lmini
    from d2lmini import gpu

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    lines = [
        f"# {name}",
        "",
        f"d2lmini {d2lmini.__version__}, CuPy {cupy.__version__}, CUDA "
        f"{cupy.cuda.runtime.runtimeGetVersion()}, Python {platform.python_version()}; "
        "`make test-gpu`, medians.",
        "",
        "| what | figure | unit |",
        "| --- | --- | --- |",
    ]
    for row in measure.all_rows(gpu(0), **small):
        print(row, flush=True)
        lines.append(str(row))
    return name, "\n".join(lines) + "\n"


def write_table(cupy: Any) -> bool:
    """Measure, and store the table under the GPU's name."""
    name, text = table(cupy)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    path = RESULTS / f"gpu-{slug}.md"
    path.write_text(text, encoding="utf-8")
    print(f"written to {path.relative_to(ROOT)}")
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="what needs a real GPU; all groups by default")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, "measure", []])
    parser.add_argument("--fake", action="store_true", help="measure on the fake; writes nothing")
    options = parser.parse_args(arguments)
    from d2lmini.device.cuda import module

    if options.fake:
        from fakes.cuda import fake_cuda

        small = {
            "launches": {"n": 5, "repeats": 1},
            "copies": {"mbytes": 1, "repeats": 1},
            "products": {"n": 16, "repeats": 1},
            "training": {"batch": 4, "width": 8, "repeats": 1},
        }
        with fake_cuda(1) as cupy, module.using(cupy):
            table(cupy, **small)
        return 0
    if not module.count():
        print(f"no GPU to test on: {module.missing()}")
        return 1
    groups = options.groups or [*GROUPS, "measure"]
    failed = [
        group
        for group in groups
        if not (write_table(module.cupy()) if group == "measure" else run_group(group))
    ]
    print(f"failed: {', '.join(failed)}" if failed else "all groups passed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
