"""Everything that needs a real GPU, in one run: `make test-gpu`, six minutes on a new machine.

    python tests/gpu/run.py [GROUP ...]     # all by default

One GPU is enough: tests that want several make devices of their own on it. What is not timed runs
side by side, for most of it is Python, or the compiler of kernels; then the rest, alone:

questions  what no stand-in answers (`questions.py`): is a failed GPU told of, is CUB right
rows       every row of operations and layers, both ways, against NumPy and the CPU (`agreement.py`)
contract   the tests of devices and between them, with two logical devices
order      tests of devices under compute-sanitizer, where that is installed
chapter    `multiple-gpus` from beginning to end, on real devices
work       the same work by d2lmini and by PyTorch, where that is installed (`workloads.py`)

The last one writes tests/gpu/results/GPU.md, with the machine's description. A group of tests that
gave nothing to the GPU has failed, whatever its tests say. Ends with the groups that failed, if
any. `--fake` takes the fake of CUDA for the last one, to see that it works.

Six minutes is an estimate for 16 cores, from what the groups took on an H100, one after another:
the rows 37 s in ten processes, a chapter 18 to 36 s; the work 31 s by its figures, and as much for
imports and compilers.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PATHS = [ROOT, ROOT / "tests", ROOT / "tests" / "tools", ROOT / "chapters", HERE]
sys.path[:0] = map(str, PATHS)

PYTEST = f"{sys.executable} -m pytest -q -p count_marks --timeout 600"
DEVICES = "tests/device/test_devices.py"


def share(part: float) -> int:
    """Processes for a group: all groups together leave a core or two to the rest."""
    return max(1, int((os.cpu_count() or 1) * part))


#: Group -> its command.
GROUPS = {
    "questions": f"{PYTEST} -n {share(1 / 8)} tests/gpu/questions.py",
    "rows": f"{PYTEST} -n {share(3 / 8)} tests/gpu/agreement.py",
    "contract": f"{PYTEST} -n {share(1 / 4)} {DEVICES} tests/device/test_devices_training.py "
    "tests/device/test_between_devices.py tests/device/test_refusals.py "
    "tests/kvstore/test_kvstore.py tests/gluon/test_trainer_devices.py",
    "order": "compute-sanitizer --error-exitcode 9 --target-processes all "
    f"{PYTEST} {DEVICES} -k random_programs",
    "chapter": f"{sys.executable} tests/tools/run_chapters.py {ROOT} multiple-gpus",
}
ENVIRONMENT = {
    "D2LMINI_TEST_GPUS": "cuda",
    "D2LMINI_TEST_CTX": "gpu(0)",
    "D2LMINI_LOGICAL_GPUS": "2",
    "PYTHONPATH": os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")]),
}
#: What IPython runs first of all in a chapter's process.
STARTUP = "profile_default/startup/count.py"


def run_group(name: str) -> bool:
    """Run one group, then print what it said; whether it passed, and gave work to the GPU."""
    command = GROUPS[name].split()
    if shutil.which(command[0]) is None:
        print(f"== {name} NOT RUN: {command[0]} is not installed", flush=True)
        return True
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts, startup = Path(folder) / "marks", Path(folder) / STARTUP
        startup.parent.mkdir(parents=True)
        startup.write_text("import count_marks\n", encoding="utf-8")
        environment = {
            **os.environ, **ENVIRONMENT, "D2LMINI_COUNT_MARKS": str(counts), "IPYTHONDIR": folder,
        }  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        tasks = sum(map(int, counts.read_text().split())) if counts.exists() else 0
    lines = [f"== {name}", done.stdout.rstrip()]
    lines.append(f"-- {name}: {time.monotonic() - begin:.0f} s, {tasks} tasks given to the GPU")
    if not tasks:
        lines.append(f"-- {name} FAILED: nothing of it ran on a GPU")
    print("\n".join(lines), flush=True)
    return done.returncode == 0 and tasks > 0


def machine(cupy: Any) -> list[str]:
    """The GPU and what is around it, as lines."""
    import d2lmini

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return [
        f"{properties['totalGlobalMem'] / 2**30:.0f} GiB, {properties['multiProcessorCount']} "
        f"multiprocessors, compute capability {properties['major']}.{properties['minor']}; "
        f"{os.cpu_count()} cores, {platform.machine()}.",
        "",
        f"d2lmini {d2lmini.__version__}, CuPy {cupy.__version__}, CUDA "
        f"{cupy.cuda.runtime.runtimeGetVersion()}, driver "
        f"{cupy.cuda.runtime.driverGetVersion()}, Python {platform.python_version()}; "
        "`make test-gpu`, medians.",
    ]


def write_page(cupy: Any) -> list[str]:
    """Run the group that is timed, and store its table under the GPU's name; the groups that
    failed."""
    import workloads

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    ours, theirs = map(workloads.ask, workloads.LIBRARIES)
    parts = [f"# {name}", "\n".join(machine(cupy)), workloads.table(ours.figures, theirs.figures)]
    print(parts[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"written to {path.relative_to(ROOT)}")
    return [] if ours.went_well and theirs.went_well else ["work"]


def try_on_the_fake() -> None:
    """What is timed, with small arrays on the fake."""
    import workloads
    from fakes.cuda import fake_cuda
    from gpu_kinds import using

    with fake_cuda(1) as cupy, using(cupy):
        print("\n".join(machine(cupy)))
        print(workloads.table(dict(workloads.figures("d2lmini", sizes=workloads.SMALL)), {}))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="what needs a real GPU; all groups by default")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, "work", []])
    parser.add_argument("--fake", action="store_true", help="measure on the fake; writes nothing")
    options = parser.parse_args(arguments)
    from d2lmini.cuda import module

    if options.fake:
        try_on_the_fake()
        return 0
    if not module.look().gpus:
        print(f"no GPU to test on: {module.look().missing}")
        return 1
    begin = time.monotonic()
    groups = options.groups or [*GROUPS, "work"]
    tests = [group for group in groups if group in GROUPS]
    with ThreadPoolExecutor(len(tests) or 1) as side_by_side:
        passed = list(side_by_side.map(run_group, tests))
    failed = [group for group, well in zip(tests, passed) if not well]
    if "work" in groups:
        failed += write_page(module.look().cupy)
    print(f"failed: {', '.join(failed)}" if failed else "all groups passed", end="")
    print(f", in {time.monotonic() - begin:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
